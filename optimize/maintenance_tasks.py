"""What is done daily or weekly: retention, purge of dropped tables, orphan files. When each was done last is
kept in the catalog.

Retention and purge are due once in every interval since 1970, which with a day begins at midnight UTC, and
retention takes what was past it then. So days leave whole where a retention is one of whole days, as nearly
all are: a file of a day of which some hours are past it would have to be written anew, daily, in each table.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice

import structlog

from lake.catalog_client import TableName
from lake.clock import epoch_ms
from lake.errors import FirnError, NotFoundError, RefusedError
from lake.extras_client import ExtrasClient, Task
from lake.holds import TableHolds
from lake.purged_tables import forget_old
from lake.retention import PROPERTY, first_hour_kept
from lake.settings import StorageSettings
from lake.table_layout import KEY_PROPERTY
from lake.table_loads import Loaded, load_each
from optimize.boundary_cut import cut_job
from optimize.commit_round import CommitOutcome, Pending
from optimize.dangling_deletes import dangling_deletes
from optimize.history import Entry
from optimize.inventory import AllTables, NamedTables
from optimize.layout import layout_of
from optimize.maintenance import Maintenance, there
from optimize.merge_job import Bin, JobResult, MergeJob
from optimize.orphan_files import Orphans, delete_orphans, find_orphans, remove_empty_folders
from optimize.planner import timestamp_id
from optimize.purge import Dropped, purge, purgeable
from optimize.replacement import REWRITE_BRANCH
from optimize.retention import KEYED, Expired, expired_files
from optimize.snapshots import to_expire
from optimize.table_view import TableView, view_of

KIND = "optimize.duty"
ROUND = "round"
DAILY, WEEKLY = ("retention", "purge"), ("orphans",)  # by default
log = structlog.get_logger()
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Note = Callable[[Entry], None]
# Tables that are loaded, and dealt with, at a time; of retention, twice as many have their views in memory.
TABLES_TOGETHER = 50


@dataclass(slots=True)
class _Retained:
    """A table and what of it is past its retention; `view` None: it cannot be read. `job`: files that are to
    be written anew, `results`: what became of them."""

    expired: Expired
    view: TableView | None = None
    job: MergeJob | None = None
    results: list[JobResult] = field(default_factory=list)

    @property
    def takes(self) -> bool:
        """Whether any rows go."""
        return bool(self.expired.files or self.expired.cut)

    def pending(self, *, has_holds: bool, is_fresh: bool) -> Pending:
        """Its change. A hold that is set from here on makes the catalog refuse it (`has_holds`: it has
        them). `is_fresh`: the table was just loaded."""
        assert self.view is not None
        asserts = (self.expired.holds.requirement(),) if has_holds else ()
        merged = tuple(merged for result in self.results for merged in result.merged)
        return Pending(self.view, merged, self.expired.files, asserts=asserts, is_fresh=is_fresh)

    def settle(self, one: Pending, problem: str) -> None:
        """Takes note of what became of its change. `problem`: of all changes that were sent together."""
        done = one.outcome is CommitOutcome.COMMITTED
        failed = one.outcome is CommitOutcome.FAILED or (self.takes and not done)
        reasons = [*(result.failure for result in self.results), (one.reason or problem) if failed else ""]
        reason = next(filter(None, reasons), problem if one.outcome is None else "")
        after = sum(file.rows for each in one.merged for file in each.outputs)
        before = sum(file.rows for each in one.merged for file in each.group.inputs)
        self.expired = replace(self.expired, cut_rows=before - after, reason=reason or self.expired.reason)


@dataclass(frozen=True, slots=True)
class MaintenanceTasks:
    """The tasks over the parts of a maintenance."""

    maintenance: Maintenance

    def run_due(self, names: Collection[str] = (*DAILY, *WEEKLY)) -> None:
        """Runs every one of these tasks whose interval is over; one that fails does not stop the others, and
        is tried again at the next round."""
        s = self.maintenance.settings
        now_ms = epoch_ms(self.maintenance.clock.now())
        began_ms = interval_begin_ms(s.retention.interval_s, now_ms)
        orphans_ms = now_ms - int(s.retention.orphan_interval_s * 1000)
        works: dict[str, tuple[int, Callable[[], object]]] = {
            "retention": (began_ms, lambda: list(self.retention(expire=True, as_of_ms=began_ms))),
            "purge": (began_ms, lambda: list(self.purge())),
            "orphans": (orphans_ms + 1, lambda: list(self.orphans(delete=True))),
        }
        for name in names:
            due_before_ms, work = works[name]
            version, last_ms = self._last(name)
            if last_ms >= due_before_ms or self.maintenance.halted():
                continue
            try:
                work()
                if not self.maintenance.halted():  # what was interrupted is not done
                    self._done(name, version, now_ms)
            except FirnError as error:
                log.warning("optimize.task_failed", task=name, error=str(error))

    def note_round(self) -> None:
        """Remembers that a round over all tables has ended, by which others tell whether maintenance is
        behind."""
        try:
            self._done(ROUND, self._last(ROUND)[0], epoch_ms(self.maintenance.clock.now()))
        except FirnError as error:
            log.warning("optimize.round_not_noted", error=str(error))

    def retention(
        self, *, dry_run: bool = False, expire: bool = False, as_of_ms: int | None = None
    ) -> Iterator[Expired]:
        """Takes rows past their retention, by whole hours, from every table that has one; gives what went (or
        would go), and why not where it failed.

        `as_of_ms` (since 1970; None: now): what is past it since then stays. `expire`: snapshots and
        manifests of all tables are brought within their limits on the way, also of those without retention
        that no merge ever touches.
        """
        # While some tables are committed, which is waiting for the most part, the next are looked at.
        with self.maintenance.history.together() as note, ThreadPoolExecutor(1) as beside:
            before: Future[list[Expired]] | None = None
            for found in self._some_looked_at(as_of_ms):
                if before is not None:
                    yield from before.result()
                before = beside.submit(self._retained, found, note, dry_run=dry_run, expire=expire)
            if before is not None:
                yield from before.result()

    def _some_looked_at(self, as_of_ms: int | None) -> Iterator[list[_Retained]]:
        """All tables, some at a time."""
        loads = load_each(self.maintenance.catalog, self._tables(), TABLES_TOGETHER)
        while (some := list(islice(loads, TABLES_TOGETHER))) and not self.maintenance.halted():
            yield [each for one in some if (each := self._looked_at(*one, as_of_ms)) is not None]

    def _retained(
        self, found: Sequence[_Retained], note: Note, *, dry_run: bool, expire: bool
    ) -> list[Expired]:
        """What retention takes from some tables, or takes not although it should. Their files are written
        anew, and their commits sent, together: each by itself would wait for a Spark job and for the disk."""
        if self.maintenance.halted():
            return []
        if not dry_run:
            self._commit(
                [each for each in found if each.takes or (expire and self._is_to_be_tidied(each))], note
            )
        told = []
        for each in found:
            expired, table = each.expired, str(each.expired.table)
            if expired.reason:
                log.warning("optimize.retention_failed", table=table, error=expired.reason)
            if expired.held:
                names = [str(hold) for hold in expired.holds.holds]
                log.info("optimize.retention_held", table=table, files=len(expired.held), holds=names)
            if expired.files or expired.cut or expired.held or expired.reason:
                told.append(expired)
        return told

    def _looked_at(self, table: TableName, loaded: Loaded, as_of_ms: int | None) -> _Retained | None:
        """A table with what is past its retention; None where it is gone, or has no rows yet."""
        m = self.maintenance
        try:
            found = there(loaded)
            view = None if found is None else view_of(found, table, m.storage)
            if view is None or view.state.head is None:
                return None
            expired = self._expired(view, as_of_ms)
            if not expired.cut:
                return _Retained(expired, view)
            return _Retained(
                expired, view, cut_job(view, expired, layout_of(view.metadata, view.state.schema, m.settings))
            )
        except (FirnError, ValueError) as error:
            return _Retained(Expired(table, reason=str(error)))

    def _is_to_be_tidied(self, each: _Retained) -> bool:
        """Whether there is something to commit though no row goes. For most tables there is not, every day,
        and a commit of nothing would load each of them once more."""
        m, view = self.maintenance, each.view
        if view is None:
            return False
        try:
            return bool(
                to_expire(view.metadata, m.settings, epoch_ms(m.clock.now()))
                or len(view.own_manifests()) > m.settings.merge.manifests_max
                or REWRITE_BRANCH in view.metadata.get("refs", {})
                or dangling_deletes(view)
            )
        except (FirnError, ValueError):  # the commit says what is wrong with it
            return True

    def _expired(self, view: TableView, as_of_ms: int | None) -> Expired:
        properties = view.state.properties
        if KEY_PROPERTY in properties:
            return Expired(view.name, reason=KEYED if properties.get(PROPERTY) else "")
        try:
            hours = self.maintenance.policies.of(view.name, properties).hours
        except ValueError as error:
            return Expired(view.name, reason=str(error))
        if hours is None:
            return Expired(view.name)
        now_ms = epoch_ms(self.maintenance.clock.now()) if as_of_ms is None else as_of_ms
        if not view.begins_before(first_hour_kept(hours, now_ms)):  # most tables, every day: nothing is read
            return Expired(view.name)
        deletes = [file for at, files in view.delete_files().items() if at is not None for file in files]
        find = partial(
            expired_files,
            view.name,
            list(view.partitions(before_hour=first_hour_kept(hours, now_ms)).values()),
            deletes,
            hours,
            now_ms,
            time_id=timestamp_id(view.state.schema),
        )
        expired = find()
        if not (expired.files or expired.cut):
            return expired
        return find(holds=self._holds_on(view.name))

    def _holds_on(self, table: TableName) -> TableHolds:
        """What our catalog said of all tables within the last minute is good enough: the commit asserts it.
        Another catalog is asked for each table, just before."""
        m = self.maintenance
        if m.catalog.has_extras:
            return m.policies.table_holds(table)
        return TableHolds.of(table.name, m.catalog.namespace_properties(table.namespace))

    def _commit(self, retained: Sequence[_Retained], note: Note) -> None:
        """Carries retention out, and the expiry of snapshots with it."""
        m = self.maintenance
        self._cut(retained)
        is_fresh = all(each.job is None for each in retained)  # else executors have taken their time
        pending = [each.pending(has_holds=m.catalog.has_extras, is_fresh=is_fresh) for each in retained]
        problem = ""
        try:
            m.commits.commit(pending)
        except FirnError as error:
            problem = str(error)
        for each, one in zip(retained, pending, strict=True):
            each.settle(one, problem)
            if each.takes:
                self._note(each, one, note)

    def _note(self, each: _Retained, one: Pending, note: Note) -> None:
        expired, new = each.expired, [file for merged in one.merged for file in merged.outputs]
        table, outcome = str(expired.table), expired.reason or "done"
        files = len(expired.files) + len(one.merged)
        now, size_bytes = self.maintenance.clock.now(), expired.size_bytes
        note(Entry(now, table, "retention", outcome, files, len(new), size_bytes, expired.rows))
        log.info("optimize.retention", table=table, files=files, rows=expired.rows, outcome=outcome)

    def _cut(self, retained: Sequence[_Retained]) -> None:
        """Writes the files that are past the retention in part anew, on all executors."""
        m, cut = self.maintenance, {each.job.table: each for each in retained if each.job is not None}
        jobs = [each.job for each in cut.values() if each.job is not None]
        if not jobs:
            return  # no Spark is started for nothing
        try:
            now_ms, count = epoch_ms(m.clock.now()), min(len(jobs), m.executor.slots())
            bins = [Bin(jobs[at::count], StorageSettings.load(), now_ms) for at in range(count)]
            for results in m.executor.run(bins, m.halted):
                for result in results:
                    cut[result.job.table].results.append(result)
        except FirnError as error:
            for job in jobs:
                cut[job.table].results.append(JobResult(job, (), str(error)))

    def purge(self, *, dry_run: bool = False, only_at_once: bool = False) -> Iterator[tuple[Dropped, int]]:
        """Purges dropped tables whose time is over, and those that somebody wants gone at once, or only
        these; gives each with the number of files deleted."""
        m = self.maintenance
        now_ms = epoch_ms(m.clock.now())
        before_ms = now_ms - int(m.settings.retention.purge_after_s * 1000)
        if m.catalog.has_extras and not dry_run and not only_at_once:
            forget_old(m.catalog, now_ms)
        with m.history.together() as note:
            for dropped in list(purgeable(m.catalog, before_ms, only_at_once=only_at_once)):
                if m.halted():
                    return
                files = 0
                try:
                    if not dry_run:
                        files = purge(m.catalog, m.storage, dropped, m.commits.deletions.throttle)
                except RefusedError as error:  # a hold that was set just now
                    dropped = replace(dropped, refusal=str(error))
                if not dry_run and not dropped.refusal:
                    note(Entry(m.clock.now(), dropped.name, "purge", files_before=files))
                yield dropped, files

    def orphans(self, *, delete: bool) -> Iterator[tuple[Orphans, str]]:
        """Looks for orphan files below every table, and deletes them where asked to; gives what was found,
        and why it stays."""
        with self.maintenance.history.together() as note:
            for table, loaded in load_each(self.maintenance.catalog, self._tables(), TABLES_TOGETHER):
                if self.maintenance.halted():
                    return
                try:
                    found = self._orphans(table, loaded, note, delete=delete)
                except (FirnError, ValueError) as error:
                    log.warning("optimize.orphans_kept", table=str(table), reason=str(error))
                    yield Orphans(table, 0, (), 0), str(error)
                    continue
                if found is not None:
                    yield found, ""

    def _orphans(self, table: TableName, loaded: Loaded, note: Note, *, delete: bool) -> Orphans | None:
        """Those below one table; None where there are none."""
        m, throttle = self.maintenance, self.maintenance.commits.deletions.throttle
        answer = there(loaded)
        if answer is None:
            return None
        age_min = timedelta(seconds=m.settings.retention.orphan_age_min_s)
        found = find_orphans(
            m.catalog,
            m.storage,
            table,
            throttle,
            age_min_s=age_min.total_seconds(),
            now=m.clock.now(),
            metadata=answer["metadata"],
        )
        if found is not None and delete:
            remove_empty_folders(m.catalog, m.storage, answer["metadata"], m.clock.now() - age_min)
        if found is None or not found.files:
            return None
        if delete:
            count = delete_orphans(m.catalog, m.storage, found, throttle)
            size_bytes = found.size_bytes
            note(Entry(m.clock.now(), str(table), "orphans", files_before=count, size_bytes=size_bytes))
        return found

    def _tables(self) -> Iterator[TableName]:
        """All tables (or those named on the command line): retention and orphans concern tables that nobody
        writes to as well."""
        named = self.maintenance.inventory
        source = named if isinstance(named, NamedTables) else AllTables(self.maintenance.catalog)
        return (candidate.table for candidate in source.candidates())

    def _last(self, name: str) -> tuple[int, int]:
        """Version of the entry and when the task was done last, ms since 1970."""
        catalog = self.maintenance.catalog
        if not catalog.has_extras:
            return 0, 0
        try:
            task = ExtrasClient(catalog).find_task(KIND, f"{KIND}:{name}")
        except NotFoundError:
            return 0, 0
        return (0, 0) if task is None else (task.version, int(task.record["at-ms"]))

    def _done(self, name: str, version: int, now_ms: int) -> None:
        m = self.maintenance
        if m.catalog.has_extras:
            task = Task(f"{KIND}:{name}", KIND, "done", version, {"at-ms": now_ms})
            ExtrasClient(m.catalog).save_tasks([task], lease=m.states.lease)


def interval_begin_ms(interval_s: float, now_ms: int) -> int:
    """When the interval of now began, of those that follow each other since 1970."""
    interval_ms = max(1, int(interval_s * 1000))
    return now_ms - now_ms % interval_ms


def moment(at_us: int) -> str:
    """A time, µs since 1970, as a person reads it."""
    return f"{_EPOCH + timedelta(microseconds=at_us):%Y-%m-%d %H:%M:%S} UTC"
