"""Lines of text: those of a known format become fields, all others are a message as a whole.

Recognition is strict: a line that does not match a format from its first character to its last stays one message.
"""

from collections.abc import Callable, Sequence
from datetime import tzinfo
from typing import NamedTuple

from ingest.formats.json_object import Pairs

# What a line has beyond the names of its format: an outer name, one inside it (None: it stands alone), a text.
Extras = Sequence[tuple[str, str | None, str]]


class LineFields(NamedTuple):
    """A line taken apart: texts aligned with the names of its format (None: the line does not say), and what varies from line to line."""

    values: tuple[str | None, ...]
    extras: Extras = ()


class LineFormat(NamedTuple):
    """A format of lines. `read` gets the line, its Kafka timestamp in us, and the zone of times that name none; None where the line is not of the format.

    A value named `timestamp` is RFC 3339, its date not checked.
    """

    name: str
    names: tuple[str, ...]
    read: Callable[[str, int, tzinfo], LineFields | None]


def to_pairs(line: LineFormat, fields: LineFields) -> Pairs:
    """The fields of a line as if a JSON object had brought them."""
    pairs = Pairs((name, value) for name, value in zip(line.names, fields.values, strict=True) if value is not None)
    for outer, inner, value in fields.extras:
        pairs.append((outer, value if inner is None else Pairs([(inner, value)])))
    return pairs
