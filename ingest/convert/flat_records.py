"""Decoded JSON objects as columns of text: the members of nested objects under the names of their paths."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from ingest.convert.bad_values import RowError, bad_value
from ingest.convert.text_columns import STRING, Field, TextColumn, TextColumns, Twin
from ingest.decode.column_name import column_name, is_usable, pointer
from ingest.decode.decoder import Json, Pairs, is_text, json_text
from lake.log_schema import RESERVED_NAMES, ValueReason


@dataclass(slots=True)
class _Gathered:
    """The values of a column: by its rows, which ascend, the texts and the numbers of their fields."""

    rows: list[int] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    which: list[int] = field(default_factory=list)
    fields: dict[str, int] = field(default_factory=dict)
    of_json: set[int] = field(default_factory=set)
    unspellable: set[int] = field(default_factory=set)

    def column(self, rows: int) -> TextColumn:
        of_json, unspellable = self.of_json, frozenset(self.unspellable)
        by_row: Any = (len(of_json) < len(self.rows)) if len(of_json) in (0, len(self.rows)) else None
        told = (lambda row: row not in of_json) if by_row is None else by_row
        fields = tuple(Field(path, told, unspellable) for path in self.fields)
        texts = pa.array(self.texts, STRING)
        several = len(fields) > 1
        if len(self.rows) == rows:
            return TextColumn(texts, fields, np.array(self.which) if several else None)
        places, absent = np.zeros(rows, np.int64), np.ones(rows, bool)
        places[self.rows], absent[self.rows] = np.arange(len(self.rows)), False
        which = np.array(self.which)[places] if several else None
        return TextColumn(texts.take(pa.array(places, mask=absent)), fields, which)


class FlatRecords:
    """Objects on their way to columns. Each name belongs to the first value that wants it; `Twin`s are told
    of the others."""

    def __init__(self) -> None:
        self._rows = self._turn = 0
        self._gathered: dict[str, _Gathered] = {}
        self._errors: list[RowError] = []
        self._twins: list[Twin] = []

    def __len__(self) -> int:
        return self._rows

    def add(self, record: Pairs) -> None:
        """Takes one object; null is no value."""
        above = [(iter(record), "", "")]
        while above:
            members, prefix, path = above[-1]
            for key, value in members:
                if isinstance(value, Pairs):
                    above.append((iter(value), column_name(prefix, key), pointer(path, key)))
                    break
                if value is not None:
                    self.place(column_name(prefix, key), pointer(path, key), value)
            else:
                above.pop()
        self.end_record()

    def end_record(self) -> None:
        self._rows += 1
        self._turn = 0

    def place(self, name: str, path: str, value: str) -> None:
        """Takes one value of the record that has not ended yet."""
        row, turn, of_json = self._rows, self._turn, isinstance(value, Json)
        self._turn += 1
        spellable = value.isascii() or is_text(value)
        text = value if spellable else json_text(value)
        known = self._gathered.get(name)
        if known is None:
            if not is_usable(name):
                reason = ValueReason.RESERVED_NAME if name in RESERVED_NAMES else ValueReason.UNUSABLE_NAME
                self._errors.append(RowError(row, turn, bad_value(path, text, reason)))
                return
            known = self._gathered[name] = _Gathered()
        elif known.rows[-1] == row:
            self._twins.append(Twin(row, turn, name, path, text, not of_json, not spellable))
            return
        known.rows.append(row)
        known.texts.append(text)
        known.which.append(known.fields.setdefault(path, len(known.fields)))
        if of_json:
            known.of_json.add(row)
        if not spellable:
            known.unspellable.add(row)

    def columns(self) -> TextColumns:
        """All records so far."""
        columns = {name: gathered.column(self._rows) for name, gathered in self._gathered.items()}
        return TextColumns(self._rows, columns, self._errors, self._twins)
