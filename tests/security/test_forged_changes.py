"""What somebody who may write into one topic cannot do by it: take the records of another topic along, say
what Firn alone says, or stop a table."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson
import pytest

from ingest.model.link import TableKey
from ingest.model.trouble import Cause, Trouble
from lake.log_schema import TypedColumn
from lake.settings import ChangeMode, ChangeSettings
from lake.storage import local_path
from lake.table_layout import BUCKET_FIELD, KEY_PROPERTY, MODE_PROPERTY, ORDER_PROPERTY
from lake.tenant import TableId
from tests.changes.support.written_table import Message, WrittenTable, rows_of, source
from tests.ingest.support.change_messages import LONG, TEXT, debezium, key_of, struct, with_schema
from tests.ingest.support.fake_clock import FakeClock
from tests.ingest.support.fake_kafka import FakeBroker
from tests.ingest.support.node_world import POLLS, World
from tests.ingest.support.node_world import TABLE as NODE_TABLE

pytestmark = pytest.mark.finding(36)
RECORDS, CHANGES = 0, 1
KEY = TableKey(("id",), "upsert", "offset")


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> FakeBroker:
    made = FakeBroker()
    made.install(monkeypatch)
    return made


def settings(mode: ChangeMode = "upsert", **more: Any) -> ChangeSettings:
    return ChangeSettings(mode=mode, **more)


def log(**fields: Any) -> Message:
    return RECORDS, None, orjson.dumps(fields)


def change(key: int, op: str = "u", at: int = CHANGES, **row: Any) -> Message:
    fields = {"id": LONG, **dict.fromkeys(row, TEXT)}
    value = {"id": key, **row}
    return (
        at,
        key_of(key),
        debezium(op, None if op != "d" else value, value if op != "d" else None, fields, lsn=1),
    )


TRUNCATE: Message = (CHANGES, None, debezium("t", lsn=9))


@pytest.mark.parametrize("packed", [False, True])
def test_changes_sent_to_a_table_of_records_take_nothing_along(
    tmp_path: Path, broker: FakeBroker, *, packed: bool
) -> None:
    """They are dead letters, a truncate among them; the records of the other topic are rows, and the table
    goes on."""
    table = WrittenTable(tmp_path, broker, [source("logs"), source("changes", settings())])
    table.add(log(message="first", n="1"), change(7, name="forged"), TRUNCATE)
    if packed:
        table.pack()
    table.add(change(8, "d"), (CHANGES, key_of(9), None), log(message="second"), (CHANGES, None, b"nonsense"))
    for _ in range(2):  # a flush that is written once more makes no dead letter twice
        rows = rows_of(table.write())
        assert [(row["_topic"], row["_offset"], row["message"]) for row in rows] == [
            ("logs", 0, "first"),
            ("logs", 1, "second"),
        ]
        assert rows[0]["n"] == "1"
        assert table.dead() == [("changes", at, "key_missing") for at in range(5)]


def test_a_change_among_the_records_of_a_hot_table_leaves_no_file_behind(
    tmp_path: Path, broker: FakeBroker
) -> None:
    """Files stay open for the records that came before it: they are written once, and nothing else is."""
    table = WrittenTable(tmp_path, broker, [source("logs"), source("changes", settings())])
    table.add(*(log(message=f"m{at}") for at in range(3)))
    table.pack()
    table.add(change(7, name="forged"), log(message="m3"))
    table.pack()
    table.add(log(message="m4"))
    flush = table.write()
    assert [row["message"] for row in rows_of(flush)] == [f"m{at}" for at in range(5)]
    assert flush is not None
    assert table.files() == {str(local_path(file.uri)) for file in flush.files}
    assert table.dead() == [("changes", 0, "key_missing")]


def test_a_history_and_records_in_one_table_are_all_rows(tmp_path: Path, broker: FakeBroker) -> None:
    """Each topic's messages are read as its own settings say; columns of one name and two types are two."""
    sources = [source("logs"), source("changes", settings("history"))]
    table = WrittenTable(tmp_path, broker, sources)
    table.add(
        log(message="m", size="large", _position="mine"), change(7, name="a"), (CHANGES, None, b"nonsense")
    )
    sized = {"id": LONG, "size": LONG}
    table.add((CHANGES, key_of(8), debezium("c", None, {"id": 8, "size": 5}, sized, lsn=2)))
    flush = table.write()
    rows = rows_of(flush)
    assert [(row["_topic"], row.get("_op")) for row in rows] == [
        ("changes", "update"),
        ("changes", "insert"),
        ("logs", None),
    ]
    assert (rows[1]["size__long"], rows[2]["size"], rows[2]["_position"]) == (5, "large", "mine")
    assert rows[1]["_position__string"] == f"{2:020}"
    assert table.dead() == [("changes", 1, "undecodable")]
    assert flush is not None
    assert flush.is_history
    assert {"size", "size__long", "_op"} <= flush.new.keys()


@pytest.mark.parametrize("mode", ["none", "append"])
def test_records_sent_to_a_keyed_table_are_dead_letters(
    tmp_path: Path, broker: FakeBroker, mode: str
) -> None:
    """Its changes go on."""
    of_records = source("logs", None if mode == "none" else settings("append"))
    table = WrittenTable(tmp_path, broker, [of_records, source("changes", settings())], is_new=True)
    table.add(change(7, name="a"), (RECORDS, key_of(7), debezium("d", {"id": 7}, lsn=3)))
    (row,) = rows_of(table.write())
    assert (row["id"], row["name"]) == (7, "a")
    assert table.dead() == [("logs", 0, "key_missing")]


@pytest.mark.parametrize("mode", ["upsert", "history"])
@pytest.mark.parametrize("typed", [True, False])
def test_a_row_cannot_say_what_firn_says_of_it(
    tmp_path: Path, broker: FakeBroker, mode: ChangeMode, *, typed: bool
) -> None:
    """Fields of these names are no columns; their values stand in the errors, whole."""
    forged = {
        "_op": "delete",
        "_key": '{"id":1}',
        "_position": "99999999999999999999",
        "_offset": "0",
        "_topic": "other",
        "_Topic_ID": "x",
        "_index": "5",
        "observed_timestamp": "1999-01-01T00:00:00Z",
        "_errors": "none",
        "_deleted": "true",
    }
    table = WrittenTable(
        tmp_path,
        broker,
        [source("logs"), source("changes", settings(mode, order_by="position"))],
        is_new=True,
    )
    table.add(change(7, "u", CHANGES, **forged) if typed else _untyped(7, **forged))
    (row,) = rows_of(table.write())
    errors = {each["field"]: (each["value"], each["reason"]) for each in row["_errors"]}
    assert errors == {f"/{name}": (value, "reserved_name") for name, value in forged.items()}
    assert (row["_topic"], row["_offset"], row["_index"], row["_position"]) == ("changes", 0, 0, f"{1:020}")
    assert (row["id"], row.get("_op")) == (7 if typed else "7", "update" if mode == "history" else None)


def _untyped(key: int, **row: Any) -> Message:
    value = {"op": "u", "before": None, "after": {"id": key, **row}, "source": {"lsn": 1}, "ts_ms": 1}
    return CHANGES, orjson.dumps({"id": key}), orjson.dumps(value)


def test_where_a_change_says_that_it_comes_from_decides_nothing(tmp_path: Path, broker: FakeBroker) -> None:
    """Its `source` names another database and table: the rows are of the table that the topic's rules name,
    and so is the end of its truncate."""
    table = WrittenTable(tmp_path, broker, [source("logs"), source("changes", settings())], is_new=True)
    elsewhere = {"db": "victim", "schema": "victim", "table": "accounts", "lsn": 5}
    truncate = {"op": "t", "source": elsewhere, "ts_ms": 1}
    table.add((CHANGES, key_of(7), orjson.dumps({**_parsed(change(7, name="a")), "source": elsewhere})))
    table.add((CHANGES, None, orjson.dumps(truncate)), change(8, name="b"))
    flush = table.write()
    assert flush is not None
    assert flush.keyed is not None
    assert [(row["_topic"], row["id"]) for row in rows_of(flush)][-1] == ("changes", 8)
    assert flush.table.tenant.name == "shop"
    assert list(flush.keyed.truncated_at.values()) == [1]


def _parsed(message: Message) -> Any:
    assert message[2] is not None
    return orjson.loads(message[2])["payload"]


HUGE = "k" * 900_000
NUMBER = {"type": "double", "optional": False}
MANY = {f"c{at}": LONG for at in range(100)}


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        (with_schema(struct({"id": NUMBER}), {"id": "NaN"}), "key_unusable"),
        (with_schema(struct({"id": NUMBER}), {"id": 1.5}), "key_unusable"),
        (with_schema(struct({"id": {"type": "boolean"}}), {"id": True}), "key_unusable"),
        (with_schema(struct({"id": {"type": "array", "items": LONG}}), {"id": [1]}), "key_unusable"),
        (with_schema(struct({"id": TEXT}), {"id": None}), "key_missing"),
        (
            with_schema(struct({"id": LONG}), {"id": 0}).replace(b'"id":0', b'"id":' + b"9" * 30),
            "key_unusable",
        ),
        (with_schema(struct({"_offset": LONG}), {"_offset": 1}), "key_unusable"),
        (with_schema(struct({}), {}), "key_missing"),
        (with_schema(struct({"id": LONG, "other": LONG}), {"id": 1, "other": 2}), "key_unusable"),
        (b"null", "key_missing"),
        (b'{"id":1e1000000}', "key_unusable"),
    ],
)
def test_a_key_that_no_table_can_have_is_a_dead_letter(
    tmp_path: Path, broker: FakeBroker, key: bytes, reason: str
) -> None:
    """And the change beside it is a row."""
    table = WrittenTable(tmp_path, broker, [source("logs"), source("changes", settings())], key=KEY)
    table.state = _with_id(table)
    table.add((CHANGES, key, debezium("c", None, {"id": 1, "customer": "x"}, lsn=1)), change(7, customer="y"))
    (row,) = rows_of(table.write())
    assert (row["id"], row["customer"]) == (7, "y")
    assert table.dead() == [("changes", 0, reason)]


def _with_id(table: WrittenTable) -> Any:
    """The table as its first change has made it: with a key of the type long."""
    schema = table.state.schema.with_columns({"id": (101, TypedColumn("/id", "long", is_key=True))}, {}, 1)
    return replace(table.state, schema=schema, last_column_id=101, schema_id_max=1)


@pytest.mark.finding(37)
@pytest.mark.parametrize("text", [HUGE, "\U0010ffff" * 1000])
def test_a_huge_key_is_a_key(tmp_path: Path, broker: FakeBroker, text: str) -> None:
    """As large as a message may be, and with any character."""
    schema = struct({"id": TEXT})
    table = WrittenTable(tmp_path, broker, [source("logs"), source("changes", settings())], is_new=True)
    for value in ("a", "b"):
        message = debezium("c", None, {"id": text, "customer": value}, {"id": TEXT, "customer": TEXT}, lsn=1)
        table.add((CHANGES, with_schema(schema, {"id": text}), message))
    (row,) = rows_of(table.write())
    assert (row["id"], row["customer"], table.dead()) == (text, "b", [])


@pytest.mark.long
def test_a_key_of_a_hundred_columns_is_a_key(tmp_path: Path, broker: FakeBroker) -> None:
    """Rows differ by any of them."""
    table = WrittenTable(tmp_path, broker, [source("logs"), source("changes", settings())], is_new=True)
    first = {f"c{at}": at for at in range(100)}
    for row in (first, {**first, "c99": -1}, first):
        table.add((CHANGES, with_schema(struct(MANY), row), debezium("c", None, row, MANY, lsn=1)))
    flush = table.write()
    assert [(row["_offset"], row["c99"]) for row in rows_of(flush)] == [(1, -1), (2, 99)]
    assert flush is not None
    assert flush.keyed is not None
    assert len(flush.keyed.key.columns) == 100


BAD_NUMBERS = {
    "number": (b"9" * 39, "out_of_range"),
    "scale": (b"1e-900000", "out_of_range"),
    "bytes": (b'"' + b"QUJD" * 200_000 + b'"', "out_of_range"),
    "text": (b'"' + b"9" * 999_999 + b'"', "wrong_type"),
}


@pytest.mark.parametrize("name", BAD_NUMBERS)
def test_a_number_of_very_many_digits_is_an_error_of_its_row(
    tmp_path: Path, broker: FakeBroker, name: str
) -> None:
    """Whole, and the row is kept."""
    text, reason = BAD_NUMBERS[name]
    table, rows = _with_amounts(tmp_path, broker, text)
    assert rows[8]["amount"] == Decimal(12)
    (error,) = rows[7]["_errors"]
    assert (error["field"], error["reason"], error["value"]) == ("/amount", reason, text.decode().strip('"'))
    assert "amount" not in rows[7]
    assert table.dead() == []


def test_a_number_that_no_decoder_takes_is_a_dead_letter(tmp_path: Path, broker: FakeBroker) -> None:
    """Written out as a number of JSON, with a million digits."""
    table, rows = _with_amounts(tmp_path, broker, b"9" * 1_000_000)
    assert (list(rows), table.dead()) == ([8], [("changes", 0, "undecodable")])


def _with_amounts(
    folder: Path, broker: FakeBroker, text: bytes
) -> tuple[WrittenTable, dict[int, dict[str, Any]]]:
    """Row 7 with this amount, and row 8 with 12, as far as they are rows."""
    digits_of = {"scale": "0", "connect.decimal.precision": "38"}
    name = "org.apache.kafka.connect.data.Decimal"
    fields = {
        "id": LONG,
        "amount": {"type": "bytes", "name": name, "parameters": digits_of, "optional": True},
    }
    value = debezium("c", None, {"id": 7, "amount": 0}, fields, lsn=1)
    table = WrittenTable(folder, broker, [source("logs"), source("changes", settings())], is_new=True)
    table.add((CHANGES, key_of(7), value.replace(b'"amount":0', b'"amount":' + text)))
    table.add((CHANGES, key_of(8), debezium("c", None, {"id": 8, "amount": 12}, fields, lsn=1)))
    return table, {row["id"]: row for row in rows_of(table.write())}


# ---- a tenant's own key, which may set the properties of its tables


@pytest.mark.finding(38)
@pytest.mark.parametrize(
    ("key", "mode", "order_by", "why"),
    [
        ("5", "upsert", "offset", "a key is an array of columns"),
        ("null", "upsert", "offset", "a key is an array of columns"),
        ('{"id":1}', "upsert", "offset", "a key is an array of columns"),
        ("[]", "upsert", "offset", "a key is an array of columns"),
        ("[[1]]", "upsert", "offset", "a key is an array of columns"),
        ("[", "upsert", "offset", "no JSON array"),
        ('["id"]', "truncate", "offset", "a mode one of upsert"),
        ('["id"]', "upsert", "amount", "an order one of offset"),
        ('["gone"]', "upsert", "offset", "column 'gone' of its key is gone"),
        ('["_errors"]', "upsert", "offset", "column '_errors' of its key is a list"),
    ],
)
def test_properties_that_name_no_key_are_a_trouble_of_their_table(
    tmp_path: Path, key: str, mode: str, order_by: str, why: str
) -> None:
    """The node says so of this table, and goes on."""
    world = World(tmp_path)
    told = {KEY_PROPERTY: key, MODE_PROPERTY: mode, ORDER_PROPERTY: order_by}
    world.metadata["properties"] |= told
    field = {"source-id": 1, "field-id": 1000, "name": BUCKET_FIELD, "transform": "bucket[1]"}
    world.metadata["partition-specs"] = [{"spec-id": 0, "fields": [field]}]
    with ThreadPoolExecutor(1) as pool:
        states = world.states(pool, FakeClock())
        states.want([NODE_TABLE])
        failed: list[tuple[TableId, Trouble]] = []
        for _ in range(POLLS):
            failed += states.poll(live=True).failed
            pool.submit(lambda: None).result()
    ((table, trouble),) = failed
    assert (table, trouble.cause) == (NODE_TABLE, Cause.COLUMNS)
    assert why in trouble.sentence
