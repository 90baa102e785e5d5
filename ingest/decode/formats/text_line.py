"""Lines of text: those of a known format become fields, all others are a message as a whole.

Recognition is strict: a line that does not match a format from its first character to its last stays one
message.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import tzinfo

from ingest.decode.formats.json_object import Pairs

Values = tuple[str | None, ...]
# What varies from line to line: an outer name, one inside it (None: it stands alone), a text.
Extras = Sequence[tuple[str, str | None, str]]


@dataclass(frozen=True, eq=False, slots=True)
class LineFormat:
    """A format of lines.

    `read` gets a line, its Kafka timestamp in us, and the zone of times that name none, and gives texts
    aligned with `names` (None: the line does not say), or None where the line is not of the format. The first
    is the timestamp as RFC 3339, its date not checked. Where the format has `extras`, one more text follows,
    which `extras` takes apart.
    `begins`: the characters one of which its lines begin with; other lines are not tried. Empty: any but `<`,
    which begins a priority of syslog.
    """

    title: str
    names: tuple[str, ...]
    read: Callable[[str, int, tzinfo], Values | None]
    extras: Callable[[str], Extras] | None = None
    begins: str = ""


def to_pairs(line: LineFormat, values: Values) -> Pairs:
    """The fields of a line as if a JSON object had brought them."""
    pairs = Pairs((name, value) for name, value in zip(line.names, values, strict=False) if value is not None)
    if line.extras is not None and (text := values[-1]) is not None:
        for outer, inner, value in line.extras(text):
            pairs.append((outer, value if inner is None else Pairs([(inner, value)])))
    return pairs
