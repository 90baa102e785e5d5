"""Records as columns of text: what every decoder makes of them, and all that laying them out takes.

A value is text, or the JSON text of what is none: a number, true, false, an array, `{}`. Objects are taken
apart: their members are columns of their own.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.convert.bad_values import RowError

STRING = pa.string()
Mask = Any  # a numpy array of bool, one for each row


class Field(NamedTuple):
    """Where values of a column come from. `path`: a JSON Pointer (RFC 6901).

    `is_text`: whether they are text, not JSON text; by row where that differs. `unspellable`: rows with a
    text that UTF-8 cannot spell (a lone surrogate), which is given as JSON text with escapes.
    """

    path: str
    is_text: bool | Callable[[int], bool] = True
    unspellable: Collection[int] = ()


class Cell(NamedTuple):
    """A value of a record: its path, its text, and what `Field` says of it."""

    path: str
    text: str
    is_text: bool = True
    is_unspellable: bool = False


@dataclass(slots=True)
class Gathered:
    """Values that were met one after the other, of rows that ascend; most rows may have none. `of_json`,
    `unspellable`: rows whose value is no text, or such as UTF-8 cannot spell."""

    rows: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    of_json: set[int] = field(default_factory=set)
    unspellable: set[int] = field(default_factory=set)

    def put(self, row: int, cell: Cell) -> None:
        """Takes the value of the next row that has one."""
        self.rows.append(row)
        self.texts.append(cell.text)
        self.paths.append(cell.path)
        if not cell.is_text:
            self.of_json.add(row)
        if cell.is_unspellable:
            self.unspellable.add(row)

    def swap(self, row: int, cell: Cell) -> Cell:
        """Takes another value for a row that has one; returns that."""
        at = bisect_left(self.rows, row)
        before = Cell(self.paths[at], self.texts[at], row not in self.of_json, row in self.unspellable)
        self.texts[at], self.paths[at] = cell.text, cell.path
        for rows, is_one in ((self.of_json, not cell.is_text), (self.unspellable, cell.is_unspellable)):
            rows.discard(row)
            if is_one:
                rows.add(row)
        return before

    def path(self, row: int) -> str:
        return self.paths[bisect_left(self.rows, row)]

    @property
    def is_empty(self) -> bool:
        return not self.rows

    @property
    def first_path(self) -> str:
        """Where the first of the values comes from."""
        return self.paths[0]

    def is_text(self, row: int) -> bool:
        """Whether a row's value is text that UTF-8 can spell."""
        return row not in self.of_json and row not in self.unspellable

    def cells(self) -> Iterator[tuple[int, str]]:
        """The rows that have a value, each with it."""
        return zip(self.rows, self.texts, strict=True)

    def only(self, rows: Mask) -> "Gathered":
        """The values of some rows."""
        kept = [at for at, row in enumerate(self.rows) if rows[row]]
        return Gathered(
            [self.rows[at] for at in kept],
            [self.texts[at] for at in kept],
            [self.paths[at] for at in kept],
            self.of_json,
            self.unspellable,
        )

    def column(self, rows: int) -> "TextColumn":
        """The column of so many rows."""
        numbers = {path: number for number, path in enumerate(dict.fromkeys(self.paths))}
        fields = tuple(Field(path, self.is_text, self.unspellable) for path in numbers)
        which = np.array([numbers[path] for path in self.paths]) if len(numbers) > 1 else None
        texts = pa.array(self.texts, STRING)
        if len(self.rows) == rows:
            return TextColumn(texts, fields, which)
        places, absent = np.zeros(rows, np.int64), np.ones(rows, bool)
        places[self.rows], absent[self.rows] = np.arange(len(self.rows)), False
        texts = texts.take(pa.array(places, mask=absent))
        return TextColumn(texts, fields, None if which is None else which[places])


@dataclass(slots=True)
class TextColumn:
    """The values of a column, NULL where a record has none. `which`: by row the field that its value comes
    from (an integer array); None: all come from the first."""

    texts: pa.Array
    fields: tuple[Field, ...]
    which: Any = None

    def path(self, row: int) -> str:
        return self._field(row).path

    def _field(self, row: int) -> Field:
        return self.fields[0] if self.which is None else self.fields[self.which[row]]

    def is_text(self, row: int) -> bool:
        """Whether a row's value is text that UTF-8 can spell."""
        one = self._field(row)
        if row in one.unspellable:
            return False
        return one.is_text if isinstance(one.is_text, bool) else one.is_text(row)

    @property
    def unspellable(self) -> list[int]:
        """Rows whose value is text that UTF-8 cannot spell."""
        if self.which is None and not self.fields[0].unspellable:
            return []
        rows = set[int]().union(*[one.unspellable for one in self.fields])
        return [
            row for row in sorted(rows) if row in self._field(row).unspellable and self.texts[row].is_valid
        ]

    @property
    def is_empty(self) -> bool:
        return bool(self.texts.null_count == len(self.texts))

    @property
    def present(self) -> Mask:
        """The rows that have a value."""
        if not self.texts.null_count:
            return np.ones(len(self.texts), bool)
        return self.texts.is_valid().to_numpy(zero_copy_only=False)

    @property
    def first_path(self) -> str:
        """Where the first of the values comes from."""
        return self.fields[0].path if self.which is None else self.path(int(self.present.argmax()))

    def cells(self) -> Iterator[tuple[int, str]]:
        """The rows that have a value, each with it."""
        return zip(np.flatnonzero(self.present).tolist(), self.texts.drop_null().to_pylist(), strict=True)

    def only(self, rows: Mask) -> "TextColumn":
        """The values of some rows."""
        return self.with_texts(pc.if_else(pa.array(rows), self.texts, pa.NULL))

    def filled(self, other: "TextColumn", rows: Mask) -> "TextColumn":
        """With the values that another column has in some rows."""
        own = 0 if self.which is None else self.which
        others = len(self.fields) + (0 if other.which is None else other.which)
        texts = pc.if_else(pa.array(rows), other.texts, self.texts)
        return TextColumn(texts, self.fields + other.fields, np.where(rows, others, own))

    def with_texts(self, texts: pa.Array) -> "TextColumn":
        return TextColumn(texts, self.fields, self.which)


def merged(parts: Sequence[tuple[Field, pa.Array]]) -> TextColumn:
    """One column of the values of several fields, of which no row has more than one."""
    rows = len(parts[0][1])
    rows_of = [np.flatnonzero(texts.is_valid().to_numpy(zero_copy_only=False)) for _, texts in parts]
    every = np.concatenate(rows_of)
    places = np.full(rows, -1)
    places[every] = np.arange(len(every))
    of_values = np.repeat(np.arange(len(parts)), [len(some) for some in rows_of])
    values = pa.concat_arrays([texts.drop_null() for _, texts in parts])
    texts = values.take(pa.array(places, mask=places < 0))
    return TextColumn(texts, tuple(one for one, _ in parts), of_values[places])


class Twin(NamedTuple):
    """A value of a row for a column of which the row has one already, under the same key or another that
    makes the same name. `turn`: of its error among those of the row."""

    row: int
    turn: int
    name: str
    cell: Cell


@dataclass(frozen=True, slots=True)
class TextColumns:
    """So many records by column name, the columns in the order in which they were met.

    `errors`: what the columns cannot hold already. `twins`: in the order of the records, what wants a place
    that is taken, in a column that was gathered. `tells_time`: whether records of this kind could say their
    time; if so, that one does not is an error.
    """

    rows: int
    columns: dict[str, TextColumn | Gathered]
    errors: Sequence[RowError] = ()
    twins: Sequence[Twin] = ()
    tells_time: bool = True


@dataclass(slots=True)
class Decoded:
    """Records of a sequence as columns of text: at which positions of it they stand, ascending."""

    positions: Sequence[int]
    records: TextColumns
