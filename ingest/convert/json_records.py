"""JSON objects as columns of text: by the core, and exactly, record by record, what it leaves or where it is
not there."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from ingest.convert.bad_values import RowError, bad_value
from ingest.convert.flat_records import FlatRecords
from ingest.convert.text_columns import Decoded, Field, Gathered, Mask, TextColumn, TextColumns, merged
from ingest.core.json_columns import TEXT, JsonColumns, Parsed, Route
from ingest.core.library import Absent, load
from ingest.decode.column_name import column_name, is_usable, pointer
from ingest.decode.decoder import Json, Pairs, decode
from ingest.decode.formats.registry import BATCH_ROOTS, JSON
from ingest.model.raw_rows import ByteValues
from lake.errors import Rejected
from lake.log_schema import RESERVED_NAMES, ValueReason
from lake.settings import FormatName
from lake.short_texts import kept_of_short_texts

# Bytes of records that are joined for the core, which reads no more at once than `BYTES_MAX`.
JOINED_BYTES = 16 * 1024 * 1024


class _Cores(threading.local):
    """The core's readers of a thread, which know the keys they have met, by the levels that records may
    nest."""

    def __init__(self) -> None:
        self.known: dict[int, JsonColumns] = {}


_cores = _Cores()


def core_of(depth_max: int) -> JsonColumns | None:
    """The core's reader for this thread; None where this process does without the core."""
    functions = load()
    if isinstance(functions, Absent):
        return None
    if depth_max not in _cores.known:
        _cores.known[depth_max] = JsonColumns(functions, depth_max, BATCH_ROOTS)
    return _cores.known[depth_max]


def read_objects(values: Sequence[bytes], depth_max: int) -> tuple[list[Decoded], Sequence[int]]:
    """By the core, the records that are one object each, of at most `depth_max` levels; and the positions of
    those left, among which are such objects, too."""
    core = core_of(depth_max)
    if core is None:
        return [], range(len(values))
    decoded, left = list[Decoded](), list[int]()
    for first, end in _runs(values):
        run = values[first:end] if end - first < len(values) else values
        positions, odd, parsed, run = _plain_of(core, run)
        if len(positions):
            decoded.append(Decoded((positions + first).tolist(), _plain_columns(parsed, run, depth_max)))
        left += (odd + first).tolist()
    return decoded, left


def _runs(values: Sequence[bytes]) -> Iterator[tuple[int, int]]:
    """Bounds of records that are read at once."""
    if isinstance(values, ByteValues):
        ends, begin = values.ends, values.begin
    else:
        ends, begin = np.cumsum(np.fromiter(map(len, values), np.int64, len(values))), 0
    first = 0
    while first < len(values):
        before = ends[first - 1] if first else begin
        end = max(first + 1, int(ends.searchsorted(before + JOINED_BYTES, "right")))
        yield first, end
        first = end


@kept_of_short_texts(65_536, lambda arguments: sum(map(len, arguments[0])))
def _place_of(route: Route) -> tuple[str, str, ValueReason | None]:
    """Name and path of a route's column, and why there can be none."""
    name, path = "", ""
    for key in route:
        name, path = column_name(name, key), pointer(path, key)
    if is_usable(name):
        return name, path, None
    return name, path, ValueReason.RESERVED_NAME if name in RESERVED_NAMES else ValueReason.UNUSABLE_NAME


def _plain_of(core: JsonColumns, run: Sequence[bytes]) -> tuple[Any, Any, Parsed, Sequence[bytes]]:
    """The positions of plain records and those of others, what the core gives of the plain ones, and their
    bytes. Those with several values for one column are among the others: in which order they stand, the core
    does not tell."""
    positions, others = np.arange(len(run)), list[Any]()
    while True:
        parsed = core.parse(run)
        others.append(positions[parsed.odd])
        positions = positions[parsed.plain]
        several = _have_several(parsed)
        if several is None:
            return positions, np.sort(np.concatenate(others)), parsed, run
        # To read the rest once more costs less than to take these out of all columns.
        others.append(positions[several])
        positions = positions[~several]
        kept = np.zeros(len(run), bool)
        kept[parsed.plain[~several]] = True
        run = ByteValues.of(run).only(kept)


def _have_several(parsed: Parsed) -> Mask | None:
    """The plain records with several values for one column; None where there are none."""
    found: dict[str, list[pa.Array]] = {}
    for route, _, texts in parsed.columns:
        name, _, reason = _place_of(route)
        if reason is None:
            found.setdefault(name, []).append(texts)
    counts = [
        sum(texts.is_valid().to_numpy(zero_copy_only=False).astype(np.uint16) for texts in parts)
        for parts in found.values()
        if len(parts) > 1
    ]
    several = np.any([count > 1 for count in counts], axis=0) if counts else np.zeros(0, bool)
    return several if several.any() else None


def _plain_columns(parsed: Parsed, values: Sequence[bytes], depth_max: int) -> TextColumns:
    """The columns of the plain records, none of which has several values for one."""
    found: dict[str, list[tuple[Field, pa.Array]]] = {}
    errors = list[RowError]()
    spelled = _Spelled(values, parsed.plain, depth_max)
    for turn, (route, kinds, texts) in enumerate(parsed.columns):
        name, path, reason = _place_of(route)
        if reason is not None:
            errors += _unplaced(path, texts, turn, reason)
            continue
        is_mixed = kinds & TEXT and kinds != TEXT
        is_text = spelled.texts_of(path) if is_mixed else kinds == TEXT
        found.setdefault(name, []).append((Field(path, is_text), texts))
    columns: dict[str, TextColumn | Gathered] = {}
    for name, parts in found.items():
        if len(parts) == 1:
            columns[name] = TextColumn(parts[0][1], (parts[0][0],))
        else:
            columns[name] = merged(parts)
    return TextColumns(len(parsed.plain), columns, errors)


def _unplaced(path: str, texts: pa.Array, turn: int, reason: ValueReason) -> Iterator[RowError]:
    for row, text in enumerate(texts.to_pylist()):
        if text is not None:
            yield RowError(row, turn, bad_value(path, text, reason))


@dataclass
class _Spelled:
    """Which values of records are text: asked only where a field has both, and a table no room for it."""

    values: Sequence[bytes]
    positions: Any
    depth_max: int
    known: dict[int, Mapping[str, bool]] = field(default_factory=dict)

    def texts_of(self, path: str) -> Callable[[int], bool]:
        return lambda row: self._record(row)[path]

    def _record(self, row: int) -> Mapping[str, bool]:
        if row not in self.known:
            record = decode(self.values[self.positions[row]], JSON, self.depth_max)
            self.known[row] = dict(_kinds(record, "")) if isinstance(record, Pairs) else {}
        return self.known[row]


def _kinds(members: Pairs, path: str) -> Any:
    for key, value in members:
        if isinstance(value, Pairs):
            yield from _kinds(value, pointer(path, key))
        else:
            yield pointer(path, key), not isinstance(value, Json)


def read_exactly(
    values: Sequence[bytes], positions: Sequence[int], form: FormatName, depth_max: int
) -> tuple[Decoded, list[int], list[tuple[int, Rejected]]]:
    """Reads the values at some positions, each of which is one record: the objects, the positions of lines of
    text, and what is rejected."""
    records, objects = FlatRecords(), list[int]()
    lines, rejected = list[int](), list[tuple[int, Rejected]]()
    for at in positions:
        record = decode(values[at], form, depth_max)
        if isinstance(record, Rejected):
            rejected.append((at, record))
        elif isinstance(record, str):
            lines.append(at)
        else:
            records.add(record)
            objects.append(at)
    return Decoded(objects, records.columns()), lines, rejected
