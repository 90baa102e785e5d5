"""What the benchmark of change streams feeds: messages of Debezium's connector for PostgreSQL with their
schema part, about orders of several tables, and the rows that they lead to."""

import base64
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

# As a connector writes them: nine columns, most with a type that JSON lacks.
_COLUMNS: list[dict[str, Any]] = [
    {"type": "int64", "optional": False, "field": "id"},
    {"type": "string", "optional": True, "field": "customer"},
    {"type": "string", "optional": True, "field": "status"},
    {
        "type": "bytes",
        "optional": True,
        "name": "org.apache.kafka.connect.data.Decimal",
        "version": 1,
        "parameters": {"scale": "2", "connect.decimal.precision": "12"},
        "field": "amount",
    },
    {"type": "int32", "optional": True, "field": "quantity"},
    {"type": "boolean", "optional": True, "field": "is_paid"},
    {
        "type": "int64",
        "optional": True,
        "name": "io.debezium.time.MicroTimestamp",
        "version": 1,
        "field": "placed",
    },
    {
        "type": "string",
        "optional": True,
        "name": "io.debezium.time.ZonedTimestamp",
        "version": 1,
        "field": "changed",
    },
    {"type": "string", "optional": True, "field": "note"},
]
_DELETE_SHARE = 0.1
_STATUSES = ("placed", "paid", "packed", "shipped")
_START_US = 1_795_425_466_000_000
# What is no key of a deleted row.
_UNSENT = "".join(f',"{column["field"]}":null' for column in _COLUMNS[1:]) + "}"


class Message(NamedTuple):
    """One message. `is_change`: it is no tombstone."""

    table: int
    number: int  # of the key
    key: bytes
    value: bytes | None

    @property
    def is_change(self) -> bool:
        return self.value is not None


@dataclass
class Truth:
    """What the rows of one table sum up to: `amounts` in cents by key."""

    amounts: dict[int, int] = field(default_factory=dict)

    @property
    def sums(self) -> tuple[int, int, int]:
        """Rows, the sum of their keys, the sum of their amounts in cents."""
        return len(self.amounts), sum(self.amounts), sum(self.amounts.values())


def messages(changes: int, keys: int, truths: list[Truth], seed: int) -> Iterator[Message]:
    """Changes of keys drawn evenly, so that nearly half are inserts and nearly half updates; a tenth of those
    of a row that is there are deletes, each with its tombstone. `truths`, one for each table, follow."""
    draw = random.Random(seed)
    uniform, bits = draw.random, draw.getrandbits
    tables = len(truths)
    for at in range(changes):
        number = int(uniform() * keys)
        table = number % tables
        amounts = truths[table].amounts
        key = _message(_KEY_SCHEMA, b'{"id":%d}' % number)
        if number in amounts and uniform() < _DELETE_SHARE:
            del amounts[number]
            before = f'{{"id":{number}{_UNSENT}'
            yield Message(table, number, key, _message(_SCHEMA, _payload("d", before, "null", at)))
            yield Message(table, number, key, None)
            continue
        op, cents = ("u" if number in amounts else "c"), bits(24)
        amounts[number] = cents
        row = (
            f'{{"id":{number},"customer":"customer-{number % 5_003:06}","status":"{_STATUSES[at & 3]}",'
            f'"amount":"{_decimal(cents)}","quantity":{at % 17},"is_paid":{"true" if at & 3 else "false"},'
            f'"placed":{_START_US + number * 1_000},"changed":"{_zoned(at)}","note":"note {bits(96):024x}"}}'
        )
        yield Message(table, number, key, _message(_SCHEMA, _payload(op, "null", row, at)))


def _payload(op: str, before: str, after: str, at: int) -> bytes:
    """Debezium's envelope; each change is a transaction of its own, 100 microseconds after the last."""
    us, lsn = _START_US + at * 100, 22_191_824 + at * 200
    return (
        f'{{"before":{before},"after":{after},"source":{{"version":"3.3.1.Final","connector":"postgresql",'
        f'"name":"shop","ts_ms":{us // 1000},"snapshot":"false","db":"postgres",'
        f'"sequence":"[\\"{lsn - 64}\\",\\"{lsn}\\"]","ts_us":{us},"ts_ns":{us * 1000},"schema":"public",'
        f'"table":"orders","txId":{700 + at},"lsn":{lsn},"xmin":null}},"transaction":null,"op":"{op}",'
        f'"ts_ms":{us // 1000 + 200},"ts_us":{us + 200_000},"ts_ns":{us * 1000 + 200_000_000}}}'
    ).encode()


def _decimal(cents: int) -> str:
    return base64.b64encode(cents.to_bytes(4, "big")).decode()


def _zoned(at: int) -> str:
    seconds, us = divmod(at * 100, 1_000_000)
    return f"2026-11-23T{9 + seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{us:06}Z"


def _message(schema: bytes, payload: bytes) -> bytes:
    return b'{"schema":' + schema + b',"payload":' + payload + b"}"


def _struct(name: str, fields: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {"type": "struct", "fields": fields, "optional": False, "name": name, **more}


def _fields(*kinds: tuple[str, str]) -> list[dict[str, Any]]:
    return [
        {"type": kind, "optional": True, "field": name} for kind, names in kinds for name in names.split()
    ]


_ROW = _struct("shop.public.orders.Value", _COLUMNS, optional=True)
_KEY_SCHEMA = orjson.dumps(_struct("shop.public.orders.Key", _COLUMNS[:1]))
_SCHEMA = orjson.dumps(
    _struct(
        "shop.public.orders.Envelope",
        [
            {**_ROW, "field": "before"},
            {**_ROW, "field": "after"},
            _struct(
                "io.debezium.connector.postgresql.Source",
                _fields(
                    ("string", "version connector name snapshot db sequence schema table"),
                    ("int64", "ts_ms ts_us ts_ns txId lsn xmin"),
                ),
                version=1,
                field="source",
            ),
            _struct(
                "event.block",
                _fields(("string", "id"), ("int64", "total_order data_collection_order")),
                optional=True,
                version=1,
                field="transaction",
            ),
            *_fields(("string", "op"), ("int64", "ts_ms ts_us ts_ns")),
        ],
        version=2,
    )
)
