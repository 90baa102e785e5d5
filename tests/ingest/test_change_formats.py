"""Flattened Debezium, Maxwell and JSON under a key; what all formats of changes have in common."""

from typing import get_args

import orjson
import pytest

from ingest.changes.change import NO_CELLS, Notice, Op, PassedOver, ReadOptions
from ingest.changes.registry import CHANGE_FORMATS
from lake.errors import Reason
from lake.log_schema import ValueReason
from lake.settings import ChangeFormat
from tests.ingest.support.change_messages import (
    LONG,
    TEXT,
    key_of,
    read,
    read_change,
    rejection,
    struct,
    with_schema,
)

FORMATS: tuple[ChangeFormat, ...] = get_args(ChangeFormat)
FLAT: ChangeFormat = "flattened_debezium"
MAXWELL: ChangeFormat = "maxwell"
KEYED: ChangeFormat = "keyed_json"


# ---- all


def test_settings_name_the_formats_of_the_registry() -> None:
    """What a topic's settings can say, and nothing else, has a reader."""
    assert tuple(CHANGE_FORMATS) == FORMATS


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("value", [b"\xff", b"no JSON", b"[1]", b'{"a":', b'"text"', b"7"])
def test_what_is_no_message_is_rejected_by_every_format(form: ChangeFormat, value: bytes) -> None:
    """Bytes that are no JSON, or no object, are never a change."""
    assert rejection(form, b'{"id":1}', value).reason in (Reason.UNDECODABLE, Reason.NOT_OF_SCHEMA)


@pytest.mark.parametrize("form", FORMATS)
def test_an_empty_message_without_a_key_is_rejected_by_every_format(form: ChangeFormat) -> None:
    """Nobody can say what it deletes."""
    for key in (None, b"", b"null", b"{}"):
        assert rejection(form, key, None).reason in (Reason.KEY_MISSING, Reason.KEY_UNUSABLE)


# ---- flattened Debezium

FLAT_FIELDS = {"id": LONG, "customer": TEXT, "__op": TEXT, "__deleted": TEXT, "__lsn": LONG}


def _flat(**members: object) -> bytes:
    return with_schema(struct(FLAT_FIELDS), {"id": 7, "customer": "a", **members})


@pytest.mark.parametrize(
    ("members", "op"),
    [
        ({"__op": "c", "__deleted": "false"}, Op.INSERT),
        ({"__op": "u"}, Op.UPDATE),
        ({"__op": "r"}, Op.SNAPSHOT),
        ({"__op": "d", "__deleted": "true"}, Op.DELETE),
        ({"__deleted": "true"}, Op.DELETE),
        ({"__deleted": "false"}, Op.UPDATE),
        ({}, Op.UPDATE),
    ],
)
def test_a_flattened_row_says_what_happened(members: dict[str, str], op: Op) -> None:
    """`__op` and `__deleted` are no columns; what else was asked for stays one."""
    typed = read_change(FLAT, key_of(7), _flat(__lsn=9, **members))
    assert typed.op is op
    assert typed.row.values == {"id": 7, "customer": "a", "__lsn": 9}
    assert typed.row.types == {"id": "long", "customer": "string", "__lsn": "long"}
    assert (typed.key.values, typed.position) == ({"id": 7}, (9,))
    bare = read_change(FLAT, b'{"id":7}', orjson.dumps({"id": 7, "__source_ts_ms": 5, **members}))
    assert (bare.op, bare.row.values) == (op, {"id": "7", "__source_ts_ms": "5"})
    assert bare.time_us == 5_000


def test_a_flattened_row_may_have_moved() -> None:
    """The transformation keeps the headers, and sends a tombstone for a delete."""
    change = read_change(FLAT, key_of(8), _flat(id=8, __op="c"), [("__debezium.oldkey", b'{"id":7}')])
    assert change.old_key is not None
    assert change.old_key.values == {"id": 7}
    gone = read_change(FLAT, key_of(7), None)
    assert (gone.op, gone.is_tombstone, gone.repeats_delete) == (Op.DELETE, True, False)


@pytest.mark.parametrize("op", ["x", "t", "m", 5, ["c"]])
def test_a_flattened_row_with_an_unknown_operation_is_rejected(op: object) -> None:
    """Neither guessed nor passed over."""
    value = orjson.dumps({"id": 7, "__op": op})
    assert rejection(FLAT, b'{"id":7}', value).reason is Reason.OP_UNKNOWN


def test_a_flattened_row_has_unavailable_values() -> None:
    """As in the envelope."""
    change = read_change(FLAT, key_of(7), _flat(customer="__debezium_unavailable_value", __op="u"))
    assert change.unavailable == {"customer"}
    assert change.row.values["id"] == 7


# ---- Maxwell

MAXWELL_KEY = b'{"database":"shop","table":"orders","pk.id":7,"pk.Line":"b"}'
MAXWELL_ROW = {"id": 7, "Line": "b", "amount": 1.5, "note": None}


def _maxwell(kind: str, data: object = MAXWELL_ROW, **members: object) -> bytes:
    head = {"database": "shop", "table": "orders", "type": kind, "ts": 1_477_053_217, "xid": 23_396}
    return orjson.dumps({**head, "data": data, **members})


@pytest.mark.parametrize(
    ("kind", "op"),
    [
        ("insert", Op.INSERT),
        ("update", Op.UPDATE),
        ("delete", Op.DELETE),
        ("bootstrap-insert", Op.SNAPSHOT),
    ],
)
def test_maxwell_names_the_operation(kind: str, op: Op) -> None:
    """Row, key, position and time of its messages; values keep their spelling."""
    value = _maxwell(kind, position="master.000006:800911", xoffset=2)
    change = read_change(MAXWELL, MAXWELL_KEY, value)
    assert change.op is op
    assert change.row.values == {"id": "7", "line": "b", "amount": "1.5", "note": None}
    assert (change.row.types, change.row.paths["line"]) == ({}, "/Line")
    assert change.key.values == {"id": "7", "line": "b"}
    assert (change.position, change.time_us) == ((6, 800_911, 2), 1_477_053_217_000_000)
    assert change.old_key is None


@pytest.mark.parametrize("key", [MAXWELL_KEY, b'["shop","orders",[{"id":7},{"Line":"b"}]]'])
def test_maxwell_moves_a_row_in_one_update(key: bytes) -> None:
    """Both forms of its key name the columns; `old` has what the changed ones were."""
    change = read_change(MAXWELL, key, _maxwell("update", old={"Line": "a", "amount": 1}))
    assert change.old_key is not None
    assert change.old_key.values == {"id": "7", "line": "a"}
    assert change.key.values == {"id": "7", "line": "b"}
    assert read_change(MAXWELL, key, _maxwell("update", old={"amount": 1})).old_key is None


def test_maxwell_may_name_the_key_in_the_message() -> None:
    """`primary_key_columns`, or the settings; then no message key is needed."""
    named = _maxwell("update", old={"id": 6}, primary_key_columns=["id"])
    change = read_change(MAXWELL, None, named)
    assert change.old_key is not None
    assert (change.key.values, change.old_key.values) == ({"id": "7"}, {"id": "6"})
    change = read_change(MAXWELL, MAXWELL_KEY, _maxwell("insert"), (), ReadOptions(("Line",)))
    assert change.key.values == {"line": "b"}


@pytest.mark.parametrize(
    ("kind", "notice"),
    [
        ("table-create", Notice.SCHEMA_CHANGE),
        ("table-alter", Notice.SCHEMA_CHANGE),
        ("table-drop", Notice.SCHEMA_CHANGE),
        ("database-create", Notice.SCHEMA_CHANGE),
        ("bootstrap-start", Notice.SNAPSHOT_MARK),
        ("bootstrap-complete", Notice.SNAPSHOT_MARK),
        ("heartbeat", Notice.HEARTBEAT),
    ],
)
def test_maxwell_has_messages_that_change_no_row(kind: str, notice: Notice) -> None:
    """They are passed over by name."""
    assert read(MAXWELL, None, _maxwell(kind, {})) == PassedOver(notice)


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (None, _maxwell("insert"), Reason.KEY_MISSING),
        (b'{"database":"shop","table":"orders","_uuid":"x"}', _maxwell("insert"), Reason.KEY_MISSING),
        (b"[1]", _maxwell("insert"), Reason.KEY_UNUSABLE),
        (b'["shop","orders",[7]]', _maxwell("insert"), Reason.KEY_UNUSABLE),
        (b"orders", _maxwell("insert"), Reason.KEY_UNUSABLE),
        (MAXWELL_KEY, _maxwell("insert", {"id": 7}), Reason.KEY_MISSING),
        (MAXWELL_KEY, _maxwell("insert", {"id": None, "Line": "b"}), Reason.KEY_MISSING),
        (MAXWELL_KEY, _maxwell("insert", 7), Reason.UNDECODABLE),
        (MAXWELL_KEY, _maxwell("merge"), Reason.OP_UNKNOWN),
        (MAXWELL_KEY, b"{}", Reason.OP_UNKNOWN),
        (MAXWELL_KEY, _maxwell("insert", ts="now"), Reason.NOT_OF_SCHEMA),
    ],
)
def test_every_broken_message_of_maxwell_has_its_reason(
    key: bytes | None, value: bytes, reason: Reason
) -> None:
    """As for Debezium's."""
    assert rejection(MAXWELL, key, value).reason is reason


def test_maxwell_tombstones_delete_their_key() -> None:
    """An empty message under its key."""
    change = read_change(MAXWELL, MAXWELL_KEY, None)
    assert (change.op, change.key.values) == (Op.DELETE, {"id": "7", "line": "b"})


# ---- JSON under a key


@pytest.mark.parametrize(
    ("key", "columns"),
    [
        (b"7", {"_key": "7"}),
        (b'"a"', {"_key": "a"}),
        (b"order 7", {"_key": "order 7"}),
        (b'7,"b":1', {"_key": '7,"b":1'}),
        (b"true", {"_key": "true"}),
        (b"[1, 2]", {"_key": "[1, 2]"}),
        (b'{"id":7,"region":"eu"}', {"id": "7", "region": "eu"}),
        (b'{"at":{"id":7}}', {"at_id": "7"}),
    ],
)
def test_any_key_of_json_or_text_is_a_key(key: bytes, columns: dict[str, str]) -> None:
    """An object's members are columns; one value is the column `_key`, text as it is."""
    change = read_change(KEYED, key, b'{"id":7,"a":1.50,"b":{"c":"x","d":{}},"e":null}')
    assert (change.op, change.key.values) == (Op.UPDATE, columns)
    assert change.row.values == {"id": "7", "a": "1.50", "b_c": "x", "b_d": "{}", "e": None}
    gone = read_change(KEYED, key, None)
    assert (gone.op, gone.key.values, gone.row) == (Op.DELETE, columns, NO_CELLS)
    assert gone.is_tombstone
    assert not gone.repeats_delete


def test_one_value_is_the_column_that_the_settings_name() -> None:
    """A field that stands in no row gets its name from the setting; a tombstone finds the same key."""
    options = ReadOptions(("id",))
    of_row = read_change(KEYED, b"ignored", b'{"id":7}', (), options)
    assert (of_row.key.values, of_row.key.paths) == ({"id": "7"}, {"id": "/id"})
    of_key = read_change(KEYED, b"7", b'{"a":1}', (), options)
    gone = read_change(KEYED, b"7", None, (), options)
    assert of_row.key == of_key.key == gone.key
    two = ReadOptions(("id", "region"))
    assert rejection(KEYED, b"7", b'{"id":7}', two).reason is Reason.KEY_MISSING


def test_json_with_a_schema_part_is_typed() -> None:
    """As the JSON converter of Kafka Connect writes any row."""
    row = with_schema(struct({"id": LONG, "customer": TEXT}), {"id": 7, "customer": "a"})
    change = read_change(KEYED, with_schema({"type": "int32", "optional": False}, 7), row)
    assert (change.row.values, change.row.types["id"]) == ({"id": 7, "customer": "a"}, "long")
    assert (change.key.values, change.key.types) == ({"_key": 7}, {"_key": "int"})


def test_a_name_that_stands_twice_has_its_first_value() -> None:
    """The second one goes to the errors, with the reason that log tables give."""
    change = read_change(KEYED, b"7", b'{"a":1,"a":2,"A":3,"_offset":4,"_topic":null}')
    assert change.row.values == {"a": "1"}
    assert change.errors == (
        ("/a", "2", ValueReason.DUPLICATE_KEY),
        ("/A", "3", ValueReason.NAME_COLLISION),
        ("/_offset", "4", ValueReason.RESERVED_NAME),
    )


def test_a_row_that_is_no_object_is_rejected() -> None:
    """A compacted topic of single values is no table of rows."""
    assert rejection(KEYED, b"7", with_schema(LONG, 5)).reason is Reason.NOT_OF_SCHEMA
    assert rejection(KEYED, b"7", b"5").reason is Reason.UNDECODABLE
