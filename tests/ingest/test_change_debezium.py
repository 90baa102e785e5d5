"""Debezium's envelope, with and without its schema part: operations, keys, positions, what is no change."""

import orjson
import pytest

from ingest.changes.change import NO_CELLS, Notice, Op, PassedOver, ReadOptions
from lake.errors import Reason
from lake.log_schema import ValueReason
from tests.ingest.support.change_messages import (
    LONG,
    ORDER_FIELDS,
    TEXT,
    debezium,
    envelope,
    envelope_schema,
    key_of,
    read,
    read_change,
    rejection,
    struct,
    with_schema,
)

ROW = {"id": 7, "customer": "Zoë"}


@pytest.mark.parametrize(
    ("letter", "op"),
    [("c", Op.INSERT), ("u", Op.UPDATE), ("r", Op.SNAPSHOT)],
)
def test_the_row_after_a_change_is_typed_by_the_schema_part(letter: str, op: Op) -> None:
    """Values, types, paths, key, position and time of an insert, an update and a row of a snapshot."""
    change = read_change("debezium", key_of(7), debezium(letter, None, ROW, lsn=22_540_600, ts_us=5))
    assert change.op is op
    assert change.row.values == ROW
    assert change.row.types == {"id": "long", "customer": "string"}
    assert change.row.paths == {"id": "/id", "customer": "/customer"}
    assert (change.key.values, change.key.types) == ({"id": 7}, {"id": "long"})
    assert (change.position, change.time_us, change.errors) == ((22_540_600,), 5, ())
    assert not change.is_tombstone


def test_without_a_schema_part_values_keep_their_spelling() -> None:
    """Nothing tells the scale of a decimal, so a row has no types and loses no digit."""
    value = b'{"before":null,"after":{"id":7,"amount":1.10,"tags":[1, 2]},"source":{"lsn":1},"op":"c"}'
    change = read_change("debezium", b'{"id":7}', value)
    assert change.row.values == {"id": "7", "amount": "1.10", "tags": "[1, 2]"}
    assert (change.row.types, change.key.types) == ({}, {})
    assert change.key.values == {"id": "7"}


def test_a_schema_part_is_told_from_a_row_that_has_columns_of_those_names() -> None:
    """`schema` and `payload` are names that a table may use."""
    value = orjson.dumps(envelope("c", None, {"id": 1, "schema": "a", "payload": "b"}))
    change = read_change("debezium", b'{"id":1}', value)
    assert change.row.values == {"id": "1", "schema": "a", "payload": "b"}


def test_members_may_stand_in_any_order_and_with_blanks() -> None:
    """What another program has written again is read the same."""
    message = orjson.loads(debezium("c", None, ROW))
    turned = {"payload": message["payload"], "schema": message["schema"]}
    for text in (orjson.dumps(turned), orjson.dumps(message, option=orjson.OPT_INDENT_2)):
        change = read_change("debezium", key_of(7), text)
        assert (change.row.values, change.row.types["id"]) == (ROW, "long")


def test_each_message_is_read_by_its_own_schema() -> None:
    """Whatever schema the message before it had: another type, a longer one, none. What begins as the last
    one did, but is not whole, is refused."""
    other = {"id": LONG, "customer": LONG}
    messages = [
        (debezium("c", None, ROW), "string", "Zoë"),
        (debezium("c", None, {"id": 7, "customer": 8}, other), "long", 8),
        (debezium("c", None, ROW, {**ORDER_FIELDS, "note": TEXT}), "string", "Zoë"),
        (orjson.dumps(envelope("c", None, ROW)), None, "Zoë"),
    ]
    for first in messages:
        for message, kind, value in (first, *messages):
            change = read_change("debezium", key_of(7), message)
            assert (change.row.types.get("customer"), change.row.values["customer"]) == (kind, value)
        assert rejection("debezium", key_of(7), first[0][:-1]).reason is Reason.UNDECODABLE
        assert rejection("debezium", key_of(7), first[0] + b"}").reason is Reason.UNDECODABLE


def test_a_delete_has_the_row_before_it() -> None:
    """The row of a delete is what it was, as far as the source tells."""
    change = read_change("debezium", key_of(7), debezium("d", ROW, None))
    assert (change.op, change.row.values, change.key.values) == (Op.DELETE, ROW, {"id": 7})
    bare = read_change("debezium", key_of(7), debezium("d", None, None))
    assert (bare.op, bare.row, bare.key.values) == (Op.DELETE, NO_CELLS, {"id": 7})


@pytest.mark.parametrize(
    "value", [None, b"", with_schema(struct({}), None), b'{"schema":null,"payload":null}']
)
def test_a_tombstone_repeats_the_delete_before_it(value: bytes | None) -> None:
    """An empty message deletes its key, with or without the converter's wrapping around nothing."""
    change = read_change("debezium", key_of(7), value)
    assert (change.op, change.key.values, change.row) == (Op.DELETE, {"id": 7}, NO_CELLS)
    assert change.is_tombstone
    assert change.repeats_delete
    assert (change.position, change.time_us) == (None, None)


def test_a_changed_key_is_a_delete_and_an_insert_that_know_of_each_other() -> None:
    """Headers name the other key; they come without a schema part and have the types of the message key."""
    moved_to = [("__debezium.newkey", b'{"id":8}'), ("other", b"x")]
    gone = read_change("debezium", key_of(7), debezium("d", ROW, None), moved_to)
    tombstone = read_change("debezium", key_of(7), None, moved_to)
    for change in (gone, tombstone):
        assert change.new_key is not None
        assert (change.new_key.values, change.new_key.types) == ({"id": 8}, {"id": "long"})
        assert change.old_key is None
    come = read_change("debezium", key_of(8), debezium("c", None, ROW), [("__debezium.oldkey", key_of(7))])
    assert come.old_key is not None
    assert come.old_key.values == {"id": 7}
    assert come.new_key is None


def test_a_header_that_is_no_key_is_a_reason() -> None:
    """To pass it over would lose where a row has moved from."""
    found = read("debezium", key_of(8), debezium("c", None, ROW), [("__debezium.oldkey", b'{"id":"x"}')])
    assert getattr(found, "reason", None) is Reason.KEY_UNUSABLE


def test_a_truncate_has_no_key() -> None:
    """All rows of the table are gone, and it needs no key for that."""
    change = read_change("debezium", None, debezium("t", None, None, lsn=9))
    assert (change.op, change.key, change.row, change.position) == (Op.TRUNCATE, NO_CELLS, NO_CELLS, (9,))


@pytest.mark.parametrize(
    ("value", "notice"),
    [
        ({"source": {}, "databaseName": "shop", "ddl": "ALTER TABLE a", "tableChanges": []}, "schema_change"),
        ({"source": {}, "ddl": None, "tableChanges": [{"type": "ALTER"}]}, "schema_change"),
        ({"status": "BEGIN", "id": "571", "ts_ms": 1}, "transaction"),
        ({"status": "END", "id": "571", "event_count": 2, "ts_ms": 1}, "transaction"),
        ({"ts_ms": 1}, "heartbeat"),
        ({"op": "m", "message": {"prefix": "a", "content": "AA=="}}, "logical_message"),
    ],
)
def test_messages_that_change_no_row_are_passed_over_by_name(value: object, notice: str) -> None:
    """Schema changes, transactions, heartbeats and logical messages, with and without a schema part."""
    for text in (orjson.dumps(value), with_schema(struct({}), value)):
        assert read("debezium", b'{"a":1}', text) == PassedOver(Notice(notice))


def test_unavailable_values_are_no_values() -> None:
    """A placeholder is a column without a value; a real value of the same bytes in a key stays one."""
    fields = {"id": TEXT, "doc": TEXT, "raw": {"type": "bytes", "optional": True}}
    placeholder = "__debezium_unavailable_value"
    row = {"id": placeholder, "doc": placeholder, "raw": "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="}
    key = with_schema(struct({"id": TEXT}), {"id": placeholder})
    change = read_change("debezium", key, debezium("u", None, row, fields))
    assert change.unavailable == {"id", "doc", "raw"}
    assert change.row.values == {}
    assert change.key.values == {"id": placeholder}
    bare = read_change(
        "debezium", b'{"id":1}', orjson.dumps(envelope("u", None, {"id": 1, "doc": placeholder}))
    )
    assert bare.unavailable == {"doc"}
    assert bare.row.values == {"id": "1"}


def test_the_placeholder_is_a_setting() -> None:
    """A connector may send another one, and what is then the usual one is a value."""
    options = ReadOptions(placeholder="(gone)")
    row = {"id": 1, "customer": "(gone)"}
    assert read_change("debezium", key_of(1), debezium("u", None, row), (), options).unavailable == {
        "customer"
    }
    usual = {"id": 1, "customer": "__debezium_unavailable_value"}
    assert read_change("debezium", key_of(1), debezium("u", None, usual), (), options).row.values == usual


def test_the_settings_may_name_the_key() -> None:
    """Fields of the row are the key, in the order of the setting, whatever the message key is."""
    options = ReadOptions(key_fields=("customer", "id"))
    change = read_change("debezium", None, debezium("c", None, ROW), (), options)
    assert list(change.key.values.items()) == [("customer", "Zoë"), ("id", 7)]
    assert change.key.types == {"customer": "string", "id": "long"}
    again = read_change("debezium", None, debezium("c", None, ROW), (), options)
    assert again.key.types is change.key.types


def test_an_update_that_changes_a_named_key_says_which_row_has_to_go() -> None:
    """The source sends one update where the key is not its own; the row before it names the old key."""
    options = ReadOptions(key_fields=("customer",))
    moved = debezium("u", {"id": 7, "customer": "Zoe"}, ROW)
    change = read_change("debezium", key_of(7), moved, (), options)
    assert change.old_key is not None
    assert (change.old_key.values, change.key.values) == ({"customer": "Zoe"}, {"customer": "Zoë"})
    stayed = read_change("debezium", key_of(7), debezium("u", ROW, ROW), (), options)
    assert stayed.old_key is None


def test_a_tombstone_that_does_not_tell_the_named_key_is_passed_over() -> None:
    """The delete before it told it. Where the message key tells it, the tombstone is a delete."""
    assert read("debezium", key_of(7), None, (), ReadOptions(("customer",))) == PassedOver(Notice.TOMBSTONE)
    assert read_change("debezium", key_of(7), None, (), ReadOptions(("id",))).key.values == {"id": 7}
    assert rejection("debezium", None, None, ReadOptions(("customer",))).reason is Reason.KEY_MISSING


def test_a_key_may_be_named_timestamp() -> None:
    """The column `timestamp` is the time of the change, so that field's column has another name."""
    fields = {"timestamp": LONG, "customer": TEXT}
    value = debezium("c", None, {"timestamp": 5, "customer": "a"}, fields)
    change = read_change("debezium", None, value, (), ReadOptions(("timestamp",)))
    assert (change.key.values, change.key.types) == ({"timestamp__long": 5}, {"timestamp__long": "long"})
    single = read_change(
        "debezium", with_schema(LONG, 5), debezium("d", None, None, fields), (), ReadOptions(("timestamp",))
    )
    assert single.key == change.key


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (None, debezium("c", None, ROW), Reason.KEY_MISSING),
        (b"", debezium("c", None, ROW), Reason.KEY_MISSING),
        (None, None, Reason.KEY_MISSING),
        (with_schema(struct({"id": LONG}), None), debezium("c", None, ROW), Reason.KEY_MISSING),
        (with_schema(struct({"id": LONG}), {"id": None}), debezium("c", None, ROW), Reason.KEY_MISSING),
        (with_schema(struct({"id": LONG}), {}), debezium("c", None, ROW), Reason.KEY_MISSING),
        (with_schema(struct({}), {}), debezium("c", None, ROW), Reason.KEY_MISSING),
        (b"{}", debezium("c", None, ROW), Reason.KEY_MISSING),
        (b"null", debezium("c", None, ROW), Reason.KEY_MISSING),
        (with_schema(struct({"id": LONG}), {"id": "x"}), debezium("c", None, ROW), Reason.KEY_UNUSABLE),
        (with_schema(LONG, "x"), debezium("c", None, ROW), Reason.KEY_UNUSABLE),
        (with_schema(struct({"id": LONG}), {"key": 1}), debezium("c", None, ROW), Reason.KEY_UNUSABLE),
        (b'{"id":', debezium("c", None, ROW), Reason.KEY_UNUSABLE),
        (b"\xff", debezium("c", None, ROW), Reason.KEY_UNUSABLE),
        (key_of(7), debezium("x", None, ROW), Reason.OP_UNKNOWN),
        (key_of(7), orjson.dumps({"before": None, "after": ROW}), Reason.OP_UNKNOWN),
        (key_of(7), b"{}", Reason.OP_UNKNOWN),
        (key_of(7), debezium("c", None, None), Reason.NOT_OF_SCHEMA),
        (key_of(7), debezium("c", None, {"id": 7, "more": 1}), Reason.NOT_OF_SCHEMA),
        (key_of(7), debezium("c", None, [7]), Reason.NOT_OF_SCHEMA),
        (key_of(7), with_schema(envelope_schema({}), [1]), Reason.NOT_OF_SCHEMA),
        (key_of(7), orjson.dumps(envelope("c", None, ROW) | {"op": 5}), Reason.NOT_OF_SCHEMA),
        (key_of(7), with_schema({"type": "int64"}, envelope("c", None, ROW)), Reason.NOT_OF_SCHEMA),
        (key_of(7), debezium("c", None, ROW)[:-2], Reason.UNDECODABLE),
        (key_of(7), b'{"op":"c","after":{"id":7}', Reason.UNDECODABLE),
        (key_of(7), b"no JSON", Reason.UNDECODABLE),
        (key_of(7), b"\xff\xfe", Reason.UNDECODABLE),
        (key_of(7), b'{"op":"c","after":' + b'{"a":' * 99 + b"1" + b"}" * 99 + b"}", Reason.TOO_DEEP),
    ],
)
def test_every_broken_change_has_its_reason(key: bytes | None, value: bytes | None, reason: Reason) -> None:
    """Nothing that is no change is taken for one, and the reason says whose fault it is."""
    found = rejection("debezium", key, value)
    assert found.reason is reason, found
    assert found.detail


def test_a_value_that_is_not_of_its_type_is_an_error_of_the_row() -> None:
    """The row is kept, with NULL for that value, which stands whole in the errors."""
    change = read_change("debezium", key_of(7), debezium("c", None, {"id": 7, "customer": [1.50]}))
    assert change.row.values == {"id": 7, "customer": None}
    assert change.errors == (("/customer", "[1.5]", ValueReason.WRONG_TYPE),)


def test_columns_that_no_table_can_have_go_to_the_errors() -> None:
    """Reserved names, and two fields that fold to one column."""
    fields = {"id": LONG, "_op": TEXT, "Name": TEXT, "name": TEXT}
    row = {"id": 7, "_op": "x", "Name": "first", "name": "second"}
    change = read_change("debezium", key_of(7), debezium("c", None, row, fields))
    assert change.row.values == {"id": 7, "name": "first"}
    assert set(change.errors) == {
        ("/_op", "x", ValueReason.RESERVED_NAME),
        ("/name", "second", ValueReason.NAME_COLLISION),
    }
    empty = read_change("debezium", key_of(7), debezium("c", None, {"id": 7}, fields))
    assert (empty.row.values, empty.errors) == ({"id": 7, "name": None}, ())


def test_what_strict_readers_refuse_is_read() -> None:
    """NaN, and half of a surrogate pair, which no column can hold."""
    value = b'{"op":"c","after":{"id":7,"a":NaN,"b":"\\ud800"},"source":{"lsn":3}}'
    change = read_change("debezium", b'{"id":7}', value)
    assert change.position == (3,)
    assert change.row.values["a"] == "NaN"
    fields = {"id": LONG, "b": TEXT}
    typed = with_schema(envelope_schema(fields), envelope("c", None, {"id": 7, "b": "~"}))
    change = read_change("debezium", key_of(7), typed.replace(b'"~"', b'"\\ud800"'))
    assert change.row.values == {"id": 7, "b": None}
    assert [(bad.field, bad.reason) for bad in change.errors] == [("/b", ValueReason.INVALID_TEXT)]


@pytest.mark.parametrize(
    ("source", "position", "time_us"),
    [
        ({"lsn": 5, "ts_ms": 2}, (5,), 2_000),
        ({"lsn": "5", "ts_ns": 2_999}, (5,), 2),
        ({"file": "mysql-bin.000012", "pos": 4, "row": 3, "ts_ms": 0}, (12, 4, 3), 0),
        ({"file": "mysql-bin.000012", "pos": 4}, (12, 4, 0), None),
        ({"file": "nonsense", "pos": 4}, None, None),
        ({"commit_lsn": "0000:01:0a", "change_lsn": "0000:01:02", "event_serial_no": 2}, (266, 258, 2), None),
        ({"scn": "12345678901234567890"}, (12_345_678_901_234_567_890,), None),
        ({"lsn": -1, "ts_ms": "yesterday"}, None, None),
        ({}, None, None),
    ],
)
def test_the_position_is_read_from_what_the_database_has(
    source: dict[str, object], position: tuple[int, ...] | None, time_us: int | None
) -> None:
    """PostgreSQL, MySQL, SQL Server and Oracle say it in ways of their own; nonsense is no position."""
    change = read_change("debezium", b'{"id":7}', orjson.dumps(envelope("c", None, ROW, **source)))
    assert (change.position, change.time_us) == (position, time_us)
