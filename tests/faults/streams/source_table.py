"""One table of the source database: its columns as they change, random statements about its rows, and where
the lake has the values of each column."""

import random
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

LARGE_BYTES = 2_600  # beyond what PostgreSQL keeps beside a row, so it is not sent with an update of others
Key = tuple[object, ...]

# What a random value of a type is, as SQL.
VALUES: dict[str, Callable[[random.Random], str]] = {
    "integer": lambda chance: str(chance.randrange(-(1 << 31), 1 << 31)),
    "bigint": lambda chance: str(chance.randrange(-(1 << 63), 1 << 63)),
    "text": lambda chance: f"'t{chance.randrange(1 << 30)}'",
    "numeric(12,2)": lambda chance: f"{chance.randrange(-(10**10), 10**10) / 100:.2f}",
    "timestamptz": lambda chance: (
        f"to_timestamp({chance.randrange(2_000_000_000)}.{chance.randrange(10**6):06})"
    ),
    "timestamp": lambda chance: f"to_timestamp({chance.randrange(2_000_000_000)})::timestamp",
    "boolean": lambda chance: chance.choice(("true", "false")),
    "date": lambda chance: f"'1990-01-01'::date + {chance.randrange(20_000)}",
    "double precision": lambda chance: repr(chance.uniform(-1e9, 1e9)),
    "uuid": lambda chance: f"'{chance.getrandbits(128):032x}'",
    "bytea": lambda chance: f"'\\x{chance.getrandbits(64):016x}'",
}
ADDED = tuple(VALUES)


@dataclass
class SourceColumn:
    """A column. `stored`: the columns of the lake that may have its values, the newest first: a row has it in
    the one that was right when the row was last changed."""

    name: str
    kind: str
    stored: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.stored = self.stored or [self.name]


@dataclass
class SourceTable:
    """A table, and the keys that it has in the state of the transactions so far.

    `moves`: keys of rows change; `truncates`; `grows`: its schema changes. Its topic has `partitions`: one
    where it is emptied, since the message has no key, or where values that are not sent move to another key.
    """

    name: str
    partitions: int = 1
    has_large: bool = False
    moves: bool = False
    truncates: bool = False
    grows: bool = False
    keys_max: int = 300
    is_composite: bool = False
    columns: list[SourceColumn] = field(default_factory=list)
    keys: set[Key] = field(default_factory=set)
    number: int = 0

    def __post_init__(self) -> None:
        self.columns = [
            SourceColumn("note", "text"),
            SourceColumn("amount", "numeric(12,2)"),
            SourceColumn("size", "integer"),
            SourceColumn("at", "timestamptz"),
        ]

    @property
    def key_columns(self) -> tuple[str, ...]:
        return ("region", "id") if self.is_composite else ("id",)

    def create(self) -> str:
        """The statements that make it."""
        columns = [f"{column.name} {column.kind}" for column in self.columns]
        keys = ["region text", "id integer"] if self.is_composite else ["id integer"]
        large = ["body text"] if self.has_large else []
        made = f"CREATE TABLE {self.name} ({', '.join([*keys, *columns, *large])}, "
        made += f"PRIMARY KEY ({', '.join(self.key_columns)}));"
        if self.has_large:
            made += f"ALTER TABLE {self.name} ALTER COLUMN body SET STORAGE EXTERNAL;"
        return made

    # ---- statements

    def statement(self, chance: random.Random, locked: set[Key]) -> str:
        """A random change of its rows that leaves those with `locked` keys alone, and adds to them the keys
        that it touches."""
        draw = chance.random()
        there = sorted(self.keys - locked, key=str)
        if not there or draw < 0.35:
            return self._insert(chance, locked)
        key = chance.choice(there)
        if draw < 0.78 or (draw >= 0.9 and not self.moves):
            locked.add(key)
            return self._update(chance, key)
        if draw < 0.9:
            locked.add(key)
            self.keys.discard(key)
            return f"DELETE FROM {self.name} WHERE {self._is(key)};"
        return self._move(chance, key, locked)

    def _insert(self, chance: random.Random, locked: set[Key]) -> str:
        key = self._free_key(chance, locked)
        if key is None:
            return ""
        locked.add(key)
        self.keys.add(key)
        values = [*map(_literal, key), *(self._value(chance, column) for column in self.columns)]
        names = [*self.key_columns, *(column.name for column in self.columns)]
        if self.has_large:
            names.append("body")
            values.append(_large(chance))
        return f"INSERT INTO {self.name} ({', '.join(names)}) VALUES ({', '.join(values)});"

    def _update(self, chance: random.Random, key: Key) -> str:
        chosen = chance.sample(self.columns, min(len(self.columns), chance.randint(1, 3)))
        sets = [f"{column.name} = {self._value(chance, column)}" for column in chosen]
        if self.has_large and chance.random() < 0.3:
            sets.append(f"body = {_large(chance)}")
        return f"UPDATE {self.name} SET {', '.join(sets)} WHERE {self._is(key)};"

    def _move(self, chance: random.Random, key: Key, locked: set[Key]) -> str:
        new = self._free_key(chance, locked)
        locked.add(key)
        if new is None:
            return self._update(chance, key)
        locked.add(new)
        self.keys.discard(key)
        self.keys.add(new)
        sets = [f"{name} = {_literal(part)}" for name, part in zip(self.key_columns, new, strict=True)]
        if chance.random() < 0.5:
            column = chance.choice(self.columns)
            sets.append(f"{column.name} = {self._value(chance, column)}")
        return f"UPDATE {self.name} SET {', '.join(sets)} WHERE {self._is(key)};"

    def _free_key(self, chance: random.Random, locked: set[Key]) -> Key | None:
        for _ in range(20):
            number = chance.randrange(self.keys_max)
            key: Key = (f"r{number % 3}", number) if self.is_composite else (number,)
            if key not in self.keys and key not in locked:
                return key
        return None

    def _value(self, chance: random.Random, column: SourceColumn) -> str:
        return "NULL" if chance.random() < 0.15 else VALUES[column.kind](chance)

    def _is(self, key: Key) -> str:
        return " AND ".join(f"{n} = {_literal(part)}" for n, part in zip(self.key_columns, key, strict=True))

    # ---- its schema

    def alter(self, chance: random.Random) -> str:
        """A random change of its schema."""
        self.number += 1
        kinds = ("add", "add", "widen", "drop", "rename", "retype")
        what = chance.choice(kinds)
        of_int = [column for column in self.columns if column.kind == "integer"]
        if what == "widen" and of_int:
            column = chance.choice(of_int)
            column.kind = "bigint"
            return f"ALTER TABLE {self.name} ALTER COLUMN {column.name} TYPE bigint;"
        if what == "drop" and len(self.columns) > 2:
            column = self.columns.pop(chance.randrange(len(self.columns)))
            return f"ALTER TABLE {self.name} DROP COLUMN {column.name};"
        if what == "rename":
            column = chance.choice(self.columns)
            old, column.name = column.name, f"renamed_{self.number}"
            column.stored.insert(0, column.name)
            return f"ALTER TABLE {self.name} RENAME COLUMN {old} TO {column.name};"
        if what == "retype" and of_int:
            column = chance.choice(of_int)
            column.kind = "text"
            column.stored.insert(0, f"{column.name}__string")
            return f"ALTER TABLE {self.name} ALTER COLUMN {column.name} TYPE text USING {column.name}::text;"
        column = SourceColumn(f"added_{self.number}", chance.choice(ADDED))
        self.columns.append(column)
        return f"ALTER TABLE {self.name} ADD COLUMN {column.name} {column.kind};"

    def widen_key(self) -> str:
        """Its key becomes wider."""
        return f"ALTER TABLE {self.name} ALTER COLUMN id TYPE bigint;"

    # ---- rows as text, the same of both

    def source_query(self) -> str:
        """Reads its rows: the key's columns, then the others."""
        names = [*self.key_columns, *(column.name for column in self.columns)]
        return f"SELECT {', '.join([*names, *(['body'] if self.has_large else [])])} FROM {self.name}"

    def stored_query(self, table: str, there: Sequence[str]) -> str:
        """Reads the same of the lake's table, which has the columns `there`."""
        columns = [*self.key_columns]
        for column in self.columns:
            found = [name for name in column.stored if name in there]
            text = column.kind == "text"
            parts = [f'CAST("{name}" AS varchar)' if text else f'"{name}"' for name in found] or ["NULL"]
            columns.append(f"coalesce({', '.join(parts)})" if len(parts) > 1 else parts[0])
        return f"SELECT {', '.join([*columns, *(['body'] if self.has_large else [])])} FROM {table}"


def _literal(part: object) -> str:
    return f"'{part}'" if isinstance(part, str) else str(part)


def _large(chance: random.Random) -> str:
    return "'" + "".join(chance.choices(string.ascii_letters, k=LARGE_BYTES)) + "'"
