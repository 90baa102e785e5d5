"""Parking where several nodes are at work: it is left to one node, which holds all shares of the input as
long as anything is parked.

What is parked of a table has an order, and a table is released once all workers hold its records back; both
are one main process's to see to. So a node that does not hold all shares parks nothing. It writes the parked
record without an id, as the catalog does for a table that was moved back, and ends its work; the node that
takes all shares finds the record before it routes anything. The other nodes find it within seconds.
"""

from collections.abc import Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import structlog

from ingest.model.fault_point import reach
from ingest.model.link import Drained, Held
from ingest.model.parked_record import ParkedRecord, ParkedRecords
from ingest.model.trouble import Trouble
from lake.errors import RetryableError, UnavailableError
from lake.tenant import TableId

log = structlog.get_logger()


@dataclass
class LeftToOneNode:
    """Stands where `Parking` stands on a node that holds all shares. `lease`: one of this node's."""

    records: ParkedRecords
    pool: Executor
    lease: str
    _writes: dict[TableId, Future[int | None]] = field(default_factory=dict)

    def load(self) -> Mapping[TableId, str]:
        """Makes sure that nothing is parked. Blocks. Raises UnavailableError."""
        if parked := self.records.all():
            raise UnavailableError(
                f"table {next(iter(parked))} is parked, so one node has to have all shares"
            )
        return {}

    def __contains__(self, table: TableId) -> bool:
        return False

    def park(self, table: TableId, trouble: Trouble) -> None:
        """Has the record written that makes one node take all shares."""
        if table in self._writes:
            return
        log.error(
            "table.to_be_parked", table=str(table), reason=trouble.cause.value, sentence=trouble.sentence
        )
        record = ParkedRecord(table, trouble.cause, trouble.sentence, expected=trouble.expected)
        self._writes[table] = self.pool.submit(self.records.write, record, lease=self.lease, key=str(uuid4()))

    def step(self, *, stopping: bool = False) -> None:  # noqa: ARG002 - as Parking has it
        """Raises UnavailableError once a record is written, RefusedError where the lease is lost."""
        for table in [table for table, write in self._writes.items() if write.done()]:
            write = self._writes.pop(table)
            try:
                if write.result() is not None:  # None: somebody else has parked it meanwhile
                    reach("parked_record_written")
            except RetryableError as error:  # the table goes on failing, and is judged anew
                log.warning("parked.not_written", table=str(table), reason=str(error))
                continue
            raise UnavailableError(f"table {table} is to be parked, by a node that has all shares")

    def failed(self, table: TableId, trouble: Trouble) -> None:
        """Nothing is drained here."""

    def drained(self, message: Drained) -> None:
        """Nothing is drained here."""

    def held(self, worker: int, message: Held) -> None:
        """Nothing is held here."""

    def status(self) -> list[dict[str, Any]]:
        """Nothing is parked here."""
        return []
