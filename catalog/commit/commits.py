"""Commits of many tables at once: read, change, write, swap. One SQL transaction swaps everything that
passed.

The order is what makes a commit safe:
 1. read the tables' current metadata locations, and the answers already given under the same Idempotency-Keys
 2. check requirements and apply updates; who fails here is out, the others go on
 3. write the new metadata files; they are durable before anything points at them
 4. in one transaction: lock the rows, compare them with 1, swap those that are unchanged, keep the answers
 5. those that lost a race start again at 1; files that nothing points at are deleted
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import structlog
from sqlalchemy import Connection, bindparam
from sqlalchemy.exc import DataError, DBAPIError, SQLAlchemyError

from catalog.commit.dirty_partitions import record_movements
from catalog.commit.idempotency import Reply, RequestKey, find_replies, keep_replies
from catalog.commit.requirements import asserted_holds
from catalog.commit.table_changes import NextVersion, TableChange, next_version
from catalog.commit.view_changes import next_view_version
from catalog.extras.leases import LeaseToken, check_lease
from catalog.model import metrics
from catalog.model.error_response import (
    CatalogError,
    bad_request,
    forbidden,
    held,
    invalid,
    no_such_namespace,
    outcome_unknown,
    unavailable,
)
from catalog.model.identifier import Identifier, dotted
from catalog.store.database import Database, is_passing, tables
from catalog.store.holds import LIFT, holds_of
from catalog.store.metadata_store import MetadataStore, WriteTimedOut
from catalog.store.name_journal import flush, note, note_dropped, table_event
from catalog.store.namespaces import create_missing, existing_namespaces
from catalog.store.tables import (
    VIEW,
    Head,
    find_many,
    is_shared,
    lives_already,
    living_with_uuid,
    reserved_names,
    uuids_in_use,
)
from lake.clock import Clock, epoch_ms
from lake.errors import FirnError
from lake.storage import canonical

log = structlog.get_logger()
ATTEMPTS_MAX = 20

Outcome = list[NextVersion] | CatalogError


@dataclass(slots=True)
class CommitUnit:
    """Table changes that happen together or not at all; a batch holds many units that know nothing of each
    other.

    `render` turns the outcome into the answer; `deadline` is a moment of the monotonic clock, after which the
    unit is given up unchanged.
    """

    changes: Sequence[TableChange]
    render: Callable[[Outcome], Reply]
    key: RequestKey | None = None
    lease: LeaseToken | None = None
    deadline: float | None = None
    reply: Reply | None = None
    attempts: int = 0
    versions: list[NextVersion] = field(default_factory=list)
    error: CatalogError | None = None
    lost: bool = False
    unknown: bool = False
    alone: bool = False

    def writes(self) -> bool:
        """Whether it passed so far and has something to swap."""
        return self.error is None and any(version.swaps for version in self.versions)

    @property
    def idents(self) -> list[str]:
        """The keys of all its tables."""
        return [change.identifier.key for change in self.changes]

    @property
    def result(self) -> str:
        """Its outcome in one word, to count by."""
        return self.error.kind if self.error is not None else "committed" if self.versions else "repeated"

    def outcome(self) -> Outcome:
        """What became of it."""
        return self.error if self.error is not None else self.versions


class Committer:
    """Runs rounds of commits against one database and one store."""

    def __init__(
        self, database: Database, store: MetadataStore, clock: Clock, *, undo_window_s: float
    ) -> None:
        self._database = database
        self._store = store
        self._clock = clock
        self._undo_window_s = undo_window_s

    def commit(self, units: Sequence[CommitUnit]) -> None:
        """Gives every unit its reply. Units of the same table follow each other in their order. Never raises
        for one unit's sake."""
        pending = list(units)
        while pending:
            now, later = _without_overlap(pending)
            metrics.transaction_tables.observe(sum(len(unit.changes) for unit in now))
            pending = self._round(now) + later
        for result, count in Counter(unit.result for unit in units).items():
            metrics.commits.labels(result).inc(count)

    def _round(self, units: list[CommitUnit]) -> list[CommitUnit]:
        """One pass over units that share no table; returns those that lost a race and try again."""
        running: list[CommitUnit] = []
        try:
            running, heads = self._read(units)
            now_ms = epoch_ms(self._clock.now())
            for unit in running:
                self._change(unit, heads, now_ms)
            self._write(running)
            self._swap(running, now_ms)
            self._write_names(running, now_ms)
        except OutcomeLost as error:
            self._find_out(running, error)
        except (SQLAlchemyError, FirnError) as error:
            self._not_done(running or units, error)
        self._clean(running)
        return [unit for unit in running or units if unit.reply is None]

    def _read(self, units: list[CommitUnit]) -> tuple[list[CommitUnit], dict[str, Head]]:
        """Step 1."""
        with self._database.read() as connection:
            known = find_replies(
                connection, self._database, [unit.key for unit in units if unit.key is not None]
            )
            for unit in units:
                unit.error, unit.versions, unit.lost = None, [], False
                unit.reply = known.get((unit.key.key, unit.key.item)) if unit.key is not None else None
            open_units = [unit for unit in units if unit.reply is None]
            heads = find_many(connection, self._database, (key for unit in open_units for key in unit.idents))
            missing = [
                c.identifier.key
                for unit in open_units
                for c in unit.changes
                if not c.may_recreate and c.identifier.key not in heads
            ]
            reserved = self._reserved(connection, missing) if missing else set()
            for unit in open_units:
                dropped = [change.identifier for change in unit.changes if change.identifier.key in reserved]
                unit.error = _still_dropped(dropped[0]) if dropped else None
            return open_units, heads

    def _change(self, unit: CommitUnit, heads: dict[str, Head], now_ms: int) -> None:
        """Step 2."""
        if unit.error is not None:
            return
        try:
            _check_deadline(unit, self._clock)
            unit.versions = [
                _step(change, heads.get(change.identifier.key), self._store, now_ms)
                for change in unit.changes
            ]
        except CatalogError as error:
            unit.error = error
        except FirnError as error:
            unit.error = unavailable(f"{error}; nothing was changed")
        except (
            Exception
        ) as error:  # metadata that no check foresaw; the other tables of the round are not to suffer
            log.exception("catalog.change_failed", tables=[str(change.identifier) for change in unit.changes])
            unit.error = unavailable(f"the catalog cannot make this change ({error!r}); nothing was changed")

    def _write(self, units: list[CommitUnit]) -> None:
        """Step 3."""
        owners = [
            (unit, version.file)
            for unit in units
            if unit.error is None
            for version in unit.versions
            if version.file is not None
        ]
        if not owners:
            return
        outcomes = self._store.write_many([(file, unit.deadline) for unit, file in owners])
        for (unit, _), problem in zip(owners, outcomes, strict=True):
            if isinstance(problem, WriteTimedOut):
                unit.error = _timed_out(str(problem))
            elif problem is not None:
                unit.error = unavailable(f"{problem}; nothing was changed")
            elif unit.error is None:
                _mark_late(unit, self._clock)

    def _swap(self, units: list[CommitUnit], now_ms: int) -> None:
        """Step 4. Raises where the transaction as a whole did not happen, OutcomeLost where nobody knows."""
        if not any(unit.key is not None or unit.writes() for unit in units):
            for unit in units:
                unit.reply = unit.render(unit.outcome())
            return
        answers: list[tuple[CommitUnit, Reply]] = []
        complete = False
        try:
            with self._database.write() as connection:
                answers = self._answers(connection, units, now_ms)
                complete = True
        except DBAPIError as error:
            if complete and not is_passing(error):
                raise OutcomeLost(
                    f"the database did not answer the end of a transaction: {error.orig}"
                ) from error
            raise
        for unit, reply in answers:
            unit.reply = reply

    def _answers(
        self, connection: Connection, units: list[CommitUnit], now_ms: int
    ) -> list[tuple[CommitUnit, Reply]]:
        """The replies to all units but those that have lost: kept ones to what was asked before, and what
        becomes of the others now."""
        keys = [unit.key for unit in units if unit.key is not None]
        known = find_replies(connection, self._database, keys)
        kept = [
            (unit, known[unit.key.key, unit.key.item])
            for unit in units
            if unit.key is not None and (unit.key.key, unit.key.item) in known
        ]
        answered = {id(unit) for unit, _ in kept}
        fresh = [unit for unit in units if id(unit) not in answered]
        self._swap_unchanged(connection, [unit for unit in fresh if unit.writes()], now_ms)
        new = [(unit, unit.render(unit.outcome())) for unit in fresh if not unit.lost]
        replies = [(unit.key, reply) for unit, reply in new if unit.key is not None]
        keep_replies(connection, replies, now_ms)
        return kept + new

    def _swap_unchanged(self, connection: Connection, units: list[CommitUnit], now_ms: int) -> None:
        """Compares and sets: rows that are still as step 1 saw them get their new metadata location."""
        heads = find_many(
            connection, self._database, (key for unit in units for key in unit.idents), lock=True
        )
        winners = []
        for unit in units:
            unit.lost = any(
                heads.get(version.change.identifier.key) != version.head for version in unit.versions
            )
            if not unit.lost:
                winners.append(unit)
        self._check_leases(connection, winners)
        self._check_creations(connection, [unit for unit in winners if unit.error is None], now_ms)
        self._check_registrations(connection, [unit for unit in winners if unit.error is None])
        self._check_holds(connection, [unit for unit in winners if unit.error is None])
        versions = [
            version for unit in winners if unit.error is None for version in unit.versions if version.swaps
        ]
        _insert_new(connection, [_new_row(version, now_ms) for version in versions if version.head is None])
        if updates := _replaced_rows(versions, now_ms):
            connection.execute(_SWAP, updates)
            _note_replaced(connection, versions, now_ms)
        record_movements(connection, self._database, versions, now_ms)

    def _check_leases(self, connection: Connection, units: list[CommitUnit]) -> None:
        """Work done under a lease counts only while the lease is in force."""
        for lease in {unit.lease for unit in units if unit.lease is not None}:
            try:
                check_lease(connection, self._database, lease)
            except CatalogError as error:
                for unit in units:
                    if unit.lease == lease:
                        unit.error = error

    def _check_creations(self, connection: Connection, units: list[CommitUnit], now_ms: int) -> None:
        """New tables need their namespace, a uuid nobody has, and a name that no dropped table still
        holds."""
        creating = [unit for unit in units if any(version.head is None for version in unit.versions)]
        if not creating:
            return
        changes = [version.change for unit in creating for version in unit.versions if version.head is None]
        create_missing(
            connection,
            self._database,
            {c.identifier.namespace: c.create_namespace for c in changes if c.create_namespace is not None},
            now_ms,
        )
        present = existing_namespaces(
            connection, self._database, [change.identifier.namespace for change in changes]
        )
        used = uuids_in_use(
            connection, self._database, [version.uuid for unit in creating for version in unit.versions]
        )
        reserved = self._reserved(
            connection, [change.identifier.key for change in changes if not change.may_recreate]
        )
        for unit in creating:
            for version in unit.versions:
                if version.head is None and unit.error is None:
                    unit.error = _creation_problem(
                        version, present, used, reserved
                    ) or self._location_problem(connection, version)
                    used.add(version.uuid)

    def _location_problem(self, connection: Connection, version: NextVersion) -> CatalogError | None:
        shared = version.alone and is_shared(
            connection, self._database, location := canonical(version.table_location).rstrip("/")
        )
        return (
            forbidden(
                f"another table lies at, above or below {location}; leave the location out, or choose another"
            )
            if shared
            else None
        )

    def _check_registrations(self, connection: Connection, units: list[CommitUnit]) -> None:
        """A table lives under one name: files that one name no longer needs are deleted, whatever another
        refers to."""
        for unit in units:
            for version in unit.versions:
                if version.change.register is not None and version.change.kind != VIEW and unit.error is None:
                    living = living_with_uuid(connection, version.uuid)
                    unit.error = (
                        None
                        if living in (None, version.change.identifier.key)
                        else lives_already(str(living))
                    )

    def _check_holds(self, connection: Connection, units: list[CommitUnit]) -> None:
        """What is held stays: who relies on the holds there were is refused where others are in force by now,
        and so is whoever might take away rows that are held."""
        for unit in units:
            for version in unit.versions:
                asserted = asserted_holds(version.change.requirements)
                if unit.error is None and (asserted or version.may_lose or version.takes_a_place):
                    unit.error = self._hold_problem(connection, version, asserted)

    def _hold_problem(
        self, connection: Connection, version: NextVersion, asserted: Sequence[str | None]
    ) -> CatalogError | None:
        identifier = version.change.identifier
        found = holds_of(connection, identifier, locking=self._database.locking())
        if any(text != found.text for text in asserted):
            return held(f"the legal holds on {identifier} have changed meanwhile; nothing was taken away")
        if not found.holds or not (version.may_lose or version.takes_a_place):
            return None
        return held(
            f"{identifier} is not changed: {found.holds[0]} is on it, so a key that is bound to a namespace "
            f"changes no snapshot of it and drops no column, and no other table takes its place; {LIFT}"
        )

    def _reserved(self, connection: Connection, keys: list[str]) -> set[str]:
        kept_since_ms = epoch_ms(self._clock.now()) - int(self._undo_window_s * 1_000)
        return reserved_names(connection, self._database, keys, kept_since_ms=kept_since_ms)

    def _write_names(self, units: list[CommitUnit], now_ms: int) -> None:
        """New names go into the warehouse before anybody is told of them."""
        if any(
            version.head is None
            for unit in units
            if unit.reply is not None and unit.error is None
            for version in unit.versions
        ):
            try:
                flush(self._database, self._store, now_ms)
            except (
                SQLAlchemyError,
                FirnError,
            ) as error:  # they stay in the database and go with the next ones
                log.warning("catalog.names_not_written", error=str(error))

    def _clean(self, units: list[CommitUnit]) -> None:
        """Step 5: new files are remembered where they were swapped in and deleted where they lost; files past
        their log are deleted."""
        unneeded: list[str] = []
        for unit in units:
            if unit.unknown:
                continue
            for version in unit.versions:
                if version.file is None:
                    continue
                if unit.reply is not None and unit.error is None and not unit.lost:
                    self._store.remember(version.location, version.data)
                    self._store.forget([version.head.metadata_location] if version.head is not None else [])
                    unneeded += version.unneeded
                else:
                    unneeded.append(version.location)
        if unneeded:
            self._store.delete_later(unneeded)

    def _find_out(self, units: list[CommitUnit], error: Exception) -> None:
        """After a lost answer of the database: what is found swapped is done, of the rest nobody can tell."""
        log.error("catalog.outcome_unknown", error=str(error), units=len(units))
        try:
            with self._database.read() as connection:
                heads = find_many(connection, self._database, (key for unit in units for key in unit.idents))
        except (SQLAlchemyError, FirnError):
            heads = {}
        for unit in units:
            found = [heads.get(version.change.identifier.key) for version in unit.versions]
            done = (
                unit.error is None
                and bool(found)
                and all(
                    head is not None and head.metadata_location == version.location
                    for head, version in zip(found, unit.versions, strict=True)
                )
            )
            if unit.error is None and not done:
                unit.unknown = True
                unit.error = outcome_unknown(
                    f"{error}; load the table to see whether the commit happened, or repeat it with the same "
                    "Idempotency-Key"
                )
            unit.reply = unit.render(unit.outcome())

    def _not_done(self, units: list[CommitUnit], error: Exception) -> None:
        """The transaction did not happen; it is tried again where that may help, each unit alone where a
        value of one was refused."""
        passing = isinstance(error, DBAPIError) and is_passing(error)
        split = isinstance(error, DataError) and len(units) > 1
        log.warning("catalog.round_not_done", error=str(error), units=len(units), again=passing or split)
        for unit in units:
            unit.attempts += 1
            unit.lost, unit.alone = True, unit.alone or split
            if not (passing or split) or unit.attempts >= ATTEMPTS_MAX:
                cause = error.orig if isinstance(error, DBAPIError) else error
                unit.error = unit.error or unavailable(
                    f"the database refused the transaction: {cause}; nothing was changed, try again"
                )
                unit.reply = unit.render(unit.outcome())


_SWAP = (
    tables.update()
    .where(tables.c.id == bindparam("row_id"))
    .values(
        uuid=bindparam("uuid"),
        metadata_location=bindparam("metadata_location"),
        location=bindparam("location"),
        changed_ms=bindparam("changed_ms"),
    )
)


def _note_replaced(connection: Connection, versions: Sequence[NextVersion], now_ms: int) -> None:
    """A registration may put another table in the place of one: the name goes from the old uuid to the new
    one. A table that moves is noted too."""
    for version in versions:
        head, ident = version.head, version.change.identifier.key
        if head is not None and head.uuid != version.uuid:
            note_dropped(connection, ident, head.uuid, purge=False, dropped_ms=now_ms)
        if head is not None and (
            head.uuid != version.uuid or head.location != canonical(version.table_location).rstrip("/")
        ):
            note(connection, [table_event(ident, version.change.kind, version.uuid, version.table_location)])


def _step(change: TableChange, head: Head | None, store: MetadataStore, now_ms: int) -> NextVersion:
    return (next_view_version if change.kind == VIEW else next_version)(change, head, store, now_ms)


class OutcomeLost(FirnError):
    """The database's answer to COMMIT is missing."""


def _without_overlap(units: list[CommitUnit]) -> tuple[list[CommitUnit], list[CommitUnit]]:
    """Splits units into those that share no table and those that have to wait for them, both in their
    order."""
    if units[0].alone:
        return units[:1], units[1:]
    seen: set[str] = set()
    now: list[CommitUnit] = []
    later: list[CommitUnit] = []
    for unit in units:
        keys = unit.idents
        if len(set(keys)) < len(keys):
            unit.reply = unit.render(
                bad_request("a table is named twice in one transaction; put its updates into one change")
            )
            continue
        (later if seen.intersection(keys) else now).append(unit)
        seen.update(keys)
    return now, later


def _check_deadline(unit: CommitUnit, clock: Clock) -> None:
    if unit.deadline is not None and clock.monotonic_s() > unit.deadline:
        raise _timed_out("the commit waited longer than its deadline")


def _mark_late(unit: CommitUnit, clock: Clock) -> None:
    try:
        _check_deadline(unit, clock)
    except CatalogError as error:
        unit.error = error


def _timed_out(message: str) -> CatalogError:
    return CatalogError(503, "CommitTimeoutException", f"{message}; nothing was changed")


def _creation_problem(
    version: NextVersion, present: set[str], used: set[str], reserved: set[str]
) -> CatalogError | None:
    identifier = version.change.identifier
    if identifier.namespace not in present:
        return no_such_namespace(dotted(identifier.namespace))
    if version.uuid in used and version.change.register is None:
        return invalid(f"table-uuid {version.uuid} belongs to another table; choose a new one")
    if identifier.key in reserved:
        return _still_dropped(identifier)
    return None


def _still_dropped(identifier: Identifier) -> CatalogError:
    return CatalogError(
        409,
        "TableDeletedException",
        f"{identifier} was dropped and may still come back; undo the drop, or wait for its purge",
    )


def _insert_new(connection: Connection, rows: list[dict[str, object]]) -> None:
    """Tables and views that begin, each with its event."""
    if not rows:
        return
    connection.execute(tables.insert(), rows)
    events = [
        table_event(str(row["ident"]), str(row["kind"]), str(row["uuid"]), str(row["location"]))
        for row in rows
    ]
    note(connection, events)


def _replaced_rows(versions: Sequence[NextVersion], now_ms: int) -> list[dict[str, object]]:
    """What `_SWAP` is given for those that were there."""
    return [
        {
            "row_id": version.head.id,
            "uuid": version.uuid,
            "metadata_location": version.location,
            "location": canonical(version.table_location).rstrip("/"),
            "changed_ms": now_ms,
        }
        for version in versions
        if version.head is not None
    ]


def _new_row(version: NextVersion, now_ms: int) -> dict[str, object]:
    identifier = version.change.identifier
    return {
        "ident": identifier.key,
        "namespace": identifier.namespace,
        "name": identifier.name,
        "kind": version.change.kind,
        "uuid": version.uuid,
        "location": canonical(version.table_location).rstrip("/"),
        "metadata_location": version.location,
        "created_ms": now_ms,
        "changed_ms": now_ms,
    }
