"""Records as columns of text: what every decoder makes of them, and all that laying them out takes.

A value is text, or the JSON text of what is none: a number, true, false, an array, `{}`. Objects are taken
apart: their members are columns of their own.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.convert.bad_values import RowError

STRING = pa.string()
NO_TEXT = pa.scalar(None, STRING)
Mask = Any  # a numpy array of bool, one for each row


class Field(NamedTuple):
    """Where values of a column come from. `path`: a JSON Pointer (RFC 6901).

    `is_text`: whether they are text, not JSON text; by row where that differs. `unspellable`: rows with a
    text that UTF-8 cannot spell (a lone surrogate), which is given as JSON text with escapes.
    """

    path: str
    is_text: bool | Callable[[int], bool] = True
    unspellable: frozenset[int] = frozenset()


@dataclass(slots=True)
class TextColumn:
    """The values of a column, NULL where a record has none. `which`: by row the field that its value comes
    from (an integer array); None: all come from the first."""

    texts: pa.Array
    fields: tuple[Field, ...]
    which: Any = None

    def field(self, row: int) -> Field:
        return self.fields[0] if self.which is None else self.fields[self.which[row]]

    def path(self, row: int) -> str:
        return self.field(row).path

    def is_text(self, row: int) -> bool:
        """Whether a row's value is text that UTF-8 can spell."""
        one = self.field(row)
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
            row for row in sorted(rows) if row in self.field(row).unspellable and self.texts[row].is_valid
        ]

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

    def only(self, rows: Mask) -> "TextColumn":
        """The values of some rows."""
        return self.with_texts(pc.if_else(pa.array(rows), self.texts, NO_TEXT))

    def filled(self, other: "TextColumn", rows: Mask) -> "TextColumn":
        """With the values that another column has in some rows."""
        own = 0 if self.which is None else self.which
        others = len(self.fields) + (0 if other.which is None else other.which)
        texts = pc.if_else(pa.array(rows), other.texts, self.texts)
        return TextColumn(texts, self.fields + other.fields, np.where(rows, others, own))

    def with_texts(self, texts: pa.Array) -> "TextColumn":
        return TextColumn(texts, self.fields, self.which)

    def filter(self, rows: Mask) -> "TextColumn":
        """Without the rows that are not among these."""
        before = np.flatnonzero(rows)
        fields = tuple(_numbered_anew(one, before) for one in self.fields)
        return TextColumn(
            self.texts.filter(pa.array(rows)), fields, None if self.which is None else self.which[rows]
        )


def _numbered_anew(one: Field, before: Any) -> Field:
    is_text = one.is_text
    if isinstance(is_text, bool) and not one.unspellable:
        return one
    by_row = is_text if isinstance(is_text, bool) else (lambda row: is_text(int(before[row])))
    after = {int(row): at for at, row in enumerate(before)}
    return Field(one.path, by_row, frozenset(after[row] for row in one.unspellable if row in after))


def merged(parts: Sequence[tuple[Field, pa.Array]]) -> tuple[TextColumn, Mask]:
    """One column of the values of several fields; and the rows that have more than one of them, of which any is
    in the column."""
    rows = len(parts[0][1])
    rows_of = [np.flatnonzero(texts.is_valid().to_numpy(zero_copy_only=False)) for _, texts in parts]
    every = np.concatenate(rows_of)
    places = np.full(rows, -1)
    places[every] = np.arange(len(every))
    of_values = np.repeat(np.arange(len(parts)), [len(some) for some in rows_of])
    values = pa.concat_arrays([texts.drop_null() for _, texts in parts])
    texts = values.take(pa.array(places, mask=places < 0))
    column = TextColumn(texts, tuple(one for one, _ in parts), of_values[places])
    return column, np.bincount(every, minlength=rows) > 1


class Twin(NamedTuple):
    """A value of a row for a column of which the row has one already, under the same key or another that
    makes the same name."""

    row: int
    turn: int  # of its error among those of the row
    name: str
    path: str
    text: str
    is_text: bool = True
    is_unspellable: bool = False

    @property
    def as_field(self) -> Field:
        return Field(self.path, self.is_text, frozenset((self.row,)) if self.is_unspellable else frozenset())


@dataclass(frozen=True, slots=True)
class TextColumns:
    """So many records by column name, the columns in the order in which they were met.

    `errors`: what the columns cannot hold already. `twins`: in the order of the records, what wants a place
    that is taken. `tells_time`: whether records of this kind could say their time; if so, that one does not
    is an error.
    """

    rows: int
    columns: dict[str, TextColumn]
    errors: Sequence[RowError] = ()
    twins: Sequence[Twin] = ()
    tells_time: bool = True

    def filter(self, rows: Mask) -> "TextColumns":
        """Without the records that are not among these."""
        after = {int(row): at for at, row in enumerate(np.flatnonzero(rows))}
        return TextColumns(
            len(after),
            {name: column.filter(rows) for name, column in self.columns.items()},
            [error._replace(row=after[error.row]) for error in self.errors if error.row in after],
            [twin._replace(row=after[twin.row]) for twin in self.twins if twin.row in after],
            self.tells_time,
        )


@dataclass(slots=True)
class Decoded:
    """Records of a sequence as columns of text: at which positions of it they stand."""

    positions: Sequence[int]
    records: TextColumns
