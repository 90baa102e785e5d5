"""A node, or what it knows of its tables, on a catalog in memory: every part is the real one."""

from concurrent.futures import Executor
from copy import deepcopy
from pathlib import Path
from typing import Any

from catalog.commit.updates import Draft, apply_updates
from ingest.commit.committer import Committer
from ingest.commit.table_states import NewTables, TableStates
from ingest.model.link import TableView, ToWorker
from ingest.model.parked_record import ParkedRecord, ParkedRecords
from ingest.model.trouble import Troubles
from ingest.node.node import Node
from ingest.parking.health_probe import HealthProbe
from ingest.parking.parking import Parking
from lake.catalog_client import TableName
from lake.clock import Clock
from lake.commit import creation_request, new_table_state, prepare_append, state_of
from lake.data_file import DataFile
from lake.lease import NODE_TIMES, Lease
from lake.marks import Marks, TopicPartition
from lake.storage import open_storage
from lake.tenant import TableId, TenantId
from tests.ingest.support.fake_clock import FakeClock
from tests.lake.support.fake_catalog import FakeCatalog

TABLE = TableId(TenantId("t"), "logs")
NAME, PLACE = TableName(TABLE.tenant.namespace, TABLE.table), TopicPartition("id", 0)
POLLS = 4


class World:
    """A catalog in memory that has the table, and a node's client of it with its lease."""

    def __init__(self, folder: Path) -> None:
        # A lease in memory lasts as long as the test: no thread renews it.
        self.warehouse, self.catalog = f"file://{folder}", FakeCatalog(clock=FakeClock())
        self.client = self.catalog.client()
        self.lease = Lease(self.client, "node", NODE_TIMES, holder="here")
        self.lease.take()
        state = new_table_state(NAME, TABLE.tenant.name, TABLE.stream, self.warehouse)
        self.client.create_table(NAME, creation_request(state))
        self._empty = self.metadata

    @property
    def metadata(self) -> dict[str, Any]:
        return self.catalog.tables[NAME]

    def mark(self, offset: int) -> None:
        """The table has committed all below an offset."""
        storage = open_storage()
        state = state_of(self._empty, NAME, storage)
        draft = Draft(deepcopy(self._empty), state.updated_ms, lambda location, _: str(location))
        file = DataFile(f"{state.location}/data/1.parquet", 490_000, 1, 1_000)
        prepared = prepare_append(state, [file], state.schema, Marks({PLACE: offset}), 0)
        storage.write_all(prepared.files)
        apply_updates(draft, prepared.request["updates"])
        self.catalog.tables[NAME] = draft.metadata

    def park(self, record: ParkedRecord) -> None:
        """Its parked record is this one."""
        self.catalog.park(NAME, record.cause.value, record.to_json(), version=record.version)

    def states(self, pool: Executor, clock: Clock) -> TableStates:
        """What a node knows of its tables."""
        return TableStates(
            self.client,
            open_storage(),
            self.warehouse,
            ParkedRecords(self.client, timeout_s=5.0),
            pool,
            clock,
            5.0,
            NewTables(1, clock),
            self.lease.fencing_token or "",
        )


class NodeWorld(World):
    """A node on that catalog: what it tells its workers."""

    def __init__(self, folder: Path, pool: Executor) -> None:
        super().__init__(folder)
        self.messages: list[tuple[int | None, ToWorker]] = []
        self.clock, self._pool = FakeClock(), pool
        self.node_states = self.states(pool, self.clock)
        records, lease = self.node_states.records, self.node_states.lease
        assert records is not None
        self.node = Node(
            self.node_states,
            Committer(self.node_states, pool, self.clock, 5.0, "recreate", "here"),
            Parking(
                records, self.node_states, pool, self.clock, 2, lease, self._tell, lambda _: ("id", 0, 0)
            ),
            Troubles(60.0),
            HealthProbe(self.client, open_storage(), self.warehouse, "firn"),
            self.lease,
            pool,
            self.clock,
            self._tell,
        )

    def _tell(self, worker: int | None, message: ToWorker) -> None:
        self.messages.append((worker, message))

    def steps(self, count: int = 2 * POLLS) -> None:
        """As the node's main loop does it, until all is answered that was asked."""
        for _ in range(count):
            self.node.step(stopping=False)
            self._pool.submit(lambda: None).result()
            self.clock.s += 0.1

    def view(self, table: TableId) -> TableView:
        return self.node_states.view(table)
