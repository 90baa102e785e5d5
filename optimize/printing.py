"""What the commands print."""

from collections import Counter
from collections.abc import Iterable, Sequence

from rich.table import Table
from rich.text import Text

from lake.clock import epoch_ms
from lake.errors import FirnError
from lake.extras_client import ExtrasClient
from lake.span import Unit
from lake.table_layout import US_PER_HOUR
from lake.terminal import TerminalConsole
from optimize.cold_hours import ColdHours
from optimize.explain import count_failures
from optimize.ingestion_lag import Share
from optimize.leader import NAME
from optimize.maintenance import Maintenance, RoundReport
from optimize.maintenance_tasks import moment
from optimize.orphan_files import Orphans
from optimize.planner import Standing, TablePlan
from optimize.purge import Dropped
from optimize.retention import Expired

_MIB = 2**20
_SAMPLE = 5
console = TerminalConsole()


def say(line: str) -> None:
    console.print(line, highlight=False, markup=False, soft_wrap=True)


def print_plan(plans: Sequence[TablePlan], report: RoundReport, share: Share) -> None:
    """One line a table, the most files first."""
    table = Table(title="what the next round would do")
    for name in (
        "table",
        "tenant",
        "partitions to merge",
        "files",
        "into",
        "MiB",
        "snapshots to expire",
        "other partitions",
    ):
        table.add_column(
            name,
            justify="left" if name in ("table", "tenant", "other partitions") else "right",
            overflow="fold",
        )
    for p in sorted(plans, key=lambda p: -sum(m.saved_files for m in p.merges)):
        others = Counter(
            partition.standing.value for partition in p.partitions if partition.standing is not Standing.DUE
        )
        numbers = (len(p.merges), sum(len(m.files) for m in p.merges), sum(len(m.groups) for m in p.merges))
        size = f"{sum(m.size_bytes for m in p.merges) / _MIB:.1f}"
        table.add_row(
            str(p.table),
            Text(p.tenant),
            *map(str, numbers),
            size,
            str(len(p.expire)),
            ", ".join(f"{n} {what}" for what, n in others.items()),
        )
    console.print(table)
    if share.reason:
        say(f"held back: {share.reason}; {share.share:.0%} of the work is done")
    if report.paused:
        say(f"{report.paused} tables are paused after failures; `python -m optimize status` names them")
    for name, why in report.failures.items():
        say(f"{name}: cannot be planned: {why}")


def print_report(report: RoundReport) -> None:
    """What a round did, in a sentence, and every failure."""
    say(
        f"{report.merged_tables} tables merged: {report.files_before} files into {report.files_after}; "
        f"{report.snapshots_expired} snapshots expired, {report.files_deleted} files deleted; "
        f"{len(report.waiting)} tables wait for the next round"
    )
    for name, why in report.failures.items():
        say(f"{name}: {why}")


def print_status(maintenance: Maintenance) -> None:
    """Leader, tables with something to remember, length of the deletion queue as far as it is due."""
    catalog = maintenance.catalog
    if catalog.has_extras:
        try:
            extras = ExtrasClient(catalog)
            leader = extras.lease_holder(NAME) or "nobody; `python -m optimize run` starts one"
            say(f"leader: {leader}")
            due = extras.due_deletions()
            say(f"files to delete now: {'1,000 or more' if len(due) >= 1_000 else len(due)}")
            now_ms = epoch_ms(maintenance.clock.now())
            found = [span.unit for span, _ in ColdHours(catalog, maintenance.settings).spans(now_ms)]
            counts = [f"{found.count(unit)} {unit.value}s" for unit in Unit]
            say(f"cold hours and days that may become one file: of {' and '.join(counts)}")
        except FirnError as error:
            say(f"the catalog does not tell: {error}")
    share = maintenance.share()
    say(f"ingestion: {share.reason or 'keeps up'}")
    states = maintenance.states.all()
    for state, count in Counter(memory.state.value for memory in states.values()).items():
        say(f"{state}: {count} tables")
    for name, memory in sorted(states.items()):
        if memory.reason:
            say(f"  {name}: {memory.state.value} after {count_failures(memory.failures)}: {memory.reason}")


def print_retention(found: Iterable[Expired], *, dry_run: bool) -> None:
    """What went, or would go."""
    verb = "would go" if dry_run else "went"
    for expired in found:
        if expired.reason:
            say(f"{expired.table}: nothing {verb}: {expired.reason}")
            continue
        oldest = "" if expired.oldest_us is None else f", the oldest row of {moment(expired.oldest_us)}"
        cut = f", {len(expired.cut)} more in part" if expired.cut else ""
        what = (
            f"{expired.rows:,} rows in {len(expired.data_files)} files{cut}, "
            f"{expired.size_bytes / _MIB:.1f} MiB{oldest}"
        )
        if expired.files or expired.cut:
            kept_from = moment(expired.first_hour_kept * US_PER_HOUR)
            say(f"{expired.table}: {what} {verb}; kept from {kept_from} on")
        if expired.held:
            rows, holds = sum(file.rows for file in expired.held), "; ".join(map(str, expired.holds.holds))
            say(f"{expired.table}: {rows:,} rows in {len(expired.held)} files are past it and stay: {holds}")


def print_purge(found: Iterable[tuple[Dropped, int]], *, dry_run: bool) -> None:
    """What was purged, or would be, and what is refused."""
    for dropped, files in found:
        if dropped.refusal:
            say(f"{dropped.name} at {dropped.location}: refused: {dropped.refusal}")
        else:
            say(
                f"{dropped.name} at {dropped.location}: "
                f"{'would be purged' if dry_run else f'purged, {files} files'}"
            )


def print_orphans(found: Iterable[tuple[Orphans, str]], *, deleted: bool) -> None:
    """What was found below each table."""
    for orphans, reason in found:
        if reason:
            say(f"{orphans.table}: nothing deleted: {reason}")
            continue
        say(
            f"{orphans.table}: {len(orphans.files)} of {orphans.listed} files, "
            f"{orphans.size_bytes / _MIB:.1f} MiB, {'deleted' if deleted else 'are orphans'}"
        )
        for uri in orphans.files[: 0 if deleted else _SAMPLE]:
            say(f"  {uri}")
