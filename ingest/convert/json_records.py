"""JSON objects as columns of text: by the core, and exactly, record by record, what it leaves or where it is
not there."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ingest.convert.bad_values import RowError, bad_value
from ingest.convert.flat_records import FlatRecords
from ingest.convert.text_columns import Decoded, Field, Gathered, TextColumn, TextColumns, merged
from ingest.core.json_columns import TEXT, JsonColumns, Parsed, Route
from ingest.core.library import Absent, load
from ingest.decode.column_name import column_name, is_usable, pointer
from ingest.decode.decoder import Json, Pairs, decode
from ingest.decode.formats.registry import BATCH_ROOTS, JSON
from lake.errors import Rejected
from lake.log_schema import RESERVED_NAMES, ValueReason
from lake.settings import FormatName

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
        parsed = core.parse(run)
        records, clashing = _plain_columns(parsed, run, depth_max)
        plain, odd = parsed.plain, parsed.odd
        if clashing is not None:
            odd = np.union1d(odd, plain[clashing])
            plain, records = plain[~clashing], records.filter(~clashing)
        if records.rows:
            decoded.append(Decoded((plain + first).tolist(), records))
        left += (odd + first).tolist()
    return decoded, left


def _runs(values: Sequence[bytes]) -> Iterator[tuple[int, int]]:
    """Bounds of records that are read at once."""
    if sum(map(len, values)) <= JOINED_BYTES:
        yield 0, len(values)
        return
    first = size = 0
    for at, value in enumerate(values):
        size += len(value)
        if size > JOINED_BYTES and at > first:
            yield first, at
            first, size = at, len(value)
    yield first, len(values)


class _Place(NamedTuple):
    """Where the values of a route go: the column and its field, if they are text or JSON text throughout; or
    why they have no column."""

    name: str
    path: str
    text: tuple[Field, ...]
    json: tuple[Field, ...]
    reason: ValueReason | None


@lru_cache(maxsize=65_536)
def _place_of(route: Route) -> _Place:
    name, path = "", ""
    for key in route:
        name, path = column_name(name, key), pointer(path, key)
    reason = None
    if not is_usable(name):
        reason = ValueReason.RESERVED_NAME if name in RESERVED_NAMES else ValueReason.UNUSABLE_NAME
    return _Place(name, path, (Field(path, True),), (Field(path, False),), reason)


def _plain_columns(parsed: Parsed, values: Sequence[bytes], depth_max: int) -> tuple[TextColumns, Any]:
    """The columns of the plain records; and a mask of those with several values for one column, in an order
    that the core does not tell (None: there are none)."""
    rows = len(parsed.plain)
    found: dict[str, list[tuple[tuple[Field, ...], pa.Array]]] = {}
    errors = list[RowError]()
    spelled = _Spelled(values, parsed.plain, depth_max)
    for turn, (route, kinds, texts) in enumerate(parsed.columns):
        place = _place_of(route)
        if place.reason is not None:
            errors += _unplaced(place.path, texts, turn, place.reason)
            continue
        fields = place.text if kinds == TEXT else place.json
        if kinds & TEXT and kinds != TEXT:
            fields = (Field(place.path, spelled.texts_of(place.path)),)
        found.setdefault(place.name, []).append((fields, texts))
    columns: dict[str, TextColumn | Gathered] = {}
    clashing = None
    for name, parts in found.items():
        if len(parts) == 1:
            ((fields, texts),) = parts
            columns[name] = TextColumn(texts, fields)
        else:
            columns[name], both = merged([(one, texts) for (one,), texts in parts])
            if both.any():
                clashing = both if clashing is None else clashing | both
    return TextColumns(rows, columns, errors), clashing


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


@dataclass(slots=True)
class Exactly:
    """Records read one by one: `decoded`, those that are lines of text, and those that are `rejected`, by
    position."""

    decoded: Decoded | None
    lines: Sequence[int]
    rejected: Sequence[tuple[int, Rejected]]


def read_exactly(
    values: Sequence[bytes], positions: Sequence[int], form: FormatName, depth_max: int
) -> Exactly:
    """Reads the values at some positions, each of which is one record."""
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
    return Exactly(Decoded(objects, records.columns()) if objects else None, lines, rejected)
