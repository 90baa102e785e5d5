"""Random changes of rows, cut into flushes and parts anywhere, sent again from anywhere: the table has what
its source has."""

import os
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

from lake.settings import ChangeOrder, ChangeSettings
from tests.changes.support.shop import KEY_SCHEMA, ROW_SCHEMA
from tests.ingest.support.applied_changes import AppliedChanges, Message

SEEDS = int(os.environ.get("FIRN_APPLIED_CHANGES", "4"))
UNSENT = "__debezium_unavailable_value"
KEYS = 6


class Source:
    """A table of a database, and for each change of it the messages that a connector sends."""

    def __init__(self, chance: random.Random) -> None:
        self.rows: dict[int, dict[str, Any]] = {}
        self.changes: list[list[Message]] = []
        self._chance, self._position, self._values = chance, 100, 0

    def change(self) -> None:
        """One random change."""
        draw, there = self._chance.random(), sorted(self.rows)
        free = sorted(set(range(KEYS)) - set(there))
        if free and (not there or draw < 0.3):
            self.insert(self._chance.choice(free))
        elif draw < 0.6:
            self.update(self._chance.choice(there), is_sent=self._chance.random() < 0.3)
        elif draw < 0.75:
            self.delete(self._chance.choice(there))
        elif draw < 0.97 and free:
            is_sent = self._chance.random() < 0.2
            self.move(self._chance.choice(there), self._chance.choice(free), is_sent=is_sent)
        else:
            self.truncate()

    def insert(self, key: int) -> None:
        self._position += 10
        self.rows[key] = {"id": key, "name": self._fresh(), "amount": self._position}
        self.changes.append([self._put("c", key, self.rows[key])])

    def update(self, key: int, *, is_sent: bool = False) -> None:
        """A new amount; the name is a new one, too, or it is not sent."""
        self._position += 10
        row = self.rows[key] = {**self.rows[key], "amount": self._position}
        if is_sent:
            row["name"] = self._fresh()
        self.changes.append([self._put("u", key, row if is_sent else {**row, "name": UNSENT})])

    def delete(self, key: int) -> None:
        self._position += 10
        del self.rows[key]
        self.changes.append(self._deleted(key))

    def truncate(self) -> None:
        self._position += 10
        self.rows.clear()
        self.changes.append([Message(None, self._value("t", None))])

    def move(self, old: int, new: int, *, is_sent: bool = False) -> None:
        """The row has another key; its name is not sent, unless `is_sent`."""
        self._position += 10
        row = self.rows[new] = {**self.rows.pop(old), "id": new}
        headers = (("__debezium.newkey", orjson.dumps({"id": new})),)
        sent = row if is_sent else {**row, "name": UNSENT}
        put = self._put("c", new, sent, (("__debezium.oldkey", orjson.dumps({"id": old})),))
        self.changes.append([*self._deleted(old, headers), put])

    def _fresh(self) -> str:
        self._values += 1
        return f"large {self._values}"

    def _deleted(self, key: int, headers: Any = ()) -> list[Message]:
        return [Message(_key(key), self._value("d", None), headers), Message(_key(key), None, headers)]

    def _put(self, op: str, key: int, row: dict[str, Any], headers: Any = ()) -> Message:
        return Message(_key(key), self._value(op, row), headers)

    def _value(self, op: str, after: dict[str, Any] | None) -> bytes:
        schema = {"type": "struct", "fields": [{**ROW_SCHEMA, "field": part} for part in ("before", "after")]}
        source = {"lsn": self._position, "ts_ms": 1_700_000_000_000 + self._position}
        return orjson.dumps(
            {"schema": schema, "payload": {"op": op, "before": None, "after": after, "source": source}}
        )


def _key(key: int) -> bytes:
    return orjson.dumps({"schema": KEY_SCHEMA, "payload": {"id": key}})


def sent(changes: Sequence[Sequence[Message]], chance: random.Random, *, again: bool) -> list[Message]:
    """The messages of all changes as they come to Kafka; with `again` the connector ends sometimes, also in
    the middle of a change, and begins at an earlier one."""
    messages: list[Message] = []
    at = 0
    while at < len(changes):
        if again and chance.random() < 0.08:
            messages += changes[at][: chance.randrange(len(changes[at]))]
            at = max(0, at - chance.randrange(12))
            continue
        messages += changes[at]
        at += 1
    return messages


def cut(messages: Sequence[Message], chance: random.Random) -> list[list[list[Message]]]:
    """Flushes, each of some parts."""
    flushes: list[list[list[Message]]] = []
    at = 0
    while at < len(messages):
        parts = []
        for _ in range(chance.randint(1, 2)):
            size = chance.randint(1, 9)
            parts.append(list(messages[at : at + size]))
            at += size
        flushes.append([part for part in parts if part])
    return flushes


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("order_by", ["offset", "position", "time"])
@pytest.mark.long
def test_the_table_has_what_its_source_has(seed: int, order_by: ChangeOrder, tmp_path: Path) -> None:
    """Rows that move to other keys without all of their values among them; no state has a key twice. Where
    changes have an order of their own, they may be sent again."""
    chance = random.Random(seed)
    source = Source(chance)
    for _ in range(60):
        source.change()
    table = AppliedChanges(tmp_path, ChangeSettings(order_by=order_by))
    for parts in cut(sent(source.changes, chance, again=order_by != "offset"), chance):
        table.flush(parts)
        twice = [key for key, count in Counter(row["id"] for row in table.rows()).items() if count > 1]
        assert not twice
        assert not table.wrong_indexes()
    assert table.rejected == []
    assert stored(table) == source.rows


def stored(table: AppliedChanges) -> dict[int, dict[str, Any]]:
    return {row["id"]: {name: row.get(name) for name in ("id", "name", "amount")} for row in table.rows()}


def test_the_keys_of_new_files_are_hashed_once(tmp_path: Path) -> None:
    """Not again from the files, but for the first one, whose table got its columns with it."""
    source, table = Source(random.Random(1)), AppliedChanges(tmp_path, ChangeSettings())
    for key in range(4):
        source.insert(key)
        table.flush([source.changes[-1]])
    source.delete(2)
    table.flush([source.changes[-1]])
    assert table.store.counts.made == 1
    assert stored(table) == source.rows


@pytest.fixture(params=["offset", "position", "time"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> AppliedChanges:
    return AppliedChanges(tmp_path, ChangeSettings(order_by=request.param))


def messages(changes: Sequence[Sequence[Message]]) -> list[Message]:
    return [message for change in changes for message in change]


def test_a_row_that_moved_has_its_values_though_its_old_key_has_another_row(table: AppliedChanges) -> None:
    """All in one part of a flush, and the row is changed once more after that."""
    source = Source(random.Random(1))
    source.insert(1)
    table.flush([messages(source.changes)])
    source.move(1, 2)
    source.insert(1)
    source.update(2)
    table.flush([messages(source.changes[1:])])
    assert stored(table) == source.rows


def test_a_table_that_is_emptied_before_it_is_there_is_made_later(table: AppliedChanges) -> None:
    source = Source(random.Random(1))
    source.insert(1)
    source.truncate()
    table.flush([messages(source.changes)])
    assert not table.state.exists
    source.insert(2)
    table.flush([messages(source.changes)])
    assert stored(table) == source.rows


def test_a_part_without_a_change_of_a_key_does_not_hinder_others(table: AppliedChanges) -> None:
    source = Source(random.Random(1))
    source.insert(1)
    table.flush([messages(source.changes)])
    source.truncate()
    source.insert(2)
    table.flush([source.changes[1], source.changes[2]])
    assert stored(table) == source.rows


def test_a_move_that_is_sent_again_takes_nothing_from_the_old_key_s_new_row(tmp_path: Path) -> None:
    """It comes in the next part of a flush that has all of it."""
    source, table = Source(random.Random(1)), AppliedChanges(tmp_path, ChangeSettings(order_by="position"))
    source.insert(1)
    table.flush([messages(source.changes)])
    source.move(1, 2)
    source.insert(1)
    table.flush([messages(source.changes[1:]), messages(source.changes[1:2])])
    assert stored(table) == source.rows


def test_moves_that_are_sent_again_are_followed_to_what_the_table_has(tmp_path: Path) -> None:
    """The table has the row at the second of three keys, and nothing of the first."""
    source, table = Source(random.Random(1)), AppliedChanges(tmp_path, ChangeSettings(order_by="position"))
    source.insert(1)
    source.move(1, 2)
    source.update(2)
    table.flush([messages(source.changes)])
    source.move(2, 3)
    table.flush([messages(source.changes[1:])])
    assert stored(table) == source.rows


def test_a_move_that_is_sent_again_has_the_values_that_it_has_already(tmp_path: Path) -> None:
    """Nothing is left of the old key by then."""
    source, table = Source(random.Random(1)), AppliedChanges(tmp_path, ChangeSettings(order_by="position"))
    source.insert(1)
    source.move(1, 2)
    table.flush([messages(source.changes)])
    table.flush([messages(source.changes[1:])])
    assert stored(table) == source.rows
