"""The keyed stream of the demo: what is done to the shop's orders, and after every stage whether the table
that follows them has the same rows."""

import contextlib
import time
from dataclasses import dataclass

from rich.table import Table

from infra.demo.arrivals import arrival_times_ms
from infra.demo.counts import TableCount, keyed_tables
from infra.demo.orders import COLUMNS, KEY, KeyedRows, OrderTable
from infra.demo.producer import DemoProducer
from infra.demo.record import ORDERS_STREAM, ORDERS_TENANT
from infra.demo.trino_statement import quoted, select
from infra.local.supervisor import Stack
from lake.catalog_client import CatalogClient
from lake.clock import SYSTEM_CLOCK, epoch_ms
from lake.errors import UnavailableError
from lake.tenant import to_identifier

VISIBLE_TIMEOUT_S = 120.0
POLL_S = 1.0
_HOUR_MS = 3_600_000
# Its name in Trino and in the catalog.
NAME = (to_identifier(ORDERS_TENANT), to_identifier(ORDERS_STREAM))
# As `orders.row_texts` spells a row, and `orders.KeyedRows` counts: a sum of any number of rows fits.
_TEXT = " || '|' || ".join(f"coalesce(CAST({quoted(name)} AS varchar), '')" for name in COLUMNS)
_COUNT = f"""
    SELECT count(*), count(DISTINCT {quoted(KEY)}),
      CAST(sum(CAST(from_big_endian_64(substr(sha256(to_utf8({_TEXT})), 1, 8)) AS decimal(38, 0))) AS varchar)
    FROM lake.{quoted(NAME[0])}.{quoted(NAME[1])}
"""  # noqa: S608


@dataclass(frozen=True, slots=True)
class Stage:
    """What was true of the orders after one stage of the demo, and what Trino counted."""

    name: str
    changes: int
    truth: KeyedRows
    counted: KeyedRows
    table: TableCount | None

    @property
    def mismatch(self) -> str | None:
        """A sentence where both differ."""
        if self.truth == self.counted:
            return None
        return (
            f"{ORDERS_TENANT}, stream {ORDERS_STREAM}, {self.name}: {self.truth.rows} orders are alive with "
            f"checksum {self.truth.checksum}, Trino counts {self.counted.rows} rows of {self.counted.keys} "
            f"keys with checksum {self.counted.checksum}"
        )


class OrderStream:
    """Changes the shop's orders, sends what its connector would, and compares."""

    def __init__(self, stack: Stack, seed: int) -> None:
        self._stack, self._seed = stack, seed
        self._orders = OrderTable(seed)
        self._producer = DemoProducer(stack.address("kafka"))
        self._changes = self._changed_ms = 0
        self.stages: list[Stage] = []

    def send(self, changes: int, hours: float = 0.0) -> None:
        """Makes that many changes, spread over the time since the last ones, or over so many hours. Raises
        UnavailableError where one is not delivered."""
        now_ms = epoch_ms(SYSTEM_CLOCK.now())
        start_ms = min(now_ms - 1, max(self._changed_ms, now_ms - int(hours * _HOUR_MS)))
        for at_ms in arrival_times_ms(changes, start_ms, now_ms, f"{self._seed}/orders/{self._changes}"):
            for record in self._orders.change(at_ms):
                self._producer.send(record)
        self._producer.flush()
        self._changes += changes
        self._changed_ms = now_ms

    def compare(self, name: str) -> Stage:
        """Counts until Trino has what the shop has, or the time is over; the stage shows which."""
        truth, end_s = self._orders.truth, SYSTEM_CLOCK.monotonic_s() + VISIBLE_TIMEOUT_S
        with contextlib.closing(CatalogClient(self._stack.address("catalog"))) as catalog:
            while True:
                table = next((t for t in keyed_tables(catalog) if tuple(t.name) == NAME), None)
                counted = KeyedRows() if table is None else self._counted()
                if counted == truth or SYSTEM_CLOCK.monotonic_s() > end_s:
                    break
                if not self._stack.running("ingest"):
                    raise UnavailableError(f"ingest ended by itself; see {self._stack.log('ingest')}")
                time.sleep(POLL_S)
        stage = Stage(name, self._changes, truth, counted, table)
        self.stages.append(stage)
        return stage

    def _counted(self) -> KeyedRows:
        ((rows, keys, checksum),) = select(self._stack.address("trino"), _COUNT)
        return KeyedRows(rows, keys, int(checksum or 0))


def report(stages: list[Stage]) -> Table:
    """Every stage: the shop's orders beside the rows, their keys and values as Trino counts them."""
    table = Table(title=f"orders of {ORDERS_TENANT}: a table that follows the shop's database, in Trino")
    table.add_column("stage")
    for name in ("changes", "orders", "rows", "keys", "values", "files", "delete files"):
        table.add_column(name, justify="right")
    for stage in stages:
        numbers = (stage.changes, stage.truth.rows, stage.counted.rows, stage.counted.keys)
        files = ("-", "-") if stage.table is None else (stage.table.files, stage.table.delete_files)
        same = "the same" if stage.counted.checksum == stage.truth.checksum else "another"
        table.add_row(stage.name, *(f"{number:,}" for number in numbers), same, *map(str, files))
    return table
