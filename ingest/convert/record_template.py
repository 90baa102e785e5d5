"""Records written by the same line of code, by their quotes: everything but the values is the same bytes, so
the values can be cut out without parsing.

A sample of a chunk gives the template: the fixed bytes before, between and after the values. A record whose
quotes stand at the same places of that, with the same fixed bytes, and a plain number, `true`, `false` or
`null` wherever the sample had one, is the sample with other values in it. All of that is compared, and the
values are cut out, column by column. A record with a backslash, a control character inside a text, or an
array does not come into question; it is left to the struct of its table's shape, as is what no frequent
template fits.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.convert.columnar import Decoded, Found, Terms, lay_out_columns
from ingest.convert.shape import Leaf, learn, leaves_of
from ingest.decode.decoder import Json, Pairs, decode
from ingest.decode.formats.registry import JSON

# Below this the fixed cost of the calls is more than decoding the records costs.
ROWS_MIN = 400
TEMPLATES_MAX = 4
# Offsets into a chunk are 32 bits wide.
BYTES_MAX = 1 << 30
QUOTE, BACKSLASH, BLANK = b'"', b"\\", ord(" ")
_JSON_BLANKS = " \t\r\n"
_LITERAL = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null"
_around_literal = re.compile(rf"([:,\s]*)({_LITERAL})([,}}\s]*)").fullmatch
_CONTROL = r"[\x00-\x1f]"


@dataclass(slots=True)
class Chunk:
    """Records joined by quotes. `ends`: positions behind each quote; `first`, `count`: which are a record's,
    the one that joins it to the next included."""

    joined: bytes
    ends: Any  # int32 array
    first: Any  # int64 array
    count: Any  # int64 array
    has_controls: bool


class Slot(NamedTuple):
    """Where a value stands: it begins `after` bytes behind the quote with number `begin`, and ends `before`
    bytes ahead of the position behind the next one."""

    leaf: Leaf
    begin: int
    after: int
    before: int
    is_text: bool


@dataclass(frozen=True, slots=True)
class RecordTemplate:
    """What records have in common: the number of quotes, the fixed bytes around the values, and the columns
    of each object that has literals only, which may all be null."""

    count: int
    fixed: Sequence[bytes]  # one more than slots
    slots: Sequence[Slot]
    all_null: Sequence[Sequence[str]]


def decode_by_template(values: Sequence[bytes], kafka_ms: pa.Array, terms: Terms) -> Iterator[Decoded]:
    """Decodes the records of the most frequent templates, one result per template; `fallback` of the last one
    are the positions left over.

    `kafka_ms`: int64 array of the Kafka timestamps, aligned with `values`, in which ordinals are positions.
    """
    left = np.ones(len(values), bool)
    chunk = _joined(values) if len(values) >= ROWS_MIN else None
    if chunk is not None:
        rows = _without_backslash(chunk, values)
        for _ in range(TEMPLATES_MAX):
            if len(rows) < ROWS_MIN or (template := learn_template(values[rows[0]], terms.depth_max)) is None:
                break
            same, found = _cut(template, chunk, rows)
            if not len(same):
                break
            rows = np.setdiff1d(rows, same, assume_unique=True)
            kafka_us = pc.multiply(kafka_ms.take(pa.array(same)), 1000)
            unfit = _unfit(found, template, chunk)
            decoded = lay_out_columns(found, kafka_us, terms, same.tolist(), [], unfit)
            left[decoded.ordinals] = False
            yield Decoded(decoded.columns, decoded.ordinals, [])
    yield Decoded({}, [], np.flatnonzero(left).tolist())


def _joined(values: Sequence[bytes]) -> Chunk | None:
    """The chunk of these records; None where it is too large, or not UTF-8 throughout."""
    lengths = np.fromiter(map(len, values), np.int64, len(values)) + 1
    if lengths.sum() >= BYTES_MAX:
        return None
    joined = QUOTE.join(values) + QUOTE
    try:
        joined.isascii() or joined.decode()
    except UnicodeDecodeError:
        return None
    data = np.frombuffer(joined, np.uint8)
    ends = (np.flatnonzero(data == QUOTE[0]) + 1).astype(np.int32)
    after = np.searchsorted(ends, np.cumsum(lengths)) + 1
    first = np.concatenate((np.zeros(1, np.int64), after[:-1]))
    return Chunk(joined, ends, first, after - first, bool(data.min() < BLANK))


def _without_backslash(chunk: Chunk, values: Sequence[bytes]) -> Any:
    """Positions of the records whose every quote is one of JSON's."""
    if BACKSLASH not in chunk.joined:
        return np.arange(len(values))
    return np.flatnonzero(np.fromiter((BACKSLASH not in value for value in values), bool, len(values)))


def learn_template(sample: bytes, depth_max: int) -> RecordTemplate | None:
    """The template of a record without backslashes; None where its values are not all texts and literals that
    become a column each."""
    fields = decode(sample, JSON, depth_max)
    if not isinstance(fields, Pairs):
        return None
    leaves = leaves_of(learn({}, fields))
    walk = _Walk(sample.decode().split('"'), [], [])
    end = walk.object(fields, 0)
    if not end or end != len(walk.pieces) - 1 or len(leaves) != len(walk.places):
        return None
    slots = [Slot(leaf, *place) for leaf, place in zip(leaves, walk.places, strict=True)]
    columns = [slot.leaf.column for slot in slots]
    all_null = [[columns[place] for place in places] for places in walk.all_null]
    return RecordTemplate(len(walk.pieces), _fixed(sample, slots), slots, all_null)


def _fixed(sample: bytes, slots: Sequence[Slot]) -> Sequence[bytes]:
    """The bytes before, between and behind the values of a sample."""
    ends = [match.end() for match in re.finditer(QUOTE, sample + QUOTE)]
    fixed, at = [], 0
    for slot in slots:
        fixed.append(sample[at : ends[slot.begin] + slot.after])
        at = ends[slot.begin + 1] - slot.before
    return [*fixed, sample[at:] + QUOTE]


@dataclass(slots=True)
class _Walk:
    """Follows a decoded sample through the pieces between its quotes. `places`: the slots without their
    leaves; `all_null`: objects of nothing but literals."""

    pieces: Sequence[str]
    places: list[tuple[int, int, int, bool]]
    all_null: list[list[int]]

    def object(self, fields: Pairs, number: int) -> int:
        """Walks an object whose first key follows piece `number`; returns the number of the piece behind its
        last value, 0 where it cannot be followed."""
        literals = list[int]()
        if not fields or len({key for key, _ in fields}) != len(fields):
            return 0
        for key, value in fields:
            if number + 2 >= len(self.pieces) or self.pieces[number + 1] != key:
                return 0
            number += 2
            if isinstance(value, Pairs):
                opens = self.pieces[number].rstrip(_JSON_BLANKS).endswith("{")
                number = self.object(value, number) if opens else 0
            elif isinstance(value, Json) or value is None:
                literals.append(len(self.places))
                number = self._literal("null" if value is None else value, number)
            else:
                number = self._text(value, number)
            if not number:
                return 0
        if len(literals) == len(fields):
            self.all_null.append(literals)
        return number

    def _literal(self, value: str, number: int) -> int:
        match = _around_literal(self.pieces[number])
        if match is None or match[2] != value:
            return 0
        self.places.append((number - 1, len(match[1]), len(match[3]) + 1, False))
        return number

    def _text(self, value: str, number: int) -> int:
        if (
            number + 2 >= len(self.pieces)
            or self.pieces[number].strip(_JSON_BLANKS) != ":"
            or self.pieces[number + 1] != value
        ):
            return 0
        self.places.append((number, 0, 1, True))
        return number + 2


def _cut(template: RecordTemplate, chunk: Chunk, rows: Any) -> tuple[Any, Found]:
    """Those of the rows that have this template, and their values by column as text.

    Between which quotes a value stands is the same in all records of a template, and so is how far from them.
    Those of a record are numbered from 0, here with a text behind quote 2 and a number behind quote 5:

        quotes    0     1 2    3 4 5    6                    6 joins it to the next one
        record   {"level":"info","n":17}"{"level":"warning" ...
        fixed    ==========    ======  ==                    one part more than slots
        slots              ----      --

    So the bounds of all values of all records come from the positions of quotes by one addition, as arrays
    with a row for each record and a column for each slot. Whether a record has the template shows in what
    lies between: each fixed part has to be as long as the template's, and then to have the same bytes.
    """
    rows = rows[chunk.count[rows] == template.count]
    bounds = _bounds(template, chunk, rows)
    fits = bounds.fit([len(part) for part in template.fixed])
    rows, fixed_begins = rows[fits], bounds.fixed_begins[fits]
    same = np.ones(len(rows), bool)
    for number, part in enumerate(template.fixed):
        same &= _windows(chunk.joined, len(part))[fixed_begins[:, number]] == part
    cells = _cells(chunk, bounds.begins[fits][same], bounds.ends[fits][same])
    return _literals(template, rows[same], cells)


class _Bounds(NamedTuple):
    """Where values and fixed parts of records lie in the joined bytes, `[begin, end)`: arrays with a row for
    each record, and a column for each slot, or for each fixed part."""

    begins: Any
    ends: Any
    fixed_begins: Any
    fixed_ends: Any

    def fit(self, lengths: Sequence[int]) -> Any:
        """Which rows have fixed parts of these lengths, and no value that ends before it begins."""
        as_long = self.fixed_ends - self.fixed_begins == lengths
        return as_long.all(axis=1) & (self.begins <= self.ends).all(axis=1)


def _bounds(template: RecordTemplate, chunk: Chunk, rows: Any) -> _Bounds:
    """The bounds in records that have as many quotes as the template."""
    first = chunk.first[rows]
    quotes = chunk.ends[first[:, None] + np.arange(template.count)]
    at = np.array([slot.begin for slot in template.slots])
    begins = quotes[:, at] + np.array([slot.after for slot in template.slots], np.int32)
    ends = quotes[:, at + 1] - np.array([slot.before for slot in template.slots], np.int32)
    # A record begins behind the quote that joins it to the one before.
    starts = np.where(first > 0, chunk.ends[first - 1], 0)[:, None]
    fixed_begins = np.concatenate((starts, ends), axis=1)
    fixed_ends = np.concatenate((begins, quotes[:, -1:]), axis=1)
    return _Bounds(begins, ends, fixed_begins, fixed_ends)


def _windows(data: bytes, width: int) -> Any:
    """Every run of so many bytes, as an array over the same memory: element `n` is `data[n : n + width]`."""
    return np.ndarray((len(data) - width + 1,), f"S{width}", data, strides=(1,))


def _cells(chunk: Chunk, begins: Any, ends: Any) -> list[pa.Array]:
    """The values of each slot, given their bounds.

    A string array of Arrow is one run of bytes and the offsets where its elements end and the next begin. The
    bounds of all values, record by record, are such offsets:

        offsets     begin    end    begin    end    ...
        elements        value   fixed   value   ...

    So every second element is a value, and a slot's values are every second one times the number of slots.
    """
    rows, slots = begins.shape
    if not rows:
        return []
    offsets = np.stack((begins, ends), axis=2).ravel()
    every = pa.Array.from_buffers(
        pa.string(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(chunk.joined)]
    )
    return [every.take(pa.array(np.arange(2 * slot, len(offsets), 2 * slots))) for slot in range(slots)]


def _literals(template: RecordTemplate, rows: Any, cells: Sequence[pa.Array]) -> tuple[Any, Found]:
    """Leaves out the rows that have something else where a literal should be; `null` becomes NULL."""
    if not cells:
        return rows, {}
    literal = [number for number, slot in enumerate(template.slots) if not slot.is_text]
    fits = [_mask(pc.match_substring_regex(cells[number], rf"\A(?:{_LITERAL})\z")) for number in literal]
    if literal and not (keep := np.logical_and.reduce(fits)).all():
        rows, cells = rows[keep], [cell.filter(pa.array(keep)) for cell in cells]
    found = {
        slot.leaf.column: (slot.leaf, cell if slot.is_text else _without_null(cell))
        for slot, cell in zip(template.slots, cells, strict=True)
    }
    return rows, found


def _without_null(text: pa.Array) -> pa.Array:
    nulls = pc.equal(text, "null")
    return pc.if_else(nulls, pa.scalar(None, pa.string()), text) if pc.any(nulls).as_py() else text


def _unfit(found: Found, template: RecordTemplate, chunk: Chunk) -> set[int]:
    """Rows with a control character inside a text, which JSON does not allow, or with an object of nothing
    but nulls, which is a value of its own."""
    fallback = set[int]()
    for slot in template.slots if chunk.has_controls else ():
        if slot.is_text:
            controls = pc.match_substring_regex(found[slot.leaf.column][1], _CONTROL)
            fallback.update(np.flatnonzero(_mask(controls)).tolist())
    for columns in template.all_null:
        nulls = [_mask(found[column][1].is_null()) for column in columns]
        fallback.update(np.flatnonzero(np.logical_and.reduce(nulls)).tolist())
    return fallback


def _mask(booleans: pa.Array) -> Any:
    return booleans.to_numpy(zero_copy_only=False)
