"""A table with a key and the history beside it, from one topic: what is routed where, and who makes dead
letters."""

from pathlib import Path
from typing import Any
from uuid import UUID

import orjson
import pytest
from confluent_kafka import Message
from pydantic import ValidationError

from ingest.changes.change import Cells
from ingest.convert.key_text import key_text
from ingest.route.routes import Routes
from lake.errors import Reason, Rejected
from lake.settings import ChangeSettings, IngestSettings, TopicSettings
from lake.tenant import TableId, TenantId
from tests.changes.support.written_table import WrittenTable, rows_of, source
from tests.ingest.support.change_messages import debezium, key_of
from tests.ingest.support.fake_kafka import FakeBroker
from ui.components.row_history import history_of

SHOP = TenantId("shop")
WITH_HISTORY = ChangeSettings(history=True)


def routes(changes: ChangeSettings) -> Routes:
    topic = TopicSettings(name="t", tenant=("const:shop",), stream=("header:stream",), changes=changes)
    return Routes(IngestSettings(topics=(topic,)))


def message(stream: str, offset: int) -> Message:
    headers = [("stream", stream.encode())]
    return Message(topic="t", partition=0, offset=offset, value=b"{}", headers=headers)


def test_a_message_goes_to_its_table_and_to_the_history_beside_it() -> None:
    """Each in the order of offsets, also where somebody names a history itself: that has none of its own."""
    messages = [message("orders", 0), message("orders_history", 1), message("orders", 2), message("carts", 3)]
    found = routes(WITH_HISTORY).sort("t", messages)
    assert {target: [each.offset() for each in some] for target, some in found.items()} == {
        TableId(SHOP, "orders"): [0, 2],
        TableId(SHOP, "orders_history"): [0, 1, 2],
        TableId(SHOP, "carts"): [3],
        TableId(SHOP, "carts_history"): [3],
    }
    assert set(routes(ChangeSettings()).sort("t", messages[:1])) == {TableId(SHOP, "orders")}


def test_a_table_that_is_read_anew_gets_its_messages_as_it_did_before() -> None:
    """As the drain of one that was moved back asks."""
    found = routes(WITH_HISTORY)
    tables = [TableId(SHOP, name) for name in ("orders", "orders_history", "carts", "carts_history")]
    assert [found.goes_to(message("orders", 0), table) for table in tables] == [True, True, False, False]


def test_a_stream_whose_history_can_have_no_name_is_refused() -> None:
    """Before either table has a row of it."""
    (target,) = routes(WITH_HISTORY).sort("t", [message("x" * 95, 0)])
    assert isinstance(target, Rejected)
    assert target.reason is Reason.STREAM_INVALID


@pytest.mark.parametrize("mode", ["append", "history"])
def test_only_beside_a_table_with_a_key_there_is_a_history(mode: Any) -> None:
    with pytest.raises(ValidationError, match="history = true"):
        ChangeSettings(mode=mode, history=True)


def test_a_history_keeps_every_change_and_leaves_dead_letters_to_its_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one topic, whose messages both have: a message that nobody can read is one dead letter."""
    broker = FakeBroker()
    broker.install(monkeypatch)
    sources = [source("changes", WITH_HISTORY)]
    messages = [
        (0, key_of(7), debezium("c", None, {"id": 7, "customer": "a"}, lsn=1)),
        (0, key_of(7), b"nonsense"),
        (0, key_of(7), debezium("u", None, {"id": 7, "customer": "b"}, lsn=2)),
        (0, key_of(7), debezium("d", {"id": 7, "customer": "b"}, lsn=3)),
    ]
    history = WrittenTable(tmp_path, broker, sources, is_new=True, stream="orders_history")
    history.add(*messages)
    rows = rows_of(history.write())
    assert [(row["_op"], row["_key"], row["customer"]) for row in rows] == [
        ("insert", '{"id":7}', "a"),
        ("update", '{"id":7}', "b"),
        ("delete", '{"id":7}', "b"),
    ]
    assert history.dead() == []
    table = WrittenTable(tmp_path, broker, sources, is_new=True)
    table.add(*messages)
    flush = table.write()
    assert flush is not None
    assert (flush.keyed is not None, flush.is_history) == (True, False)
    assert table.dead() == [("changes", 1, "undecodable")]


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (None, "7", "7"),
        ("long", 7, 7),
        ("uuid", UUID(int=5).bytes, str(UUID(int=5))),
        ("date", 20_000, "2024-10-04"),
        ("time", 3_600_000_000, "01:00:00"),
        ("timestamp", 1_500_000, "1970-01-01T00:00:01.500000"),
        ("timestamptz", 1_000_000, "1970-01-01T00:00:01Z"),
        ("binary", b"\xff\0", "/wA="),
    ],
)
def test_a_key_is_spelled_as_searches_show_its_values(kind: Any, value: Any, text: Any) -> None:
    """So that from a row its history is found."""
    told = key_text(Cells({"id": value}, {} if kind is None else {"id": kind}, {}))
    assert told == orjson.dumps({"id": text}).decode()
    streams = {
        "orders": {"mode": "upsert", "key": ["id"]},
        "orders_history": {"mode": "history", "key": []},
        "logs": {"mode": "append", "key": []},
    }
    row = {"fields": {"id": text, "customer": "a"}}
    found = history_of("shop", "orders", row, streams)
    assert found is not None
    assert told is not None
    assert (found.stream, found.query) == ("orders_history", '_key:"' + told.replace('"', '\\"') + '"')
    assert history_of("shop", "orders_history", {"fields": {"_key": told}}, streams) == found
    assert history_of("shop", "logs", row, streams) is None
    assert history_of("shop", "orders", {"fields": {}}, streams) is None
    assert history_of("shop", "orders", row, {"orders": streams["orders"]}) is None
