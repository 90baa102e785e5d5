"""One round of maintenance, in one place.

    inventory -> table views -> planner -> turns and budget -> bins -> Spark -> proof -> commits -> deletions

Nothing of a round is kept but what is committed: one that is killed leaves files nobody refers to, and the next round, of whatever leader,
plans the same work again from the tables themselves.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import structlog

from lake import metrics
from lake.catalog_client import CatalogClient, TableName
from lake.clock import Clock, epoch_ms
from lake.errors import FirnError
from lake.settings import OptimizeSettings, StorageSettings
from lake.storage import AnyStorage
from lake.table_layout import TENANT_PROPERTY
from optimize.bins import Work, layout_of, pack, split_work, take_turns, to_job, within_budget
from optimize.commit_round import CommitRound, Fate, Pending
from optimize.history import Entry, History
from optimize.ingestion_lag import Share, lag_records, share_of
from optimize.inventory import Candidate, Inventory
from optimize.merge_job import Bin, JobResult, MergeJob
from optimize.planner import Engine, TableFacts, TablePlan, plan_table, timestamp_id
from optimize.snapshots import expirable
from optimize.spark_executor import Executor
from optimize.table_states import TableStates
from optimize.table_view import TableView, load_view

log = structlog.get_logger()
EXPIRY_TABLES = 200


@dataclass(slots=True)
class Planned:
    """A table with its plan and the version the plan was made for."""

    plan: TablePlan
    view: TableView


@dataclass(slots=True)
class RoundReport:
    """What a round did."""

    tables: int = 0
    merged_tables: int = 0
    rewritten_hours: int = 0
    files_before: int = 0
    files_after: int = 0
    bytes_merged: int = 0
    snapshots_expired: int = 0
    files_deleted: int = 0
    executor_cpu_s: float = 0.0
    paused: int = 0
    waiting: set[str] = field(default_factory=set)
    held_back: str = ""
    failures: dict[str, str] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)
    entries: list[Entry] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Maintenance:
    """The parts of a round. `halted` says that the round is to end early: SIGTERM, or the lease is lost."""

    catalog: CatalogClient
    storage: AnyStorage
    settings: OptimizeSettings
    clock: Clock
    inventory: Inventory
    commits: CommitRound
    executor: Executor
    states: TableStates
    history: History
    halted: Callable[[], bool] = lambda: False

    def run(self) -> RoundReport:
        """One round: merges, rewrites, expiry, physical deletion, history."""
        report, s = RoundReport(), self.settings
        self.states.load()
        planned = {p.plan.table: p for p in self.plan(report) if p.plan.is_due}
        share = self.share()
        work = take_turns(w for p in planned.values() for w in split_work(p.plan, Engine.ARROW, s.bin_cost_s_max))
        now, later = within_budget(work, s.round_cost_s_max * share.share)
        report.waiting, report.held_back = {str(w.plan.table) for w in later}, share.reason
        if now:
            self._merge(now, planned, report)
        self._rewrite(planned.values(), report)
        merging = {w.plan.table for w in now}
        self._expire([p for p in planned.values() if p.plan.table not in merging], report)
        if not self.halted():
            report.files_deleted = self.commits.deletions.delete_due(self.storage)
        self._remember(report)
        return report

    def share(self) -> Share:
        """How much of a round's budget ingestion leaves."""
        return share_of(lag_records(self.settings.ingest_uris), self.settings)

    def plan(self, report: RoundReport, only: TableName | None = None) -> Iterator[Planned]:
        """Loads the candidates and plans each; a table that cannot be read is reported and left out, one that is paused as well."""
        candidates: Iterable[Candidate] = self.inventory.candidates() if only is None else [Candidate(only)]
        now_ms = epoch_ms(self.clock.now())
        for candidate in candidates:
            if self.halted():
                return
            report.tables += 1
            if self.states.paused(candidate.table, now_ms):
                report.paused += 1
                continue
            try:
                view = load_view(self.catalog, self.storage, candidate.table)
                if view is not None and view.state.head is not None:
                    yield Planned(self.plan_view(view, candidate.hours), view)
            except (FirnError, ValueError, KeyError) as error:
                self._note_failure(report, str(candidate.table), f"{type(error).__name__}: {error}")

    def plan_view(self, view: TableView, hours: frozenset[int] | None) -> TablePlan:
        """The plan of one loaded table."""
        s, now_ms = self.settings, epoch_ms(self.clock.now())
        properties = view.state.properties
        facts = TableFacts(
            table=view.name,
            tenant=properties.get(TENANT_PROPERTY, view.name.namespace),
            timestamp_id=timestamp_id(view.state.schema),
            data_manifests=len(view.data_manifests()),
            expirable=expirable(view.metadata, keep=s.snapshots_max, age_max_ms=int(s.snapshot_age_max_s * 1000), now_ms=now_ms),
            has_been_replaced=any(snapshot.get("summary", {}).get("operation") == "replace" for snapshot in view.snapshots),
            properties=properties,
        )
        return plan_table(facts, view.partitions(hours).values(), s, now_ms)

    def _merge(self, work: Sequence[Work], planned: dict[TableName, Planned], report: RoundReport) -> None:
        storage_settings, now_ms = StorageSettings.load(), epoch_ms(self.clock.now())
        bins = [
            Bin([self._job(one, planned[one.plan.table].view) for one in group], storage_settings, now_ms)
            for group in pack(work, self.executor.slots(), self.settings.bin_cost_s_max)
        ]
        for results in self.executor.run(bins, self.halted):
            self._commit(results, planned, report)

    def _job(self, work: Work, view: TableView) -> MergeJob:
        layout = layout_of(view.state.properties, [column.name for column in view.state.schema.columns], self.settings)
        return to_job(work, view, layout)

    def _commit(self, results: Sequence[JobResult], planned: dict[TableName, Planned], report: RoundReport) -> None:
        cpu_s = {result.job.table: result.cpu_s for result in results}
        report.executor_cpu_s += sum(cpu_s.values())
        for result in results:
            if result.failure:
                self._note_failure(report, str(result.job.table), result.failure)
        pending = [Pending(planned[result.job.table].view, result.merged) for result in results if not result.failure]
        self.commits.commit(pending)
        for one in pending:
            self._note(one, report, cpu_s.get(one.view.name, 0.0))
            planned[one.view.name].view = one.view  # what the next piece of the same table starts from

    def _rewrite(self, planned: Iterable[Planned], report: RoundReport) -> None:
        for p in planned:
            for merge in p.plan.merges:
                if merge.engine is not Engine.SPARK or self.halted():
                    continue
                name = str(p.plan.table)
                if self.settings.spark_jars is None:
                    self._note_failure(report, name, "its large or partly deleted hours need rewrite_data_files: set FIRN_OPTIMIZE_SPARK_JARS")
                    break
                try:
                    counts = self.executor.rewrite(p.plan.table, merge, p.plan.target_bytes)
                except FirnError as error:
                    self._note_failure(report, name, str(error))
                    break
                report.rewritten_hours += 1
                report.done.add(name)
                before, after = int(counts.get("rewritten_data_files_count", 0)), int(counts.get("added_data_files_count", 0))
                report.entries.append(Entry(name, "rewrite", files_before=before, files_after=after, size_bytes=merge.size_bytes))

    def _expire(self, planned: Sequence[Planned], report: RoundReport) -> None:
        for at in range(0, len(planned), EXPIRY_TABLES):
            if self.halted():
                return
            # A rewrite may have changed the table since: what is planned here is old then, and the conflict makes it load again.
            pending = [Pending(p.view) for p in planned[at : at + EXPIRY_TABLES]]
            self.commits.commit(pending)
            for one in pending:
                self._note(one, report, 0.0)

    def _note(self, one: Pending, report: RoundReport, cpu_s: float) -> None:
        change, name = one.committed, str(one.view.name)
        if one.fate is Fate.FAILED:
            self._note_failure(report, name, one.reason)
        if change is None:
            return
        report.done.add(name)
        report.snapshots_expired += len(change.expired)
        entry = Entry(name, "expire", snapshots_expired=len(change.expired), attempts=one.attempts)
        if change.merged:
            size, rows = sum(file.size_bytes for file in change.removed), sum(file.rows for file in change.removed)
            report.merged_tables += 1
            report.files_before += len(change.removed)
            report.files_after += len(change.merged)
            report.bytes_merged += size
            before, after = len(change.removed), len(change.merged)
            entry = Entry(name, "merge", "done", before, after, size, rows, len(change.expired), one.attempts, cpu_s)
            log.info("optimize.merged", table=name, files=len(change.removed), into=len(change.merged), attempts=one.attempts)
        report.entries.append(entry)

    def _note_failure(self, report: RoundReport, name: str, reason: str) -> None:
        log.warning("optimize.table_failed", table=name, reason=reason)
        report.failures[name] = reason
        report.entries.append(Entry(name, "failed", outcome=reason[:500]))

    def _remember(self, report: RoundReport) -> None:
        lagging = report.waiting if report.held_back else set()
        now_ms = epoch_ms(self.clock.now())
        self.states.note_round(report.failures, report.waiting - lagging, lagging, report.done - set(report.failures) - report.waiting, now_ms)
        self.history.write(report.entries)
        metrics.OPTIMIZE_FILES_MERGED.inc(report.files_before)
        metrics.OPTIMIZE_SNAPSHOTS_EXPIRED.inc(report.snapshots_expired)
        metrics.OPTIMIZE_FILES_DELETED.inc(report.files_deleted)
        metrics.OPTIMIZE_FAILURES.inc(len(report.failures))
        metrics.OPTIMIZE_WAITING.set(len(report.waiting))
        counts = {name: getattr(report, name) for name in ("tables", "merged_tables", "files_before", "files_after", "snapshots_expired", "files_deleted")}
        log.info("optimize.round", **counts, waiting=len(report.waiting), paused=report.paused, failures=len(report.failures), held_back=report.held_back)
