"""Lines of text as columns of text: those of a known format by its fields, the others as messages."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ingest.convert.flat_records import FlatRecords
from ingest.convert.text_columns import STRING, Decoded, Field, Gathered, TextColumn, TextColumns
from ingest.convert.times import read_moments
from ingest.decode.column_name import column_name, is_usable, pointer
from ingest.decode.formats.registry import match_line
from ingest.decode.formats.text_line import LineFormat, Values, to_pairs
from lake.log_schema import MESSAGE
from lake.short_texts import kept_of_short_texts


def read_lines(values: Sequence[bytes], kafka_us: Any, local: Any) -> tuple[list[Decoded], list[int]]:
    """The lines by their formats, and the positions of values that are none: blank ones, and such that are
    not UTF-8. `kafka_us`: int64 array of the Kafka timestamps in microseconds; `local`: the zone of times
    that name none."""
    plain: dict[int, str] = {}
    known: dict[str, tuple[LineFormat, list[int], list[Values]]] = {}
    none = list[int]()
    for at, (value, near_us) in enumerate(zip(values, kafka_us.tolist(), strict=True)):
        try:
            line = value.decode().rstrip("\r\n")
        except UnicodeDecodeError:
            none.append(at)
            continue
        if (found := match_line(line, near_us, local)) is not None:
            line_format, fields = found
            _, places, rows = known.setdefault(line_format.title, (line_format, [], []))
            places.append(at)
            rows.append(fields)
        elif not line or line.isspace():
            none.append(at)
        else:
            plain[at] = line
    decoded = list[Decoded]()
    for line_format, places, rows in known.values():
        for at in _undated(places, rows):
            plain[at] = values[at].decode().rstrip("\r\n")
        dated = [number for number, at in enumerate(places) if at not in plain]
        decoded += _of_format(line_format, [places[at] for at in dated], [rows[at] for at in dated])
    if plain:
        places = sorted(plain)
        texts = pa.array([plain[at] for at in places], STRING)
        columns: dict[str, TextColumn | Gathered] = {MESSAGE: TextColumn(texts, (Field(""),))}
        decoded.append(Decoded(places, TextColumns(len(plain), columns, tells_time=False)))
    return decoded, none


def _undated(places: Sequence[int], rows: Sequence[Values]) -> Iterator[int]:
    """Lines that say a time which no calendar has: these are of no format."""
    stamps = pa.array([row[0] for row in rows], STRING)
    moments = read_moments(stamps, None)
    wrong = stamps.is_valid().to_numpy(zero_copy_only=False) & ~moments.are_times
    return (places[at] for at in np.flatnonzero(wrong).tolist())


def _of_format(line_format: LineFormat, places: Sequence[int], rows: Sequence[Values]) -> Iterator[Decoded]:
    if not places:
        return
    extras: list[Sequence[tuple[str, str, str]] | None] = (
        [() if row[-1] is None else _placed(line_format, row[-1]) for row in rows]
        if line_format.extras is not None
        else [()] * len(rows)
    )
    clashing = [at for at, placed in enumerate(extras) if placed is None]
    if clashing:
        records = FlatRecords()
        for at in clashing:
            records.add(to_pairs(line_format, rows[at]))
        yield Decoded([places[at] for at in clashing], records.columns())
    kept = [at for at, placed in enumerate(extras) if placed is not None] if clashing else range(len(rows))
    if not kept:
        return
    columns: dict[str, TextColumn | Gathered] = {
        name: TextColumn(pa.array(texts, STRING), (Field(pointer("", name)),))
        for name, texts in zip(line_format.names, zip(*(rows[at] for at in kept), strict=True), strict=False)
    }
    if line_format.extras is not None:
        columns |= _extra_columns([extras[at] or () for at in kept])
    yield Decoded([places[at] for at in kept], TextColumns(len(kept), columns))


def _extra_columns(extras: Sequence[Sequence[tuple[str, str, str]]]) -> dict[str, TextColumn | Gathered]:
    records = FlatRecords()
    for placed in extras:
        for name, path, value in placed:
            records.place(name, path, value)
        records.end_record()
    return records.columns().columns


@kept_of_short_texts(8_192, lambda arguments: len(arguments[1]))
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
