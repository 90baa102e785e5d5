"""Decoded JSON objects as columns of text: the members of nested objects under the names of their paths."""

from ingest.convert.bad_values import RowError, bad_value
from ingest.convert.text_columns import Cell, Gathered, TextColumns, Twin
from ingest.decode.column_name import column_name, is_usable, pointer
from ingest.decode.decoder import Json, Pairs, is_text, json_text
from lake.log_schema import RESERVED_NAMES, ValueReason


class FlatRecords:
    """Objects on their way to columns. Each name belongs to the first value that wants it; `Twin`s are told
    of the others."""

    def __init__(self) -> None:
        self._rows = self._turn = 0
        self._gathered: dict[str, Gathered] = {}
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
        row, turn = self._rows, self._turn
        self._turn += 1
        spellable = value.isascii() or is_text(value)
        text = value if spellable else json_text(value)
        known = self._gathered.get(name)
        if known is None:
            if not is_usable(name):
                reason = ValueReason.RESERVED_NAME if name in RESERVED_NAMES else ValueReason.UNUSABLE_NAME
                self._errors.append(RowError(row, turn, bad_value(path, text, reason)))
                return
            known = self._gathered[name] = Gathered()
        cell = Cell(path, text, not isinstance(value, Json), not spellable)
        if known.rows and known.rows[-1] == row:
            self._twins.append(Twin(row, turn, name, cell))
        else:
            known.put(row, cell)

    def columns(self) -> TextColumns:
        """All records so far."""
        return TextColumns(self._rows, dict(self._gathered), self._errors, self._twins)
