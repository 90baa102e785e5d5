"""The orders of a made-up shop: its table of a database, and what Debezium's connector for PostgreSQL sends
for each change of it.

Pure: a seed, and the times that changes are asked for, give the same messages and the same rows.
"""

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from infra.demo.draws import Draws
from infra.demo.moments import plain_micros
from infra.demo.record import ORDERS_TOPIC, ChangeRecord

_DAY_MS = 86_400_000
_STATUSES = ("placed", "paid", "packed", "shipped", "delivered")
_DELETE_SHARE, _INSERT_SHARE = 0.08, 0.45
# How far back an order lies that is changed or cancelled, in orders: those of the last hours, mostly.
_BACK_MEDIAN, _BACK_SIGMA = 60.0, 1.2
# A note that PostgreSQL keeps apart from its row (TOAST): an update that does not touch it does not send it.
_LARGE_CHARACTERS = 2_000
_NOT_SENT = "__debezium_unavailable_value"
_CENTS_DIGITS, _CENTS_BYTES = 2, 6

# Kafka Connect's schemas of the columns, by name.
_FIELDS: Mapping[str, Mapping[str, Any]] = {
    "id": {"type": "int64"},
    "customer": {"type": "string"},
    "status": {
        "type": "string",
        "name": "io.debezium.data.Enum",
        "version": 1,
        "parameters": {"allowed": ",".join(_STATUSES)},
    },
    "total": {
        "type": "bytes",
        "name": "org.apache.kafka.connect.data.Decimal",
        "version": 1,
        "parameters": {"scale": str(_CENTS_DIGITS), "connect.decimal.precision": "12"},
    },
    "items": {"type": "int32"},
    "is_gift": {"type": "boolean"},
    "ship_by": {"type": "int32", "name": "io.debezium.time.Date", "version": 1},
    "placed_at": {"type": "int64", "name": "io.debezium.time.MicroTimestamp", "version": 1},
    "changed_at": {"type": "string", "name": "io.debezium.time.ZonedTimestamp", "version": 1},
    "note": {"type": "string"},
}
COLUMNS = tuple(_FIELDS)
KEY = COLUMNS[0]


class Order(NamedTuple):
    """One row, in the order of `COLUMNS`. `total`: in cents; `ship_by`: days since 1970-01-01; times:
    microseconds since then."""

    id: int
    customer: str
    status: str
    total: int
    items: int
    is_gift: bool
    ship_by: int | None
    placed_at: int
    changed_at: int
    note: str | None


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """What a keyed table has, or should have: rows, different keys, and the sum of its rows' checksums."""

    rows: int = 0
    keys: int = 0
    checksum: int = 0


class OrderTable:
    """The shop's table. `change` changes one row and gives the messages about it."""

    def __init__(self, seed: int) -> None:
        draws = self._draws = Draws(f"{seed}/orders")
        self._rows: dict[int, Order] = {}
        self._ids: list[int] = []  # of the rows, the oldest first
        self._last_id = self._last_lsn = 0
        self._customers = draws.zipf_pool([f"customer-{number:04}" for number in range(800)], 0.9)
        self._cents = [int(cents) for cents in draws.log_normal_pool(4_200, 0.9)]
        self._back = draws.log_normal_pool(_BACK_MEDIAN, _BACK_SIGMA)

    def change(self, at_ms: int) -> list[ChangeRecord]:
        """An order is placed, moves on, or is cancelled at `at_ms` (milliseconds since the epoch); a
        cancelled one is deleted, with a tombstone."""
        chance = self._draws.uniform()
        if not self._ids or chance < _INSERT_SHARE:
            return [self._insert(at_ms)]
        at = max(0, len(self._ids) - 1 - int(self._draws.pick(self._back)))
        if chance < 1 - _DELETE_SHARE:
            return [self._update(self._rows[self._ids[at]], at_ms)]
        return self._delete(self._ids.pop(at), at_ms)

    @property
    def truth(self) -> KeyedRows:
        """What a table that follows this one has."""
        checksum = sum(_checksum(row) for row in self._rows.values())
        return KeyedRows(len(self._rows), len(self._rows), checksum)

    def _insert(self, at_ms: int) -> ChangeRecord:
        draws = self._draws
        self._last_id += 1
        changed_us = at_ms * 1_000 + draws.below(1_000)
        row = Order(
            self._last_id,
            draws.pick(self._customers),
            _STATUSES[0],
            draws.pick(self._cents),
            1 + draws.below(9),
            draws.uniform() < 0.1,
            at_ms // _DAY_MS + 1 + draws.below(5) if draws.uniform() < 0.8 else None,
            changed_us,
            changed_us,
            self._note(),
        )
        self._rows[row.id] = row
        self._ids.append(row.id)
        return self._message("c", row.id, None, _wire(row), at_ms)

    def _update(self, before: Order, at_ms: int) -> ChangeRecord:
        draws = self._draws
        status = _STATUSES[min(_STATUSES.index(before.status) + 1, len(_STATUSES) - 1)]
        row = before._replace(status=status, changed_at=at_ms * 1_000 + draws.below(1_000))
        if draws.uniform() < 0.1:  # something was left out of it, or added
            row = row._replace(total=draws.pick(self._cents), note=self._note())
        self._rows[row.id] = row
        sent = _wire(row)
        if row.note == before.note is not None and len(before.note) >= _LARGE_CHARACTERS:
            sent["note"] = _NOT_SENT
        return self._message("u", row.id, None, sent, at_ms)

    def _delete(self, key: int, at_ms: int) -> list[ChangeRecord]:
        del self._rows[key]
        # With the usual replica identity PostgreSQL tells of a deleted row its key alone.
        before = {**dict.fromkeys(COLUMNS), KEY: key}
        deleted = self._message("d", key, before, None, at_ms)
        return [deleted, ChangeRecord(ORDERS_TOPIC, deleted.key, None, (), at_ms)]

    def _note(self) -> str | None:
        chance = self._draws.uniform()
        if chance < 0.6:
            return None
        if chance < 0.97:
            return f"Bitte an der Tür {self._draws.below(40)} klingeln ✉"
        return self._draws.hex(_LARGE_CHARACTERS)

    def _message(
        self, op: str, key: int, before: dict[str, Any] | None, after: dict[str, Any] | None, at_ms: int
    ) -> ChangeRecord:
        self._last_lsn += 1 + self._draws.below(500)
        payload = {
            "before": before,
            "after": after,
            "source": {
                "connector": "postgresql",
                "name": "shop",
                "ts_ms": at_ms,
                "snapshot": "false",
                "db": "shop",
                "schema": "public",
                "table": "orders",
                "lsn": self._last_lsn,
            },
            "op": op,
            "ts_ms": at_ms,
        }
        return ChangeRecord(
            ORDERS_TOPIC, _with_schema(_KEY_SCHEMA, {KEY: key}), _with_schema(_SCHEMA, payload), (), at_ms
        )


def _field(name: str) -> dict[str, Any]:
    return {**_FIELDS[name], "optional": name != KEY, "field": name}


def _struct(name: str, fields: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {
        "type": "struct",
        "fields": fields,
        "optional": False,
        "name": f"shop.public.orders.{name}",
        **more,
    }


_ROW = _struct("Value", [_field(name) for name in COLUMNS], optional=True)
_SOURCE = {
    "type": "struct",
    "fields": [
        {"type": kind, "optional": False, "field": name}
        for kind, names in (
            ("string", ("connector", "name", "snapshot", "db", "schema", "table")),
            ("int64", ("ts_ms", "lsn")),
        )
        for name in names
    ],
    "optional": False,
    "name": "io.debezium.connector.postgresql.Source",
    "field": "source",
}
_KEY_SCHEMA = orjson.dumps(_struct("Key", [_field(KEY)]))
_SCHEMA = orjson.dumps(
    _struct(
        "Envelope",
        [
            {**_ROW, "field": "before"},
            {**_ROW, "field": "after"},
            _SOURCE,
            {"type": "string", "optional": False, "field": "op"},
            {"type": "int64", "optional": True, "field": "ts_ms"},
        ],
    )
)


def _with_schema(schema: bytes, payload: Mapping[str, Any]) -> bytes:
    """A message as Kafka Connect's JSON converter writes it."""
    return b'{"schema":' + schema + b',"payload":' + orjson.dumps(payload) + b"}"


def _wire(row: Order) -> dict[str, Any]:
    """A row as Debezium spells it."""
    return {
        **row._asdict(),
        "total": base64.b64encode(row.total.to_bytes(_CENTS_BYTES, "big", signed=True)).decode(),
        "changed_at": plain_micros(row.changed_at).replace(" ", "T") + "Z",
    }


def _checksum(row: Order) -> int:
    """The first eight bytes of the SHA-256 of a row's text, as a signed number."""
    digest = hashlib.sha256("|".join(row_texts(row)).encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def row_texts(row: Order) -> tuple[str, ...]:
    """The values of a row as Trino spells them when it casts the columns' types to text; NULL is empty."""
    return (
        str(row.id),
        row.customer,
        row.status,
        f"{row.total // 100}.{row.total % 100:02}",
        str(row.items),
        "true" if row.is_gift else "false",
        "" if row.ship_by is None else plain_micros(row.ship_by * _DAY_MS * 1_000)[:10],
        plain_micros(row.placed_at),
        plain_micros(row.changed_at) + " UTC",
        row.note or "",
    )
