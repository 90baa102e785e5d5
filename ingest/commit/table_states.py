"""What the committer knows of every table, and the ids of new columns that it has promised to workers.

Tables are loaded in threads, each with a deadline of its own, so that one the catalog is slow for delays
nobody. What was loaded counts as known only after two more questions. The parked records are read: a rollback
that happened before the load is in them, also when a person has decided about it meanwhile, and one that
happens later changes the head that the next commit asserts. And the node's lease is in force: it lies in the
same database as the tables, and a restored copy has it only where it was made under this very lease; then the
table's marks are below those that the node has known. So no commit is ever made on a table that moved back
unseen.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass, field

import orjson
import structlog

from ingest.commit.checkpoint import Newest
from ingest.commit.dropped_table import was_dropped
from ingest.commit.ledger import Ledger, LiveMarks
from ingest.commit.look_alikes import LookAlikes
from ingest.model.link import TableView
from ingest.model.parked_record import ParkedRecord, ParkedRecords
from ingest.model.trouble import Cause, Trouble, trouble_of
from lake.backoff import Backoff
from lake.catalog_client import CatalogClient, TableName
from lake.clock import Clock, epoch_ms
from lake.commit import TableState, creation_request, load_state, new_table_state
from lake.errors import ConflictError, FatalError, FirnError, RetryableError, UnavailableError
from lake.log_schema import SYSTEM_COLUMNS, SYSTEM_FIELDS, LogSchema, arrow_type
from lake.storage import AnyStorage
from lake.tenant import TableId

RETRIES = Backoff(0.4, 5.0)
LOADS_AT_ONCE = 64
log = structlog.get_logger()


class UnfitError(FatalError):
    """The table's columns cannot hold our rows."""


class VanishedError(FatalError):
    """The table is gone, and nobody dropped it."""


def _trouble(error: FirnError) -> Trouble:
    if isinstance(error, VanishedError):
        return Trouble(Cause.ROLLED_BACK, str(error))
    return trouble_of(error, Cause.COLUMNS) if isinstance(error, UnfitError) else trouble_of(error)


@dataclass(slots=True)
class Arrivals:
    """What became known since the last call."""

    known: list[TableId] = field(default_factory=list)
    failed: list[tuple[TableId, Trouble]] = field(default_factory=list)


@dataclass(slots=True)
class _Wanted:
    not_before_s: float = 0.0
    tries: int = 0


@dataclass
class NewTables:
    """How many more tables may be created now: a bucket that holds one minute's worth and fills evenly."""

    per_minute: int
    clock: Clock
    _left: float = -1.0
    _at_s: float = 0.0

    def take(self) -> bool:
        """Takes one from the bucket, if there is one."""
        now_s = self.clock.monotonic_s()
        filled = (
            self.per_minute if self._left < 0 else self._left + (now_s - self._at_s) * self.per_minute / 60.0
        )
        self._left, self._at_s = min(float(self.per_minute), filled), now_s
        if self._left < 1:
            return False
        self._left -= 1
        return True


@dataclass
class TableStates:
    """One thread calls it; only `_load` and `_create` run in others, and they change nothing here."""

    catalog: CatalogClient
    storage: AnyStorage
    warehouse: str
    records: ParkedRecords | None
    pool: Executor
    clock: Clock
    timeout_s: float
    new_tables: NewTables
    lease: str
    ledger: Ledger = field(default_factory=LiveMarks)
    look_alikes: LookAlikes = field(init=False)
    _states: dict[TableId, TableState] = field(default_factory=dict)
    _stale: set[TableId] = field(default_factory=set)
    _wanted: dict[TableId, _Wanted] = field(default_factory=dict)
    _loading: dict[TableId, Future[TableState | None]] = field(default_factory=dict)
    _unchecked: dict[TableId, TableState | None] = field(default_factory=dict)
    _check: tuple[dict[TableId, TableState | None], Future[Mapping[TableId, ParkedRecord]]] | None = None
    newest: Newest = field(default_factory=Newest)
    # Tables that do not exist, each waiting until it may be created.
    postponed: dict[TableId, None] = field(default_factory=dict)
    # Columns handed out and not yet committed: name -> (id, original path). Void as soon as somebody else
    # takes an id.
    _promised: dict[TableId, dict[str, tuple[int, str]]] = field(default_factory=lambda: defaultdict(dict))

    def __post_init__(self) -> None:
        self.look_alikes = LookAlikes(lambda: self.catalog.namespaces())  # noqa: PLW0108 - where nothing is ever created there may be no catalog

    # ---- what is known

    def get(self, table: TableId) -> TableState | None:
        """The state to commit to; None where it has to be loaded first."""
        return None if table in self._stale else self._states.get(table)

    def last_known(self, table: TableId) -> TableState | None:
        """The state as it was when it was last known."""
        return self._states.get(table)

    def put(self, table: TableId, state: TableState) -> None:
        """The state after a commit that was acknowledged."""
        self.newest.made(state, epoch_ms(self.clock.now()))
        self._states[table] = state
        self._stale.discard(table)
        self._promised[table] = {
            name: promise
            for name, promise in self._promised[table].items()
            if name not in state.schema.by_name
        }

    def outdate(self, table: TableId) -> None:
        """Somebody may have changed the table: it is to be loaded before it is used again."""
        if table in self._states:
            self._stale.add(table)

    def view(self, table: TableId) -> TableView:
        """What a worker has to know of a table that is known."""
        state = self._states[table]
        return TableView(
            state.uuid, state.location, orjson.dumps(state.schema.json), self.ledger.marks(state)
        )

    # ---- columns

    def grow(self, table: TableId, names: Mapping[str, str]) -> bytes:
        """The table's schema (JSON) with columns for these names (name -> original path); ids are promised
        until somebody else takes them."""
        state, promised = self._states[table], self._promised[table]
        last = max([state.last_column_id, *(column_id for column_id, _ in promised.values())])
        for name in names:
            if name not in state.schema.by_name and name not in promised:
                last += 1
                promised[name] = (last, names[name])
        return orjson.dumps(self.promised_schema(table).json)

    def promised_schema(self, table: TableId) -> LogSchema:
        """The table's schema with all columns that were promised."""
        state = self._states[table]
        new = {
            name: promise
            for name, promise in self._promised[table].items()
            if name not in state.schema.by_name
        }
        return state.schema.with_strings(new, state.schema_id_max + 1) if new else state.schema

    def ids_stand(self, table: TableId, new: Mapping[str, int]) -> bool:
        """Whether the columns of a file still have, or may still get, the ids it was written with."""
        state, promised = self._states[table], self._promised.get(table, {})
        for name, column_id in new.items():
            column = state.schema.by_name.get(name)
            if (column.id if column is not None else promised.get(name, (None, ""))[0]) != column_id:
                return False
        return True

    # ---- loading

    def want(self, tables: Iterable[TableId]) -> None:
        """Has tables loaded, again and again until it works; `poll` tells."""
        for table in tables:
            self._wanted.setdefault(table, _Wanted())

    def drop(self, table: TableId) -> None:
        """Nothing more is wanted of the table for now."""
        self._wanted.pop(table, None)
        self.postponed.pop(table, None)
        self.outdate(table)

    def forget(self, table: TableId) -> None:
        """A person has decided how the table goes on: what was known of it is no measure any more of what
        there should be."""
        self.drop(table)
        self._states.pop(table, None)
        self._stale.discard(table)
        self._promised.pop(table, None)

    def poll(self, parked_version: Callable[[TableId], int | None] | None = None) -> Arrivals:
        """Takes in what threads have found and sends them out again. Never blocks. Raises RefusedError where
        the node's lease is lost.

        `parked_version`: the version of a table's parked record as the node knows it, None where it does not
        know one. It is not needed by who moves no live mark.
        """
        arrivals = Arrivals()
        self._take_in(arrivals)
        self._check_loaded(arrivals, parked_version)
        self._create_postponed()
        self._send_out()
        return arrivals

    def _take_in(self, arrivals: Arrivals) -> None:
        for table, future in [(table, future) for table, future in self._loading.items() if future.done()]:
            del self._loading[table]
            if table not in self._wanted:
                continue
            try:
                state = future.result()
            except FirnError as error:
                self._fail(table, _trouble(error), arrivals)
                continue
            except (
                Exception
            ) as error:  # whatever somebody has written into a table's metadata, it must not stop the others
                log.exception("table.not_loaded", table=str(table))
                self._fail(
                    table,
                    Trouble(Cause.METADATA, f"table {table}: its metadata cannot be read ({error!r})"),
                    arrivals,
                )
                continue
            if state is not None and state.moved_back:
                self._fail(table, moved_back(state), arrivals)
            else:
                self._unchecked[table] = state

    def _check_loaded(
        self, arrivals: Arrivals, parked_version: Callable[[TableId], int | None] | None
    ) -> None:
        """Asks the two questions about what was loaded before they were asked, one set after the other."""
        if self._check is not None and self._check[1].done():
            (loaded, future), self._check = self._check, None
            try:
                parked = future.result()
            except RetryableError as error:
                log.warning("parked.not_read", reason=str(error))
                self._unchecked = loaded | self._unchecked
            else:
                for table, state in loaded.items():
                    record = parked.get(table)
                    if record is not None and record.awaits_person:
                        self._fail(
                            table,
                            Trouble(Cause.ROLLED_BACK, f"table {table} was moved back to an earlier state"),
                            arrivals,
                        )
                    elif (
                        record is not None
                        and parked_version is not None
                        and _is_news(record, parked_version(table))
                    ):
                        self._again_later(table)
                    elif parked_version is not None and (lost := self._lost(table, state)) is not None:
                        self._fail(table, lost, arrivals)
                    elif table in self._wanted:
                        self._take(table, state, arrivals)
        if self._check is None and self._unchecked:
            loaded, self._unchecked = self._unchecked, {}
            self._check = (
                loaded,
                self.pool.submit(
                    self._ask, any(state is not None and state.exists for state in loaded.values())
                ),
            )

    def _lost(self, table: TableId, state: TableState | None) -> Trouble | None:
        """What is wrong where a table's marks are not as far any more as this node knows that they were."""
        before = self._states.get(table)
        if (
            state is None
            or before is None
            or before.uuid != state.uuid
            or not before.marks.exceeds(state.marks)
        ):
            return None
        return Trouble(
            Cause.ROLLED_BACK,
            f"{moved_back(state).sentence}; this node knew of rows up to {before.marks.to_property()}",
            before.marks,
        )

    def _ask(self, some_exist: bool) -> Mapping[TableId, ParkedRecord]:
        """In a thread: what is parked, as far as it matters. Raises RefusedError where the lease is not in
        force."""
        if self.records is None:
            return {}
        self.records.confirm(self.lease)
        return self.records.all() if some_exist else {}

    def _take(self, table: TableId, state: TableState | None, arrivals: Arrivals) -> None:
        before = self._states.get(table)
        if state is None and before is not None and not before.exists:
            state = before  # keeps the uuid and location that its files were written for
        if state is None:
            self.postponed[table] = None
        else:
            self._accept(table, state, arrivals)

    def _create_postponed(self) -> None:
        for table in [table for table in self.postponed if table not in self._loading]:
            if not self.new_tables.take():
                return
            del self.postponed[table]
            self._loading[table] = self.pool.submit(self._create, table)

    def _send_out(self) -> None:
        now_s = self.clock.monotonic_s()
        for table, wanted in self._wanted.items():
            if len(self._loading) >= LOADS_AT_ONCE:
                return
            busy = (
                table in self._loading
                or table in self.postponed
                or table in self._unchecked
                or (self._check is not None and table in self._check[0])
            )
            if not busy and wanted.not_before_s <= now_s:
                self._loading[table] = self.pool.submit(self._load, table, self._states.get(table))

    def _accept(self, table: TableId, state: TableState, arrivals: Arrivals) -> None:
        self.newest.met(state)
        self._states[table] = state
        self._stale.discard(table)
        self._wanted.pop(table, None)
        promised = self._promised.get(table, {})
        if any(
            column_id <= state.last_column_id and name not in state.schema.by_name
            for name, (column_id, _) in promised.items()
        ):
            promised.clear()  # somebody else took an id that was handed out
        arrivals.known.append(table)

    def _fail(self, table: TableId, trouble: Trouble, arrivals: Arrivals) -> None:
        if self._again_later(table):
            arrivals.failed.append((table, trouble))

    def _again_later(self, table: TableId) -> bool:
        """Has a table loaded once more after a while; False where nobody wants it."""
        wanted = self._wanted.get(table)
        if wanted is None:
            return False
        wanted.tries += 1
        wanted.not_before_s = self.clock.monotonic_s() + RETRIES.delay_s(wanted.tries)
        return True

    # ---- in threads

    def _load(self, table: TableId, before: TableState | None) -> TableState | None:
        state = load_state(self.catalog, self.storage, table_name(table), timeout_s=self.timeout_s)
        if (
            state is None
            and before is not None
            and before.exists
            and not was_dropped(self.catalog, before.name, before.uuid)
        ):
            raise VanishedError(
                f"table {table} is gone without having been dropped: the catalog's database went back, or "
                "somebody renamed the table"
            )
        if state is not None and (why := misfit(state.schema)):
            raise UnfitError(
                f"table {table} takes no rows of ours: {why}; put it right, or drop the table so that it is "
                "created anew"
            )
        return state

    def _create(self, table: TableId) -> TableState:
        name = table_name(table)
        self.look_alikes.check(table)
        new = new_table_state(name, table.tenant.name, table.stream, self.warehouse)
        if self.catalog.has_extras:
            return new  # created together with its first rows
        self.catalog.create_namespace(name.namespace, {})
        with suppress(ConflictError):  # somebody else created it: the same
            self.catalog.create_table(name, creation_request(new))
        state = load_state(self.catalog, self.storage, name, timeout_s=self.timeout_s)
        if state is None:
            raise UnavailableError(f"table {name} was created and is not there; it is tried again")
        return state


def table_name(table: TableId) -> TableName:
    """The table's identifiers in the catalog."""
    return TableName(table.tenant.namespace, table.table)


def _is_news(record: ParkedRecord, known: int | None) -> bool:
    """Whether somebody has changed a table's parked record since the node read it: a person, perhaps, who has
    rows read again that others must not overtake.

    Where the node knows of none, one with an id is its own and on its way out, or was when the question was
    asked.
    """
    return not record.id if known is None else record.version != known


def moved_back(state: TableState) -> Trouble:
    """What is said of a table whose head is older than its marks."""
    head = state.head_marks.to_property() if state.head_marks is not None else "none"
    return Trouble(
        Cause.ROLLED_BACK,
        f"table {state.name} was moved back: its marks are {state.marks.to_property()}, those of its "
        f"snapshot {head}",
    )


def misfit(schema: LogSchema) -> str | None:
    """Why rows of ours cannot be written with this schema; None where they can."""
    for system in SYSTEM_FIELDS:
        column = schema.by_name.get(system["name"])
        if column is None:
            return f"column {system['name']} is gone"
        ours = (
            {str(arrow_type(system["type"])), "int64"}
            if system["type"] == "int"
            else {str(arrow_type(system["type"]))}
        )
        try:
            theirs = str(arrow_type(column.kind))
        except ValueError:
            theirs = str(column.kind)
        if theirs not in ours:
            return f"column {column.name} is {theirs}, not {arrow_type(system['type'])}"
    needed = [
        column.name for column in schema.columns if column.required and column.name not in SYSTEM_COLUMNS
    ]
    if needed:
        return f"column {needed[0]} may not be NULL, and records may lack it"
    try:
        _ = schema.arrow
    except ValueError as error:
        return str(error)
    return None
