"""Brings about what the node knows of its tables.

Tables are loaded in threads. Of many the catalog is asked in one request, with a short deadline; those of
which it does not say at once what they are, or that there are none, are loaded one by one, each with a
deadline of its own, so that one the catalog is slow for delays nobody. What was loaded counts as known only
after two more questions. The parked records are read: a rollback that happened before the load is in them,
also when a person has decided about it meanwhile, and one that happens later changes the head that the next
commit asserts. And the node's lease is in force: it lies in the same database as the tables, and a restored
copy has it only where it was made under this very lease; then the table's marks are below those that the node
has known. So no commit is ever made on a table that moved back unseen.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import structlog

from ingest.commit.checkpoint import Newest
from ingest.commit.dropped_table import was_dropped
from ingest.commit.ledger import Ledger, LiveMarks
from ingest.commit.look_alikes import LookAlikes
from ingest.commit.stream_room import StreamRoom
from ingest.commit.table_events import (
    BecameKnown,
    BeginCheck,
    BeginLoad,
    Checked,
    CreateTable,
    Event,
    Gone,
    Loaded,
    LoadFailed,
    LoadTable,
    LoadTrouble,
    MayCreate,
    MayNotCreate,
    NotChecked,
    Outdated,
    Want,
)
from ingest.commit.table_lifecycle import TableLifecycle
from ingest.commit.table_work import LoadStep
from ingest.commit.tables import Tables
from ingest.model.link import TableView, parse_table_key
from ingest.model.over_limit import PROPERTY as OVER_LIMIT
from ingest.model.parked_record import ParkedRecord, ParkedRecords
from ingest.model.trouble import Cause, Trouble, trouble_of
from ingest.model.turns import Turns
from lake.catalog_client import CatalogClient, MetadataMissingError, TableName
from lake.clock import Clock
from lake.commit import TableState, creation_request, load_state, new_table_state, state_of
from lake.errors import (
    ConflictError,
    FatalError,
    FirnError,
    NotFoundError,
    Rejected,
    RetryableError,
    UnavailableError,
)
from lake.isolation import isolate
from lake.log_schema import SYSTEM_COLUMNS, SYSTEM_FIELDS, LogSchema, WantedColumn, arrow_type
from lake.retention_policies import said
from lake.storage import AnyStorage
from lake.table_layout import buckets_of_spec
from lake.tenant import TableId

LOADS_AT_ONCE = 64
# Of one request for many, and what the catalog may take for it.
TOGETHER, TOGETHER_S = 500, 1.0
log = structlog.get_logger()


class UnfitError(FatalError):
    """The table's columns cannot hold our rows."""


def _load_event(table: TableId, number: int, future: Future[Loaded | Gone]) -> Event:
    """What came of a load. Whatever somebody has written into metadata, it must not stop the others."""
    try:
        with isolate("table.not_loaded", foreseen=(FirnError,), table=str(table)) as outcome:
            return future.result()
    except FirnError as error:
        return LoadFailed(number, _trouble(error))
    sentence = f"table {table}: its metadata cannot be read ({outcome.error!r})"
    return LoadFailed(number, Trouble(Cause.METADATA, sentence))


def _trouble(error: FirnError) -> Trouble:
    return trouble_of(error, Cause.COLUMNS) if isinstance(error, UnfitError) else trouble_of(error)


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """A loading that was asked for, by its number, and what was known of the table."""

    life: TableLifecycle
    number: int
    known: TableState | None

    @property
    def existed(self) -> bool:
        """Whether the table was there when it was last known."""
        return self.known is not None and self.known.exists


Found = Loaded | Gone


@dataclass(slots=True)
class Arrivals:
    """What became known since the last call. `postponed`: found to be new, and not created at once."""

    known: list[TableId] = field(default_factory=list)
    refused: dict[TableId, Rejected] = field(default_factory=dict)
    postponed: list[TableLifecycle] = field(default_factory=list)
    failed: list[tuple[TableId, Trouble]] = field(default_factory=list)


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
    """Loads, checks and creates tables as their lives ask for it. One thread calls it; what runs in others
    changes nothing here."""

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
    room: StreamRoom | None = None  # for new streams of tenants; None: as many as come
    parks_itself: bool = True  # else no table of which anything is parked becomes known
    look_alikes: LookAlikes = field(init=False)
    lives: Tables = field(default_factory=Tables)
    newest: Newest = field(default_factory=Newest)
    _arrivals: Arrivals = field(default_factory=Arrivals)
    _asked: Turns[Asked] = field(default_factory=lambda: Turns(lambda asked: asked.life.table.tenant))
    _together: tuple[Sequence[Asked], Future[Sequence[Any]]] | None = None
    _alone: deque[tuple[Asked, Callable[[], Found]]] = field(default_factory=deque)
    _loads: dict[Future[Found], tuple[TableLifecycle, int]] = field(default_factory=dict)
    _new: list[tuple[TableLifecycle, int]] = field(default_factory=list)
    _new_ones: list[TableLifecycle] = field(default_factory=list)  # just found to be, maybe
    _creations: dict[Future[list[Loaded] | None], list[tuple[TableLifecycle, int]]] = field(
        default_factory=dict
    )
    _check: tuple[list[tuple[TableLifecycle, int]], Future[Mapping[TableId, ParkedRecord]]] | None = None

    def __post_init__(self) -> None:
        self.look_alikes = LookAlikes(lambda: self.catalog.namespaces())  # noqa: PLW0108 - where nothing is ever created there may be no catalog
        self.lives.run |= {
            LoadTable: self._load_table,
            CreateTable: self._create_table,
            BecameKnown: self._became_known,
            LoadTrouble: self._load_trouble,
        }

    # ---- what is known

    def get(self, table: TableId) -> TableState | None:
        """The state to commit to; None where it has to be loaded first."""
        life = self.lives.get(table)
        return None if life is None else life.current

    def last_known(self, table: TableId) -> TableState | None:
        """The state as it was when it was last known."""
        life = self.lives.get(table)
        return None if life is None else life.known

    def view(self, table: TableId) -> TableView:
        """What a worker has to know of a table that is known."""
        state = self._known(table)
        return TableView(
            state.uuid,
            state.location,
            state.schema.encoded,  # one object, which a message to a worker holds once
            self.ledger.marks(state),
            parse_table_key(state.properties),
            buckets_of_spec(state.spec),
            is_new=not state.exists,
            said=said(state.properties),
            over=state.properties.get(OVER_LIMIT, ""),
        )

    def grow(self, table: TableId, names: Mapping[str, WantedColumn]) -> bytes:
        """The table's schema (JSON) with these columns; ids are promised until somebody else takes them."""
        state, columns = self._known(table), self.lives[table].columns
        columns.promise(state, names)
        return columns.schema(state).encoded

    def _known(self, table: TableId) -> TableState:
        state = self.lives[table].known
        assert state is not None
        return state

    def want(self, tables: Iterable[TableId]) -> None:
        """Has tables loaded, again and again until it works; `poll` tells."""
        for table in tables:
            self._on(self.lives[table], Want())

    def outdate(self, table: TableId) -> None:
        """Somebody may have changed the table: it is to be loaded before it is used again."""
        self._on(self.lives[table], Outdated())

    # ---- loading

    def poll(self, *, live: bool = False) -> Arrivals:
        """Takes in what threads have found and sends them out again. Never blocks. Raises RefusedError where
        the node's lease is lost.

        `live`: whether live marks are moved, so that a table may be known only as far as its parked record
        is. It does not matter to others.
        """
        self._take_answers()
        self._check_loaded(live=live)
        self._refuse_new()
        self._create_postponed()
        self._send_out()
        arrivals, self._arrivals = self._arrivals, Arrivals()
        return arrivals

    def _on(self, life: TableLifecycle, event: Event) -> None:
        self.lives.on(life, event, self.clock.monotonic_s())

    def _take_answers(self) -> None:
        if self._together is not None and self._together[1].done():
            (asked, answer), self._together = self._together, None
            self._take_together(asked, answer.result())
        for future in [future for future in self._loads if future.done()]:
            life, number = self._loads.pop(future)
            self._on(life, _load_event(life.table, number, future))
        for creation in [creation for creation in self._creations if creation.done()]:
            self._take_created(self._creations.pop(creation), creation.result())

    def _take_together(self, asked: Sequence[Asked], found: Sequence[Any]) -> None:
        """What the catalog has said of many. It may have left some out, which are asked for again."""
        for each in asked[len(found) :]:
            self._asked.add(each)
        for each, result in zip(asked, found, strict=False):
            is_gone = isinstance(result, NotFoundError) and not isinstance(result, MetadataMissingError)
            if is_gone and not each.existed:
                self._on(each.life, Gone(each.number, dropped=False))
            elif result is None or isinstance(result, Exception):
                self._alone.append((each, partial(self._load, each)))
            else:
                self._alone.append((each, partial(self._loaded, each, result)))

    def _take_created(
        self, new: Sequence[tuple[TableLifecycle, int]], states: Sequence[Loaded] | None
    ) -> None:
        if states is None:
            asked = [Asked(life, number, None) for life, number in new]
            self._alone += [(each, partial(self._create, each)) for each in asked]
            return
        for (life, _), loaded in zip(new, states, strict=True):
            self._on(life, loaded)

    def _check_loaded(self, *, live: bool) -> None:
        """Asks the two questions about what was loaded before they were asked, one set after the other."""
        if self._check is not None and self._check[1].done():
            (asked, future), self._check = self._check, None
            try:
                parked = future.result()
            except RetryableError as error:
                log.warning("parked.not_read", reason=str(error))
                for life, number in asked:
                    self._on(life, NotChecked(number))
            else:
                for life, number in asked:
                    is_left = not self.parks_itself and life.table in parked
                    answer = Checked(number, parked.get(life.table), live)
                    self._on(life, NotChecked(number) if is_left else answer)
                self._new_ones = [life for life, _ in asked]
        if self._check is None:
            self._begin_check(list(self.lives.loaded))

    def _begin_check(self, lives: Sequence[TableLifecycle]) -> None:
        loaded = [(life, life.loading) for life in lives if life.loading is not None]
        if loaded:
            some_exist = any(loading.found is not None and loading.found.exists for _, loading in loaded)
            numbers = [(life, loading.number) for life, loading in loaded]
            new = [life.table for life, loading in loaded if loading.found is None]
            self._check = numbers, self.pool.submit(self._ask, some_exist, new)
        for life in lives:
            self._on(life, BeginCheck())

    def _ask(self, some_exist: bool, new: Sequence[TableId]) -> Mapping[TableId, ParkedRecord]:
        """In a thread: what is parked, as far as it matters, and whether there is room for new ones. Raises
        RefusedError where the lease is not in force."""
        if self.room is not None:
            self.room.look(new)
        if self.records is None:
            return {}
        self.records.confirm(self.lease)
        return self.records.all() if some_exist else {}

    def _create_postponed(self) -> None:
        while self.lives.postponed and self.new_tables.take():
            self._on(self.lives.postponed.next(), MayCreate())
        self._arrivals.postponed += [life for life in self._new_ones if life.is_at(LoadStep.POSTPONED)]
        self._new_ones.clear()

    def _refuse_new(self) -> None:
        """Those that are new and whose tenants have as many streams as they may are forgotten. A table is
        looked at once, when it is found to be new."""
        for life in [life for life in self._new_ones if life.is_at(LoadStep.POSTPONED)]:
            why = None if self.room is None else self.room.take(life.table)
            if why is not None:
                self._on(life, MayNotCreate())
                self._arrivals.refused[life.table] = why

    def _send_out(self) -> None:
        for life in list(self.lives.to_load.due(self.clock.monotonic_s())):
            self._on(life, BeginLoad())
        if self._asked and self._together is None and len(self._loads) < LOADS_AT_ONCE:
            asked = [self._asked.take() for _ in range(min(TOGETHER, len(self._asked)))]
            if len(asked) > 1:
                self._together = asked, self.pool.submit(self._load_together, asked)
            else:
                self._alone += [(each, partial(self._load, each)) for each in asked]
        while self._alone and len(self._loads) < LOADS_AT_ONCE:
            each, work = self._alone.popleft()
            self._loads[self.pool.submit(work)] = each.life, each.number
        if self._new:
            new, self._new = self._new, []
            self._creations[self.pool.submit(self._new_states, new)] = new

    # ---- what lives ask for

    def _load_table(self, life: TableLifecycle, command: LoadTable) -> None:
        self._asked.add(Asked(life, *command))

    def _create_table(self, life: TableLifecycle, command: CreateTable) -> None:
        self._new.append((life, command.number))

    def _became_known(self, life: TableLifecycle, command: BecameKnown) -> None:
        self.newest.met(command.state)
        self._arrivals.known.append(life.table)

    def _load_trouble(self, life: TableLifecycle, command: LoadTrouble) -> None:
        self._arrivals.failed.append((life.table, command.trouble))

    # ---- in threads

    def _load_together(self, asked: Sequence[Asked]) -> Sequence[Any]:
        """What the catalog says of these, in order: metadata, an error, or None where it was not asked."""
        nothing = [None] * len(asked)
        if not self.catalog.has_extras:
            return nothing
        names = [table_name(each.life.table) for each in asked]
        try:
            with isolate("tables.not_loaded_together", foreseen=(FirnError,), tables=len(asked)):
                return self.catalog.load_tables(names, deadline_s=min(TOGETHER_S, self.timeout_s))
        except FirnError as error:
            log.info("tables.not_loaded_together", tables=len(asked), reason=str(error))
        return nothing

    def _load(self, asked: Asked) -> Found:
        name = table_name(asked.life.table)
        state = load_state(self.catalog, self.storage, name, timeout_s=self.timeout_s)
        if state is not None:
            return self._fit(asked, state)
        known = asked.known
        dropped = known is not None and known.exists and was_dropped(self.catalog, known.name, known.uuid)
        return Gone(asked.number, dropped)

    def _loaded(self, asked: Asked, result: Mapping[str, Any]) -> Found:
        return self._fit(asked, state_of(result["metadata"], table_name(asked.life.table), self.storage))

    def _fit(self, asked: Asked, state: TableState) -> Loaded:
        if why := misfit(state.schema) or misfit_of_key(state):
            raise UnfitError(
                f"table {asked.life.table} takes no rows of ours: {why}; put it right, or drop the table so "
                "that it is created anew"
            )
        return Loaded(asked.number, state)

    def _new_states(self, new: Sequence[tuple[TableLifecycle, int]]) -> list[Loaded] | None:
        """The states of tables that are created together with their first rows; None where each has to be
        tried by itself."""
        with isolate("tables.not_created_together", tables=len(new)):
            if self.catalog.has_extras:
                return [Loaded(number, self._new_state(life.table)) for life, number in new]
        return None

    def _new_state(self, table: TableId) -> TableState:
        self.look_alikes.check(table)
        return new_table_state(table_name(table), table.tenant.name, table.stream, self.warehouse)

    def _create(self, asked: Asked) -> Loaded:
        new = self._new_state(asked.life.table)
        if self.catalog.has_extras:
            return Loaded(asked.number, new)  # created together with its first rows
        name = new.name
        self.catalog.create_namespace(name.namespace, {})
        with suppress(ConflictError):  # somebody else created it: the same
            self.catalog.create_table(name, creation_request(new))
        state = load_state(self.catalog, self.storage, name, timeout_s=self.timeout_s)
        if state is None:
            raise UnavailableError(f"table {name} was created and is not there; it is tried again")
        return Loaded(asked.number, state)


def table_name(table: TableId) -> TableName:
    """The table's identifiers in the catalog."""
    return TableName(table.tenant.namespace, table.table)


def misfit_of_key(state: TableState) -> str | None:
    """Why changes cannot be applied by what the table says of its key; None where they can, or where it has
    none. Whoever may write to the table may set its properties."""
    try:
        key = parse_table_key(state.properties)
    except FatalError as error:
        return str(error)
    for name in () if key is None else key.columns:
        if (column := state.schema.by_name.get(name)) is None:
            return f"column {name[:80]!r} of its key is gone"
        if not isinstance(column.kind, str):
            return f"column {name[:80]!r} of its key is a {column.kind['type']}"
    return None


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
        column.name
        for column in schema.columns
        if column.required and column.name not in SYSTEM_COLUMNS and column.id not in schema.key_ids
    ]
    if needed:
        return f"column {needed[0]} may not be NULL, and records may lack it"
    try:
        _ = schema.arrow
    except ValueError as error:
        return str(error)
    return None
