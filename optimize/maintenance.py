"""One round of maintenance, in one place.

    inventory -> table views -> planner -> turns and budget -> bins -> Spark -> proof -> commits -> deletions

Nothing of a round is kept but what is committed: one that is killed leaves files nobody refers to, and the
next round, of whatever leader, plans the same work again from the tables themselves.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import tee
from typing import Any

import structlog

from lake import metrics
from lake.catalog_client import CatalogClient, TableName
from lake.clock import Clock, epoch_ms
from lake.data_file import ROW_LINEAGE
from lake.errors import FirnError, NotFoundError
from lake.retention_policies import Policies
from lake.settings import OptimizeSettings, StorageSettings
from lake.span import Partition, Span
from lake.storage import AnyStorage
from lake.table_layout import TENANT_PROPERTY
from lake.table_loads import Loaded, load_each
from optimize.bins import Work, pack, split_work, to_job, within_budget
from optimize.cold import ColdSpans
from optimize.commit_round import CommitOutcome, CommitRound, Pending
from optimize.dangling_deletes import dangling_deletes
from optimize.equality_deletes import equality_jobs
from optimize.history import Entry, History
from optimize.ingestion_lag import Share, ingestion_lag, share_of
from optimize.inventory import Candidate, Inventory
from optimize.layout import layout_of
from optimize.merge_job import Bin, FileLayout, JobResult
from optimize.planner import Engine, TableFacts, TablePlan, plan_table, timestamp_id
from optimize.rewrite_branch import RewriteBranch
from optimize.snapshots import due_to_expire
from optimize.spark_executor import Executor
from optimize.table_states import TableStates
from optimize.table_view import TableView, load_view, view_of
from optimize.turns import Turns

log = structlog.get_logger()
EXPIRY_TABLES = 50
# Loaded at the same time: a table with its files takes some 200 kB.
SLICE_TABLES = 1_000


@dataclass(slots=True)
class Planned:
    """A table with its plan and the version the plan was made for."""

    plan: TablePlan
    view: TableView


@dataclass(slots=True)
class RoundReport:
    """What a round did. `resting`: tables with nothing to do, and from when on (ms since 1970) time alone may
    give them something (None: never)."""

    tables: int = 0
    merged_tables: int = 0
    files_before: int = 0
    files_after: int = 0
    snapshots_expired: int = 0
    files_deleted: int = 0
    paused: int = 0
    paused_tables: set[str] = field(default_factory=set)
    waiting: set[str] = field(default_factory=set)
    held_back: str = ""
    failures: dict[str, str] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    done: set[str] = field(default_factory=set)
    in_pieces: set[str] = field(default_factory=set)
    resting: dict[str, int | None] = field(default_factory=dict)
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
    policies: Policies
    halted: Callable[[], bool] = lambda: False

    def run(self) -> RoundReport:
        """One round: merges, rewrites, expiry, physical deletion, history."""
        report, share = RoundReport(), self.share()
        self.states.load()
        turns, left_s = Turns(self._candidates(report)), self.settings.merge.round_cost_s_max * share.share
        while turns and not self.halted():
            left_s = self._slice(turns, left_s, report)
            if left_s <= 0:
                break
        report.waiting |= {str(table) for table in turns.waiting()}
        if not self.halted():
            unfinished = report.waiting | report.failures.keys() | report.in_pieces | report.paused_tables
            self.inventory.settle(unfinished, report.resting)
        report.held_back = share.reason
        report.files_deleted = self._delete()
        self._remember(report)
        return report

    def _candidates(self, report: RoundReport) -> Iterator[Candidate]:
        now_ms = epoch_ms(self.clock.now())
        for candidate in self.inventory.candidates():
            report.tables += 1
            if self.states.paused(candidate.table, now_ms):
                report.paused += 1
                report.paused_tables.add(str(candidate.table))
            else:
                yield candidate

    def _slice(self, turns: Turns, left_s: float, report: RoundReport) -> float:
        """Maintains the tables whose turn it is, as far as the budget goes; returns what is left of it, zero
        or less where it is used up."""
        taken = turns.take(SLICE_TABLES)
        planned = {}
        for p in self._planned(taken, report):
            if p.plan.is_due:
                planned[p.plan.table] = p
            else:
                report.resting[str(p.plan.table)] = p.plan.rests_until_ms
        self._tidy_deletes([p for p in planned.values() if p.plan.loses_deletes], report)
        pieces = [
            piece
            for p in planned.values()
            for piece in split_work(p.plan, self.settings.merge.bin_cost_s_max)
        ]
        mine, rest = turns.in_order(pieces)
        now, later = within_budget(mine, left_s)
        report.in_pieces |= {
            name for name, count in Counter(str(piece.plan.table) for piece in pieces).items() if count > 1
        }
        self.states.note_running({str(work.plan.table) for work in now} & report.in_pieces)
        self._merge([w for w in now if w.engine is Engine.ARROW], planned, report)
        self._rewrite([w for w in now if w.engine is Engine.SPARK], planned, report)
        self._expire([p for p in planned.values() if str(p.plan.table) not in report.done], report)
        report.waiting |= {str(w.plan.table) for w in later}
        turns.put_back(
            [(begins_s, work) for begins_s, work in rest if str(work.plan.table) not in report.failures]
        )
        return left_s - sum(work.cost_s for work in now) if not later else 0.0

    def expire(self, tables: Sequence[TableName]) -> RoundReport:
        """Brings snapshots and manifests of tables within their limits, and nothing else; tables that cannot
        be read are left to the next round."""
        report = RoundReport()
        for at in range(0, len(tables), EXPIRY_TABLES):
            if self.halted():
                break
            views = []
            for table in tables[at : at + EXPIRY_TABLES]:
                try:
                    view = load_view(self.catalog, self.storage, table)
                except (FirnError, ValueError, KeyError) as error:
                    log.info("optimize.table_not_tidied", table=str(table), error=str(error))
                    continue
                if view is not None and due_to_expire(
                    view.metadata, self.settings, epoch_ms(self.clock.now())
                ):
                    views.append(view)
            pending = [Pending(view, is_fresh=True) for view in views]
            self.commits.commit(pending)
            for one in pending:
                self._note(one, report, 0.0)
        self.history.write(report.entries)
        metrics.OPTIMIZE_SNAPSHOTS_EXPIRED.inc(report.snapshots_expired)
        return report

    def share(self) -> Share:
        """How much of a round's budget ingestion leaves."""
        return share_of(ingestion_lag(self.settings, self.clock.now()), self.settings)

    def plan(self, report: RoundReport) -> Iterator[TablePlan]:
        """The plans of all tables that are not paused; a table that cannot be read is reported and left
        out."""
        return (planned.plan for planned in self._planned(self._candidates(report), report))

    def _planned(self, candidates: Iterable[Candidate], report: RoundReport) -> Iterator[Planned]:
        known, asked = tee(candidates)
        loads = load_each(self.catalog, (candidate.table for candidate in asked))
        for candidate, (_, loaded) in zip(known, loads, strict=False):
            if self.halted():
                return
            try:
                view = view_of(found, candidate.table, self.storage) if (found := there(loaded)) else None
                if view is not None and view.state.head is not None:
                    yield Planned(self.plan_view(view, candidate.partitions), view)
            except (FirnError, ValueError, KeyError) as error:
                self._note_failure(report, str(candidate.table), f"{type(error).__name__}: {error}")

    def plan_view(self, view: TableView, partitions: frozenset[Partition] | None) -> TablePlan:
        """The plan of one loaded table, of all its partitions or of some. Raises FirnError."""
        s, now_ms = self.settings, epoch_ms(self.clock.now())
        properties = view.state.properties
        cold = ColdSpans.of(properties, self._kept_h(view), s, now_ms)
        found = view.partitions(None if partitions is None else cold.reach(partitions))
        facts = TableFacts(
            table=view.name,
            tenant=properties.get(TENANT_PROPERTY, view.name.namespace),
            timestamp_id=timestamp_id(view.state.schema),
            manifests=len(view.own_manifests()),
            expirable=due_to_expire(view.metadata, s, now_ms),
            has_been_replaced=any(
                snapshot.get("summary", {}).get("operation") == "replace" for snapshot in view.snapshots
            ),
            resumes=self.states.unfinished(view.name),
            keeps_row_ids=view.state.version >= ROW_LINEAGE,
            dangling_deletes=len(dangling_deletes(view)),
            equality_deletes=sum(len(job.deletes) for job in equality_jobs(view)),
            properties=properties,
            cold=cold,
            spanned=frozenset(hour for each in found if isinstance(each, Span) for hour in each.hours),
        )
        return plan_table(facts, found.values(), s, now_ms)

    def _kept_h(self, view: TableView) -> int | None:
        """What nobody understands deletes nothing, and counts as for ever."""
        try:
            return self.policies.of(view.name, view.state.properties).hours
        except ValueError:
            return None

    def _merge(self, work: Sequence[Work], planned: dict[TableName, Planned], report: RoundReport) -> None:
        if not work:
            return  # no Spark is started for nothing
        storage_settings, now_ms = StorageSettings.load(), epoch_ms(self.clock.now())
        bins = [
            Bin(
                [
                    to_job(one, planned[one.plan.table].view, self._layout(planned[one.plan.table].view))
                    for one in group
                ],
                storage_settings,
                now_ms,
            )
            for group in pack(work, self.executor.slots(), self.settings.merge.bin_cost_s_max)
        ]
        for results in self.executor.run(bins, self.halted):
            self._commit(results, planned, report)

    def _tidy_deletes(self, planned: Sequence[Planned], report: RoundReport) -> None:
        """Turns equality deletes into positions, puts many delete files of one data file together, takes away
        those that delete nothing; what is planned then follows on the version after it."""
        for one in planned:
            if self.halted():
                return
            jobs = equality_jobs(one.view)
            turned = self.executor.turn(jobs) if jobs else []
            failures = [each.failure for each in turned if each.failure]
            if failures:
                self._note_failure(report, str(one.plan.table), failures[0])
            found = tuple(each for each in turned if not each.failure)
            pending = Pending(one.view, turned=found, gather=one.plan.gather)
            self.commits.commit([pending])
            self._note(pending, report, 0.0)
            try:
                self._plan_again(one)
            except (FirnError, ValueError, KeyError) as error:
                self._note_failure(report, str(one.plan.table), f"{type(error).__name__}: {error}")

    def _plan_again(self, one: Planned) -> None:
        view = load_view(self.catalog, self.storage, one.plan.table, one.view)
        if view is not None and view.state.uuid == one.view.state.uuid and view.state.head is not None:
            one.view = view
            one.plan = self.plan_view(view, frozenset(p.partition for p in one.plan.partitions))

    def _layout(self, view: TableView) -> FileLayout:
        return layout_of(view.metadata, view.state.schema, self.settings)

    def _commit(
        self, results: Sequence[JobResult], planned: dict[TableName, Planned], report: RoundReport
    ) -> None:
        cpu_s = {result.job.table: result.cpu_s for result in results}
        pending = []
        for result in results:
            if result.failure:
                self._note_failure(
                    report, str(result.job.table), result.failure, is_refused=result.is_refused
                )
            else:
                pending.append(Pending(planned[result.job.table].view, result.merged))
        self.commits.commit(pending)
        for one in pending:
            self._note(one, report, cpu_s.get(one.view.name, 0.0))
            planned[one.view.name].view = one.view  # what the next piece of the same table starts from

    def _rewrite(self, work: Sequence[Work], planned: dict[TableName, Planned], report: RoundReport) -> None:
        branch = RewriteBranch(self.catalog, self.storage, self.executor)
        for one in work:
            table, name = planned[one.plan.table], str(one.plan.table)
            if self.halted():
                return
            try:
                rewritten = branch.rewrite(one, table.view, self._layout(table.view))
            except FirnError as error:
                self._note_failure(report, name, str(error))
                continue
            if rewritten is None:
                continue
            if rewritten.result.failure:
                self._note_failure(
                    report, name, rewritten.result.failure, is_refused=rewritten.result.is_refused
                )
                continue
            # The branch refers to the new files as well, and main may have moved on while Spark worked.
            pending = Pending(rewritten.view, rewritten.result.merged, stale=True, owns_outputs=False)
            self.commits.commit([pending])
            self._note(pending, report, 0.0, "rewrite")
            table.view = pending.view

    def _expire(self, planned: Sequence[Planned], report: RoundReport) -> None:
        for at in range(0, len(planned), EXPIRY_TABLES):
            if self.halted():
                return
            # A rewrite may have changed the table since: what is planned here is old then, and the conflict
            # makes it load again.
            pending = [Pending(p.view) for p in planned[at : at + EXPIRY_TABLES]]
            self.commits.commit(pending)
            for one in pending:
                self._note(one, report, 0.0)

    def _delete(self) -> int:
        try:
            return self.commits.deletions.delete_due(self.storage, self.halted)
        except FirnError as error:  # what is not acknowledged stays in the queue
            log.warning("optimize.deletion_failed", error=str(error))
            return 0

    def _note(self, one: Pending, report: RoundReport, cpu_s: float, action: str = "merge") -> None:
        change, name = one.committed, str(one.view.name)
        if one.outcome is CommitOutcome.FAILED:
            self._note_failure(report, name, one.reason, is_refused=one.is_refused)
        if change is None:
            return
        report.done.add(name)
        report.snapshots_expired += len(change.expired)
        now = self.clock.now()
        entry = Entry(now, name, "expire", snapshots_expired=len(change.expired), attempts=one.attempts)
        if change.merged:
            for merged in change.merged:
                if isinstance(merged.group.partition, Span):
                    span = merged.group.partition.unit.value
                    metrics.OPTIMIZE_COLD_FILES.labels(span).inc(len(merged.group.inputs))
            size, rows = (
                sum(file.size_bytes for file in change.removed),
                sum(file.rows for file in change.removed),
            )
            report.merged_tables += 1
            report.files_before += len(change.removed)
            before, after = len(change.removed), sum(len(merged.outputs) for merged in change.merged)
            report.files_after += after
            entry = Entry(
                now, name, action, "done", before, after, size, rows, len(change.expired), one.attempts, cpu_s
            )
            log.info(
                "optimize.merged", table=name, files=before, into=after, attempts=one.attempts, action=action
            )
        elif change.deletes:
            before, after = len(change.deletes), len(change.new_deletes)
            entry = Entry(now, name, "deletes", "done", before, after, attempts=one.attempts)
            log.info("optimize.deletes", table=name, files=before, into=after, attempts=one.attempts)
        report.entries.append(entry)

    def _note_failure(self, report: RoundReport, name: str, reason: str, *, is_refused: bool = False) -> None:
        log.warning("optimize.table_failed", table=name, reason=reason)
        report.failures[name] = reason
        if is_refused:
            report.refused.add(name)
        report.entries.append(Entry(self.clock.now(), name, "failed", outcome=reason[:500]))

    def _remember(self, report: RoundReport) -> None:
        report.waiting -= report.in_pieces  # in work, which says more
        lagging = report.waiting if report.held_back else set()
        now_ms = epoch_ms(self.clock.now())
        # A round that ended early left pieces of such a table undone: the entry stays, and the next round, of
        # whatever leader, goes on with it.
        whole = report.in_pieces if not report.waiting and not self.halted() else set()
        done = (report.done - report.in_pieces | whole) - set(report.failures) - report.waiting
        self.states.note_round(
            report.failures, report.refused, report.waiting - lagging, lagging, done, now_ms
        )
        self.history.write(report.entries)
        metrics.OPTIMIZE_FILES_MERGED.inc(report.files_before)
        metrics.OPTIMIZE_SNAPSHOTS_EXPIRED.inc(report.snapshots_expired)
        metrics.OPTIMIZE_FILES_DELETED.inc(report.files_deleted)
        metrics.OPTIMIZE_FAILURES.inc(len(report.failures))
        metrics.OPTIMIZE_WAITING.set(len(report.waiting))
        metrics.OPTIMIZE_ROUND_ENDED.set(now_ms / 1000)
        counts = {
            name: getattr(report, name)
            for name in (
                "tables",
                "merged_tables",
                "files_before",
                "files_after",
                "snapshots_expired",
                "files_deleted",
            )
        }
        log.info(
            "optimize.round",
            **counts,
            waiting=len(report.waiting),
            paused=report.paused,
            failures=len(report.failures),
            held_back=report.held_back,
        )


def there(loaded: Loaded) -> dict[str, Any] | None:
    """A table as it was loaded; None where there is none any more. Raises what its load raised."""
    if isinstance(loaded, NotFoundError):
        return None
    if isinstance(loaded, FirnError):
        raise loaded
    return loaded
