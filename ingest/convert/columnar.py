"""Records that fit a shape, straight to Arrow columns; what does not fit is named and left to the exact path.

The result is the same as the exact path's, value for value (a test compares them). Duplicate keys, which the
struct decoder would hide, show as a difference between the keys counted in the bytes and the values found.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import astuple

from ingest.convert.row import (
    LINE_FIELD,
    MESSAGE_NAMES,
    MISSING_TIME,
    NUMERIC_LEVELS,
    PRIORITY,
    SEVERITY_NAMES,
    TIMESTAMP_NAMES,
    Columns,
    TimeLimits,
    entries,
    is_syslog_word,
)
from ingest.convert.shape import BOOLEAN, INTEGER, RAW, TEXT, Leaf, Shape
from ingest.convert.values import to_column
from ingest.decode.event_time import parse_instant
from lake.log_schema import ERRORS, MESSAGE, SEVERITY, TIMESTAMP, ValueReason, arrow_type

_UTC = pa.timestamp("us", "UTC")
ERRORS_TYPE = pa.list_(pa.struct([("field", pa.string()), ("value", pa.string()), ("reason", pa.string())]))
_MS = (10**11, 10**14)
_NO_LIMIT = 1 << 62
# Arrow reads times of the year 0, which the exact path's calendar does not have.
_YEAR_1_US = -62_135_596_800_000_000
_LINE_END = r"\r?\n\z"
_minus_zero = re.compile(rb"[:\[,]\s*-0").search
_key_and_blank = re.compile(rb'"[ \t\r\n]+:').search
_BLANKS_AFTER_QUOTE = (b'" ', b'"\t', b'"\n', b'"\r')
_decode_text = msgspec.json.Decoder(str).decode


@dataclass(slots=True)
class Decoded:
    """Fast rows of a chunk: arrays by column name, `timestamp` among them, aligned with `ordinals`.
    `fallback` are the ordinals left over."""

    columns: dict[str, pa.Array]
    ordinals: list[int]
    fallback: list[int]


@dataclass(slots=True)
class _Grid:
    """The decoded values of a chunk by leaf, and the rows that the exact path has to look at."""

    raw: Sequence[bytes]
    texts: list[pa.Array]
    fallback: set[int]


@dataclass(frozen=True, slots=True)
class Terms:
    """What records are laid out by: the table's columns, the limits of time and depth, and the zone of times
    that name none."""

    columns: Columns
    time: TimeLimits
    depth_max: int
    local: tzinfo = UTC


Found = dict[str, tuple[Leaf, pa.Array]]


def decode_objects(shape: Shape, values: Sequence[bytes], kafka_ms: pa.Array, terms: Terms) -> Decoded:
    """Decodes JSON objects by a shape. `kafka_ms`: int64 array of the Kafka timestamps, aligned with
    `values`; ordinals are positions in `values`."""
    rows, fit, fallback = _structs(shape.decode, values)
    if not rows:
        return Decoded({}, [], fallback)
    raw = values if len(fit) == len(values) else [values[at] for at in fit]
    grid, present = _grid(shape, rows, raw, terms.depth_max)
    spaced = _with_blank_after_key(raw)
    grid.fallback |= spaced
    # A key with a blank behind it is not counted: it could make up for a duplicate elsewhere.
    if spaced or sum([value.count(b'":') for value in raw]) != present:
        grid.fallback |= _with_duplicates(shape, raw)
    found = {leaf.column: (leaf, text) for leaf, text in zip(shape.leaves, grid.texts, strict=True)}
    kafka_us = pc.multiply(kafka_ms if len(fit) == len(values) else kafka_ms.take(pa.array(fit)), 1000)
    return lay_out_columns(found, kafka_us, terms, fit, fallback, grid.fallback)


def lay_out_columns(
    found: Found, kafka_us: pa.Array, terms: Terms, fit: list[int], unfit: list[int], fallback: set[int]
) -> Decoded:
    """The columns of records whose fields are given as texts. `fit` are the ordinals of the rows, `unfit`
    those already left over, `fallback` rows to leave over."""
    arrays = _times(found, kafka_us, terms, fallback)
    _severity(found, fallback)
    _message(found, fallback)
    arrays |= {name: text for name, (_, text) in found.items()}
    decoded = _without_fallback(arrays, fit, unfit, fallback)
    late = set[int]()
    for name, (leaf, _) in found.items():
        _typed(name, leaf.path, terms.columns, decoded.columns, late)
    return _without_fallback(decoded.columns, decoded.ordinals, decoded.fallback, late)


def _structs(
    decode: Callable[[bytes], Any], values: Sequence[bytes]
) -> tuple[list[Any], list[int], list[int]]:
    try:
        return list(map(decode, values)), list(range(len(values))), []
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    rows, fit, fallback = [], [], []
    for at, value in enumerate(values):
        try:
            rows.append(decode(value))
            fit.append(at)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            fallback.append(at)
    return rows, fit, fallback


def _grid(shape: Shape, rows: Sequence[Any], raw: Sequence[bytes], depth_max: int) -> tuple[_Grid, int]:
    """Values by leaf as text, and how many keys the structs account for."""
    lists: dict[tuple[int, ...], Sequence[Any]] = {
        (at,): column for at, column in enumerate(zip(*map(astuple, rows), strict=True))
    }
    fallback: set[int] = set()
    present = 0
    for route, width in shape.branches:
        objects, absent = lists[route], (None,) * width
        present += len(objects) - objects.count(None)
        members = [absent if one is None else astuple(one) for one in objects]
        # An object without members, or with nothing but nulls, is a value of its own on the exact path.
        for at, one in enumerate(members):
            if one.count(None) == width and objects[at] is not None:
                fallback.add(at)
        lists |= {(*route, at): column for at, column in enumerate(zip(*members, strict=True))}
    grid = _Grid(raw, [], fallback)
    for leaf in shape.leaves:
        text, keys = _text(leaf, lists[leaf.route], grid, depth_max)
        present += len(text) - text.null_count + keys
        grid.texts.append(text)
    return grid, present


def _text(leaf: Leaf, values: Sequence[Any], grid: _Grid, depth_max: int) -> tuple[pa.Array, int]:
    """A leaf's values as a string array, and the number of keys inside its arrays."""
    if leaf.kinds <= {TEXT}:
        return pa.array(values, pa.string()), 0
    if leaf.kinds == {BOOLEAN}:
        return pa.array(values, pa.bool_()).cast(pa.string()), 0
    if RAW in leaf.kinds:
        return _raw_text(values, grid, depth_max - len(leaf.route) + 1)
    if leaf.kinds == {INTEGER}:
        try:
            numbers = pa.array(values, pa.int64())
        except (OverflowError, pa.ArrowInvalid):
            return pa.array([None if v is None else str(v) for v in values], pa.string()), 0
        if pc.any(pc.equal(numbers, 0)).as_py():
            _mark_minus_zero(values, grid)
        return numbers.cast(pa.string()), 0
    if 0 in values:
        _mark_minus_zero(values, grid)
    return pa.array(_spelled(values), pa.string()), 0


def _spelled(values: Sequence[Any]) -> list[str | None]:
    """Texts, integers and booleans as a record spells them."""
    spelled = list[str | None]()
    for value in values:
        if value is None or type(value) is str:
            spelled.append(value)
        elif type(value) is bool:
            spelled.append("true" if value else "false")
        else:
            spelled.append(str(value))
    return spelled


def _mark_minus_zero(values: Sequence[Any], grid: _Grid) -> None:
    """`-0` decodes to 0, but is spelled otherwise."""
    for at, value in enumerate(values):
        if value == 0 and type(value) is int and _minus_zero(grid.raw[at]):
            grid.fallback.add(at)


def _raw_text(values: Sequence[Any], grid: _Grid, depth_max: int) -> tuple[pa.Array, int]:
    texts: list[str | None] = []
    keys = 0
    for at, value in enumerate(values):
        text = None
        if value is not None:
            spelled = bytes(value)
            first = spelled[:1]
            try:
                if first == b'"':
                    text = _decode_text(spelled)
                elif first == b"{" and spelled != b"{}":
                    grid.fallback.add(at)
                elif spelled != b"null":
                    text = spelled.decode()
            except (msgspec.DecodeError, UnicodeDecodeError):
                grid.fallback.add(at)
            if first == b"[":
                keys += spelled.count(b'":')
                if spelled.count(b"[") + spelled.count(b"{") >= depth_max:
                    grid.fallback.add(at)
        texts.append(text)
    return pa.array(texts, pa.string()), keys


def _with_blank_after_key(raw: Sequence[bytes]) -> set[int]:
    """Rows with a blank between a key and its colon: counting would pass over that key, and a duplicate with
    it."""
    joined = b"".join(raw)
    if not any(blank in joined for blank in _BLANKS_AFTER_QUOTE):
        return set()
    return {at for at, value in enumerate(raw) if _key_and_blank(value)}


def _with_duplicates(shape: Shape, raw: Sequence[bytes]) -> set[int]:
    """Rows whose bytes hold more keys than were found; counted exactly, nulls included, escaped quotes left
    out."""
    fallback = set()
    for at, value in enumerate(raw):
        keys, present = value.count(b'":'), _present(shape.decode_strictly(value))
        if keys != present and (keys - value.count(b'\\":') != present or b'\\\\"' in value):
            fallback.add(at)
    return fallback


def _present(struct: Any) -> int:
    count = 0
    for value in astuple(struct):
        if value is msgspec.UNSET:
            continue
        count += 1
        if isinstance(value, msgspec.Struct):
            count += _present(value)
        elif isinstance(value, msgspec.Raw):
            spelled = bytes(value)
            count += spelled.count(b'":') - spelled.count(b'\\":') if spelled[:1] == b"[" else 0
    return count


def _times(found: Found, kafka_us: pa.Array, terms: Terms, fallback: set[int]) -> dict[str, pa.Array]:
    """The `timestamp` column, and where no record has a time, `_errors`, which says so; rows with a time that
    is not plain are left to the exact path."""
    name = next((name for name in TIMESTAMP_NAMES if name in found), None)
    if name is None:
        return {
            TIMESTAMP: kafka_us.cast(_UTC),
            ERRORS: pa.repeat(pa.scalar(entries([MISSING_TIME]), ERRORS_TYPE), len(kafka_us)),
        }
    return {TIMESTAMP: _timestamps(name, found, kafka_us, terms, fallback)}


def _timestamps(name: str, found: Found, kafka_us: pa.Array, terms: Terms, fallback: set[int]) -> pa.Array:
    leaf, texts = found.pop(name)
    instants, finer = _instants(leaf, texts, kafka_us, terms.local)
    if finer is not None:  # the column holds microseconds; what the record said beyond that is kept beside it
        beside = f"{TIMESTAMP}__string" if name == TIMESTAMP else name
        if beside in found:
            fallback.update(at for at, valid in enumerate(finer.is_valid().to_pylist()) if valid)
        else:
            found[beside] = leaf, finer
    if instants.null_count:
        fallback.update(at for at, valid in enumerate(instants.is_valid().to_pylist()) if not valid)
    late_us = _NO_LIMIT if terms.time.late_us is None else terms.time.late_us
    ahead_us = _NO_LIMIT if terms.time.ahead_us is None else terms.time.ahead_us
    distances = pc.subtract(instants, kafka_us)
    if pc.any(pc.or_(pc.less(distances, -late_us), pc.greater(distances, ahead_us))).as_py():
        for at, us in enumerate(distances.to_pylist()):
            if us is not None and not -late_us <= us <= ahead_us:
                fallback.add(at)
    return instants.cast(_UTC)


def _instants(
    leaf: Leaf, texts: pa.Array, kafka_us: pa.Array, local: tzinfo
) -> tuple[pa.Array, pa.Array | None]:
    """Microseconds since the epoch, NULL where the exact path has to look; and the texts of those that say
    more than microseconds."""
    if leaf.kinds == {TEXT} and (instants := _rfc_3339(texts)) is not None:
        return instants, None
    if leaf.kinds == {INTEGER} and (numbers := _as_integers(texts)) is not None and _all_ms(numbers):
        return pc.multiply(numbers, 1000), None
    instants, finer = list[int | None](), list[str | None]()
    for text, near in zip(texts.to_pylist(), kafka_us.to_pylist(), strict=True):
        instant = None if text is None else parse_instant(text, near, local)
        instants.append(None if instant is None else instant.us)
        finer.append(None if instant is None or instant.exact else text)
    return pa.array(instants, pa.int64()), pa.array(finer, pa.string()) if any(finer) else None


def _rfc_3339(texts: pa.Array) -> pa.Array | None:
    try:
        instants = texts.cast(_UTC).cast(pa.int64())
    except pa.ArrowInvalid:
        return None
    return None if (pc.min(instants).as_py() or 0) < _YEAR_1_US else instants


def _all_ms(numbers: pa.Array) -> bool:
    """Whether every number is one of milliseconds by its size (see `event_time`)."""
    return not pc.any(pc.or_(pc.less(numbers, _MS[0]), pc.greater_equal(numbers, _MS[1]))).as_py()


def _as_integers(texts: pa.Array) -> pa.Array | None:
    try:
        return texts.cast(pa.int64())
    except pa.ArrowInvalid:
        return None


def _severity(found: Found, fallback: set[int]) -> None:
    names = [name for name in SEVERITY_NAMES if name in found]
    if PRIORITY in names and not _are_syslog_words(found[PRIORITY][1], fallback, alone=len(names) == 1):
        names.remove(PRIORITY)
    if not names:
        return
    first, texts = _first(found, names, fallback)
    if names[0] != SEVERITY and any(text in NUMERIC_LEVELS for text in pc.unique(texts).to_pylist()):
        spelled = texts.to_pylist()
        numbers = [text if text in NUMERIC_LEVELS else None for text in spelled]
        found[names[0]] = (first, pa.array(numbers, pa.string()))  # the number is kept beside its name
        texts = pa.array([NUMERIC_LEVELS.get(text, text) for text in spelled], pa.string())
    found[SEVERITY] = (first, texts)


def _are_syslog_words(texts: pa.Array, fallback: set[int], *, alone: bool) -> bool:
    """Whether a priority is the severity in all rows; where it is in some only, these are left to the exact
    path."""
    words = {text: is_syslog_word(text) for text in pc.unique(texts).to_pylist() if text is not None}
    if alone and words and all(words.values()):
        return True
    if any(words.values()):
        fallback.update(at for at, text in enumerate(texts.to_pylist()) if words.get(text))
    return False


def _message(found: Found, fallback: set[int]) -> None:
    names = [name for name in MESSAGE_NAMES if name in found]
    if not names:
        return
    first, texts = _first(found, names, fallback)
    if names[0] == LINE_FIELD and pc.any(pc.ends_with(texts, "\n")).as_py():
        texts = pc.replace_substring_regex(texts, _LINE_END, "")
    found[MESSAGE] = (first, texts)


def _first(found: Found, names: Sequence[str], fallback: set[int]) -> tuple[Leaf, pa.Array]:
    """Takes the first of the names out; rows that say it under another of them only are left to the exact
    path."""
    first = found.pop(names[0])
    if first[1].null_count:
        for other in names[1:]:
            only_there = pc.and_(first[1].is_null(), found[other][1].is_valid())
            fallback.update(at for at, yes in enumerate(only_there.to_pylist()) if yes)
    return first


def _typed(name: str, path: str, columns: Columns, arrays: dict[str, pa.Array], fallback: set[int]) -> None:
    """Drops a column that is empty, leaves one that the table cannot get to the exact path, converts one of a
    declared type."""
    text = arrays[name]
    if text.null_count == len(text):
        del arrays[name]
    elif not columns.admits(name, path):
        fallback.update(at for at, valid in enumerate(text.is_valid().to_pylist()) if valid)
        del arrays[name]
    elif (kind := columns.kind(name)) != "string":
        stored = [None if value is None else to_column(kind, value) for value in text.to_pylist()]
        fallback.update(at for at, value in enumerate(stored) if isinstance(value, ValueReason))
        arrays[name] = pa.array(
            [None if isinstance(value, ValueReason) else value for value in stored], arrow_type(kind)
        )


def _without_fallback(
    arrays: dict[str, pa.Array], ordinals: list[int], unfit: list[int], fallback: set[int]
) -> Decoded:
    """Leaves some of the rows to the exact path, beside the ordinals that are left to it already."""
    if not fallback:
        return Decoded(arrays, ordinals, unfit)
    kept = [at for at in range(len(ordinals)) if at not in fallback]
    positions = pa.array(kept, pa.int32())
    columns = {name: array.take(positions) for name, array in arrays.items()}
    left = sorted([*unfit, *(ordinals[at] for at in fallback)])
    return Decoded(columns, [ordinals[at] for at in kept], left)
