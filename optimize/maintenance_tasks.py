"""What is done daily or weekly: retention, purge of dropped tables, orphan files. When each was done last is
kept in the catalog."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial

import structlog

from lake.catalog_client import TableName
from lake.clock import epoch_ms
from lake.errors import FirnError, NotFoundError, RefusedError
from lake.extras_client import ExtrasClient, Task
from lake.holds import TableHolds
from lake.purged_tables import forget_old
from lake.retention import PROPERTY
from lake.settings import StorageSettings
from lake.table_layout import KEY_PROPERTY
from optimize.boundary_cut import cut_job
from optimize.commit_round import CommitOutcome, Pending
from optimize.history import Entry
from optimize.inventory import AllTables, NamedTables
from optimize.layout import layout_of
from optimize.maintenance import Maintenance
from optimize.merge_job import Bin, JobResult
from optimize.orphan_files import Orphans, delete_orphans, find_orphans
from optimize.planner import timestamp_id
from optimize.purge import Dropped, purge, purgeable
from optimize.retention import KEYED, Expired, expired_files
from optimize.table_view import TableView, load_view

KIND = "optimize.duty"
ROUND = "round"
log = structlog.get_logger()
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class MaintenanceTasks:
    """The tasks over the parts of a maintenance."""

    maintenance: Maintenance

    def run_due(self) -> None:
        """Runs every task whose interval is over; one that fails does not stop the others, and is tried again
        at the next round."""
        s = self.maintenance.settings
        works: dict[str, tuple[float, Callable[[], object]]] = {
            "retention": (s.retention.interval_s, lambda: list(self.retention(expire=True))),
            "purge": (s.retention.interval_s, lambda: list(self.purge())),
            "orphans": (s.retention.orphan_interval_s, lambda: list(self.orphans(delete=True))),
        }
        for name, (interval_s, work) in works.items():
            version, last_ms = self._last(name)
            now_ms = epoch_ms(self.maintenance.clock.now())
            if now_ms - last_ms < interval_s * 1000 or self.maintenance.halted():
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

    def retention(self, *, dry_run: bool = False, expire: bool = False) -> Iterator[Expired]:
        """Takes rows past their retention, by whole hours, from every table that has one; gives what went (or
        would go), and why not where it failed.

        `expire`: snapshots and manifests of all tables are brought within their limits on the way, also of
        those without retention that no merge ever touches.
        """
        m = self.maintenance
        for table in self._tables():
            if m.halted():
                return
            try:
                view = load_view(m.catalog, m.storage, table)
                if view is None or view.state.head is None:
                    continue
                expired = self._expired(view)
                if not dry_run and (expired.files or expired.cut or expire):
                    expired = self._commit(view, expired)
            except (FirnError, ValueError) as error:
                expired = Expired(table, reason=str(error))
            if expired.reason:
                log.warning("optimize.retention_failed", table=str(table), error=expired.reason)
            if expired.held:
                names = [str(hold) for hold in expired.holds.holds]
                log.info("optimize.retention_held", table=str(table), files=len(expired.held), holds=names)
            if expired.files or expired.cut or expired.held or expired.reason:
                yield expired

    def _expired(self, view: TableView) -> Expired:
        properties = view.state.properties
        if KEY_PROPERTY in properties:
            return Expired(view.name, reason=KEYED if properties.get(PROPERTY) else "")
        try:
            hours = self.maintenance.policies.of(view.name, properties).hours
        except ValueError as error:
            return Expired(view.name, reason=str(error))
        if hours is None:
            return Expired(view.name)
        deletes = [file for at, files in view.delete_files().items() if at is not None for file in files]
        find = partial(
            expired_files,
            view.name,
            list(view.partitions().values()),
            deletes,
            hours,
            epoch_ms(self.maintenance.clock.now()),
            time_id=timestamp_id(view.state.schema),
        )
        expired = find()
        if not (expired.files or expired.cut):
            return expired
        said = self.maintenance.catalog.namespace_properties(view.name.namespace)
        return find(holds=TableHolds.of(view.name.name, said))

    def _commit(self, view: TableView, expired: Expired) -> Expired:
        m, cut = self.maintenance, self._cut(view, expired)
        # A hold that is set from here on makes the catalog refuse the commit.
        asserts = (expired.holds.requirement(),) if m.catalog.has_extras else ()
        merged = tuple(merged for result in cut for merged in result.merged)
        one = Pending(view, merged, expired.files, asserts=asserts)
        m.commits.commit([one])
        takes = bool(expired.files or expired.cut)
        failed = one.outcome is CommitOutcome.FAILED or (takes and one.outcome is not CommitOutcome.COMMITTED)
        reasons = [*(result.failure for result in cut), one.reason if failed else ""]
        reason = next(filter(None, reasons), "")
        if takes:
            new = [file for each in one.merged for file in each.outputs]
            before = sum(file.rows for each in one.merged for file in each.group.inputs)
            expired = replace(expired, cut_rows=before - sum(file.rows for file in new))
            files = len(expired.files) + len(one.merged)
            entry = Entry(
                str(view.name),
                "retention",
                reason or "done",
                files,
                len(new),
                expired.size_bytes,
                expired.rows,
            )
            m.history.write([entry])
            log.info(
                "optimize.retention",
                table=str(view.name),
                files=files,
                rows=expired.rows,
                outcome=reason or "done",
            )
        return replace(expired, reason=reason or expired.reason)

    def _cut(self, view: TableView, expired: Expired) -> list[JobResult]:
        """Writes the files that are past the retention in part anew."""
        if not expired.cut:
            return []
        m = self.maintenance
        job = cut_job(view, expired, layout_of(view.metadata, view.state.schema, m.settings))
        one = Bin([job], StorageSettings.load(), epoch_ms(m.clock.now()))
        return [result for results in m.executor.run([one], m.halted) for result in results]

    def purge(self, *, dry_run: bool = False, only_at_once: bool = False) -> Iterator[tuple[Dropped, int]]:
        """Purges dropped tables whose time is over, and those that somebody wants gone at once, or only
        these; gives each with the number of files deleted."""
        m = self.maintenance
        now_ms = epoch_ms(m.clock.now())
        before_ms = now_ms - int(m.settings.retention.purge_after_s * 1000)
        if m.catalog.has_extras and not dry_run and not only_at_once:
            forget_old(m.catalog, now_ms)
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
                m.history.write([Entry(dropped.name, "purge", files_before=files)])
            yield dropped, files

    def orphans(self, *, delete: bool) -> Iterator[tuple[Orphans, str]]:
        """Looks for orphan files below every table, and deletes them where asked to; gives what was found,
        and why it stays."""
        m = self.maintenance
        for table in self._tables():
            if m.halted():
                return
            try:
                found = find_orphans(
                    m.catalog,
                    m.storage,
                    table,
                    m.commits.deletions.throttle,
                    age_min_s=m.settings.retention.orphan_age_min_s,
                    now=m.clock.now(),
                )
                if found is None or not found.files:
                    continue
                if delete:
                    count = delete_orphans(m.catalog, m.storage, found, m.commits.deletions.throttle)
                    m.history.write(
                        [Entry(str(table), "orphans", files_before=count, size_bytes=found.size_bytes)]
                    )
                yield found, ""
            except (FirnError, ValueError) as error:
                log.warning("optimize.orphans_kept", table=str(table), reason=str(error))
                yield Orphans(table, 0, (), 0), str(error)

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


def moment(at_us: int) -> str:
    """A time, µs since 1970, as a person reads it."""
    return f"{_EPOCH + timedelta(microseconds=at_us):%Y-%m-%d %H:%M:%S} UTC"
