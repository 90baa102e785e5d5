"""Changes that were dead letters and are replayed: they count from where they were first read."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest

from ingest.changes.change import Cells, Change, Op
from ingest.commit.late_changes import Coming, came_later
from ingest.convert.change_columns import ChangeColumns
from ingest.convert.keyed_part import KeyedPart, KeyRules, Numbering, convert_changes
from ingest.convert.read_changes import LATE_TRUNCATE, ReadingTerms, Step, read_changes
from ingest.convert.step_keys import by_mode, deletes_alone
from ingest.decode.formats.registry import REPLAY
from ingest.decode.replay import Origin, origin_of, replay_headers
from ingest.keys.column_reader import ColumnReader
from ingest.keys.key_lookup import KeyRows
from ingest.model.source import Source
from ingest.model.trouble import RegistryUnavailableError
from ingest.route.buffer import TableBuffer
from ingest.write.writer import write_files
from lake.errors import Reason
from lake.log_schema import new_log_schema
from lake.marks import TopicPartition
from lake.settings import ChangeMode, ChangeSettings
from lake.storage import LocalStorage
from lake.tenant import TableId, TenantId

TABLE = TableId(TenantId("shop"), "orders")
CHANGES = ChangeSettings(format="debezium", key=("id",))
SOURCES = [Source("orders", "topic", 0, "auto", changes=CHANGES), Source("replay", "replays", 0, REPLAY)]
LIVE, REPLAYED = 0, 1


def _message(op: str, number: int, name: str) -> bytes:
    return orjson.dumps({"op": op, "after": {"id": number, "name": name}, "before": None})


def _origin(offset: int, changes: ChangeSettings | None = CHANGES) -> Any:
    return replay_headers(Origin("orders", "topic", 0, offset, None, "auto", "UTC", 1, changes), TABLE)


def _converted(buffer: TableBuffer) -> KeyedPart:
    read = read_changes(buffer, SOURCES, [0, 0], ReadingTerms(64))
    numbering = Numbering([TopicPartition(source.topic_id, source.partition) for source in SOURCES])
    columns = ChangeColumns(new_log_schema())
    return convert_changes(read, buffer, SOURCES, columns, KeyRules("upsert", ("id",), "offset"), numbering)


def test_a_replayed_change_stands_before_what_came_after_it() -> None:
    """In the same flush the later one wins, whichever topic was read first; the row of another key has the
    coordinates of the message that died."""
    buffer = TableBuffer(TABLE, 0.0)
    buffer.add(LIVE, 9, 1, None, (), _message("c", 1, "newer"))
    buffer.add(REPLAYED, 0, 1, None, _origin(5), _message("c", 1, "older"))
    buffer.add(REPLAYED, 1, 1, None, _origin(6), _message("c", 2, "late"))
    part = _converted(buffer)
    rows = part.rows.select(["id", "name", "_topic", "_offset"]).to_pylist()
    assert sorted(tuple(row.values()) for row in rows) == [
        ("1", "newer", "orders", 9),
        ("2", "late", "orders", 6),
    ]
    assert part.counts["replaced"] == 1
    assert set(part.steps.source.tolist()) == {LIVE}


def test_how_a_change_is_read_travels_with_it() -> None:
    """By the settings of its topic; without any it is no change, and a truncate comes too late."""
    origin, _ = origin_of(_origin(5)) or (None, ())
    assert origin is not None
    assert origin.changes == CHANGES
    buffer = TableBuffer(TABLE, 0.0)
    buffer.add(REPLAYED, 0, 1, None, _origin(5, None), _message("c", 1, "x"))
    buffer.add(REPLAYED, 1, 1, None, _origin(6), b'{"op":"t"}')
    part = _converted(buffer)
    reasons = [rejected.reason for _, rejected in part.rejected]
    assert reasons == [Reason.KEY_MISSING, LATE_TRUNCATE.reason]
    assert not part.truncated_at


def test_a_message_with_one_bad_key_does_nothing() -> None:
    """It is a dead letter, once; the step of its other key is none of the table's."""
    buffer = TableBuffer(TABLE, 0.0)
    moved = {"op": "u", "before": {"id": 1}, "after": {"id": 2}}
    buffer.add(LIVE, 0, 1, None, (), orjson.dumps(moved))
    columns = ChangeColumns(new_log_schema())
    read = read_changes(buffer, SOURCES, [0, 0], ReadingTerms(64))
    rules = KeyRules("upsert", ("number",), "offset")
    part = convert_changes(read, buffer, SOURCES, columns, rules, Numbering([TopicPartition("topic", 0)]))
    assert [(at, rejected.reason) for at, rejected in part.rejected] == [(0, Reason.KEY_UNUSABLE)]
    assert not len(part.steps)


def test_deletes_alone_are_what_their_topic_says() -> None:
    """Whichever of both has made the table: a topic of deletes only deletes, any other brings rows; where the
    first of a key stays nothing is deleted."""
    nothing = Cells({}, {}, {})
    change = Change(Op.INSERT, nothing, nothing)
    steps = [Step(0, nothing, nothing, change), Step(1, nothing, None, change)]  # a row, and a delete
    told = {}
    modes: tuple[ChangeMode, ...] = ("upsert", "delete_only", "first_wins")
    for table in modes:
        for own in modes[:2]:
            only = deletes_alone(table, ChangeSettings(mode=own))
            told[table, own] = by_mode(steps, table, [only] * 2)[0]
    assert told == {
        ("upsert", "upsert"): [0, 1],
        ("upsert", "delete_only"): [1],
        ("delete_only", "upsert"): [0, 1],
        ("delete_only", "delete_only"): [1],
        ("first_wins", "upsert"): [0],
        ("first_wins", "delete_only"): [],
    }


def test_a_row_of_a_later_change_is_known_by_its_coordinates(tmp_path: Path) -> None:
    """Of the same partition alone: others tell nothing of order."""
    storage, schema, now = LocalStorage(), new_log_schema(), datetime(2026, 3, 1, tzinfo=UTC)
    row = {"timestamp": now, "observed_timestamp": now, "_topic": "orders", "_topic_id": "topic", "_index": 0}
    places = [(0, 4), (0, 5), (0, 6), (1, 6)]
    rows = [row | {"_topic_partition": partition, "_offset": offset} for partition, offset in places]
    given = pa.Table.from_pylist(rows, pa.schema([schema.arrow.field(name) for name in rows[0]]))
    (file,) = write_files(storage, f"file://{tmp_path}", given, schema)
    found = KeyRows(np.arange(4), np.zeros(4, np.int64), np.arange(4))
    coming = Coming([TopicPartition("topic", 0)] * 4, np.full(4, 5))
    assert came_later(ColumnReader(storage), schema, found, [file.uri], coming).tolist() == [
        False,
        False,
        True,
        False,
    ]


def test_a_buffer_grows_while_somebody_looks_at_the_error_of_its_reading() -> None:
    """What waits for a registry gets more messages meanwhile."""

    def away(_: bytes) -> bytes:
        raise RegistryUnavailableError("nobody answers")

    buffer = TableBuffer(TABLE, 0.0)
    buffer.add(LIVE, 1, 1, b"{}", (), _message("c", 1, "a"))
    with pytest.raises(RegistryUnavailableError) as raised:
        read_changes(buffer, SOURCES, [0, 0], ReadingTerms(64, away))
    buffer.add(LIVE, 2, 1, b"{}", (), _message("c", 2, "b"))
    assert len(buffer) == 2
    assert "nobody answers" in str(raised.value)
