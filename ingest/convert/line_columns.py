"""Lines of text, straight to Arrow columns: those of a known format by its fields, the others as messages;
what is out of the ordinary is left over.

The result is the same as the exact path's, value for value (a test compares them).
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from ingest.convert.columnar import Decoded, Found, Terms, lay_out_columns
from ingest.convert.shape import TEXT, Leaf
from ingest.decode.column_name import column_name, is_usable, pointer
from ingest.decode.formats.registry import match_line
from ingest.decode.formats.text_line import LineFormat, Values
from lake.log_schema import MESSAGE, TIMESTAMP

_UTC = pa.timestamp("us", "UTC")
_KINDS = frozenset((TEXT,))


def decode_lines(values: Sequence[bytes], kafka_ms: pa.Array, terms: Terms) -> Iterator[Decoded]:
    """Decodes lines, one result per format met; ordinals are positions in `values`. `kafka_ms`: int64 array
    of the Kafka timestamps."""
    plain: tuple[list[str], list[int]] = ([], [])
    known: dict[str, tuple[LineFormat, list[Values], list[int]]] = {}
    fallback: list[int] = []
    for at, (value, near_ms) in enumerate(zip(values, kafka_ms.to_pylist(), strict=True)):
        try:
            line = value.decode().rstrip("\r\n")
        except UnicodeDecodeError:
            fallback.append(at)
            continue
        if (found := match_line(line, near_ms * 1000, terms.local)) is not None:
            line_format, fields = found
            if line_format.title not in known:
                known[line_format.title] = (line_format, [], [])
            _, rows, ordinals = known[line_format.title]
            rows.append(fields)
            ordinals.append(at)
        elif not line or line.isspace():
            fallback.append(at)
        else:
            plain[0].append(line)
            plain[1].append(at)
    lines, ordinals = plain
    arrays = (
        {TIMESTAMP: _kafka_us(kafka_ms, ordinals).cast(_UTC), MESSAGE: pa.array(lines, pa.string())}
        if lines
        else {}
    )
    yield Decoded(arrays, ordinals, fallback)
    for line_format, rows, ordinals in known.values():
        yield _of_format(line_format, rows, ordinals, _kafka_us(kafka_ms, ordinals), terms)


def _kafka_us(kafka_ms: pa.Array, ordinals: list[int]) -> pa.Array:
    return pc.multiply(
        kafka_ms if len(ordinals) == len(kafka_ms) else kafka_ms.take(pa.array(ordinals, pa.int64())), 1000
    )


def _of_format(
    line_format: LineFormat, rows: Sequence[Values], ordinals: list[int], kafka_us: pa.Array, terms: Terms
) -> Decoded:
    lists = list(zip(*rows, strict=True))
    found: Found = {}
    for name, texts in zip(line_format.names, lists, strict=False):
        found[name] = (Leaf(name, pointer("", name), _KINDS, ()), pa.array(texts, pa.string()))
    fallback = set[int]()
    if line_format.extras is not None:
        found |= _extra_columns(line_format, lists[-1], fallback)
    return lay_out_columns(found, kafka_us, terms, ordinals, [], fallback)


def _extra_columns(line_format: LineFormat, texts: Sequence[str | None], fallback: set[int]) -> Found:
    columns: dict[str, tuple[str, list[str | None]]] = {}
    for at, text in enumerate(texts):
        if text is None:
            continue
        placed = _placed(line_format, text)
        if placed is None:
            fallback.add(at)
            continue
        for name, path, value in placed:
            if name not in columns:
                columns[name] = (path, [None] * len(texts))
            columns[name][1][at] = value
    return {
        name: (Leaf(name, path, _KINDS, ()), pa.array(values, pa.string()))
        for name, (path, values) in columns.items()
    }


@lru_cache(maxsize=8_192)
def _placed(line_format: LineFormat, text: str) -> Sequence[tuple[str, str, str]] | None:
    """Columns, paths and values of what a line has beyond its format's names; None where two of them, or one
    of those, want the same column."""
    assert line_format.extras is not None
    taken = set(line_format.names)
    placed = []
    for outer, inner, value in line_format.extras(text):
        name, path = column_name("", outer), pointer("", outer)
        if inner is not None:
            name, path = column_name(name, inner), pointer(path, inner)
        if name in taken or not is_usable(name):
            return None
        taken.add(name)
        placed.append((name, path, value))
    return placed
