"""`python -m optimize`: plan, run and explain table maintenance."""

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Annotated

import structlog
import typer
from prometheus_client import start_http_server

from lake.catalog_client import CatalogClient, TableName
from lake.certificate_ends import CertificateEnds
from lake.clock import Clock, SystemClock, epoch_ms
from lake.command_line import run_program
from lake.erasure_work import work_list_of
from lake.errors import FirnError, NotFoundError, PrerequisiteError
from lake.logs import configure_logs
from lake.retention_policies import Policies
from lake.settings import OptimizeSettings
from lake.storage import open_storage
from optimize import printing
from optimize.commit_round import CommitRound
from optimize.deletions import DeletionQueue, Throttle
from optimize.erasures import Erasures
from optimize.explain import explain_table
from optimize.history import History
from optimize.inventory import NamedTables, open_inventory
from optimize.leader import leader_lease
from optimize.maintenance import Maintenance, RoundReport
from optimize.maintenance_tasks import MaintenanceTasks
from optimize.snapshot_watch import SnapshotWatch
from optimize.spark_executor import SparkExecutor
from optimize.table_states import TableStates
from optimize.table_view import load_view

log = structlog.get_logger()
app = typer.Typer(
    help="Keeps tables small in files and metadata.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
CatalogUri = Annotated[str | None, typer.Option(help="base URL of the REST catalog")]
Tables = Annotated[
    list[str] | None, typer.Option("--table", help="NAMESPACE.TABLE, repeatable: only these tables")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="say what would be done and change nothing")]
FAILED_TABLES = 3


@app.callback()
def main() -> None:
    """Settings come from firn.toml (section [optimize]) and FIRN_OPTIMIZE_* variables."""
    configure_logs("optimize")


def _client(settings: OptimizeSettings, lease: str | None = None) -> CatalogClient:
    token = settings.catalog.token.get_secret_value() if settings.catalog.token else None
    return CatalogClient(settings.catalog.uri, token=token, lease=lease)


@contextmanager
def _maintenance(
    settings: OptimizeSettings,
    tables: Sequence[str] = (),
    lease: str | None = None,
    halted: Callable[[], bool] = lambda: False,
) -> Iterator[Maintenance]:
    """The parts of a round, put together; `lease` signs every change."""
    clock, storage, catalog = SystemClock(), open_storage(), _client(settings, lease)
    queue = DeletionQueue(catalog, Throttle(settings.retention.storage_requests_per_s_max), lease)
    inventory = open_inventory(
        catalog, settings, lambda: epoch_ms(clock.now()), [_table(name) for name in tables], lease
    )
    states = TableStates(catalog, settings.failures_max, int(settings.pause_s * 1000), lease)
    commits, history = CommitRound(catalog, storage, queue, settings, clock), History(catalog, storage, clock)
    try:
        with SparkExecutor(settings, lease) as executor:
            yield Maintenance(
                catalog,
                storage,
                settings,
                clock,
                inventory,
                commits,
                executor,
                states,
                history,
                Policies(catalog, clock),
                halted,
            )
    finally:
        catalog.close()


@contextmanager
def _leading(settings: OptimizeSettings, tables: Sequence[str] = ()) -> Iterator[Maintenance]:
    """Maintenance under the lease, for one command. Raises PrerequisiteError where another process leads."""
    catalog = _client(settings)
    try:
        with leader_lease(catalog, settings.lease_s) as leader:
            if not leader.acquire(threading.Event(), settings.lease_s * 2):
                raise PrerequisiteError(
                    "another process leads maintenance (`python -m optimize status` names it); it does this "
                    "work, or stop it first"
                )
            with _maintenance(settings, tables, leader.fencing_token, lambda: leader.lost) as maintenance:
                yield maintenance
    finally:
        catalog.close()


def _table(name: str) -> TableName:
    namespace, dot, table = name.partition(".")
    if not (namespace and dot and table):
        raise typer.BadParameter(f"'{name}' is not NAMESPACE.TABLE, for instance acme.logs")
    return TableName(namespace, table)


@app.command()
def run(
    once: Annotated[bool, typer.Option("--once", help="one round, then leave")] = False,
    dry_run: DryRun = False,
    table: Tables = None,
    catalog_uri: CatalogUri = None,
) -> None:
    """Runs rounds of maintenance, the daily and weekly tasks, and erasures that are asked for, until
    SIGTERM."""
    settings = OptimizeSettings.load(catalog__uri=catalog_uri)
    if dry_run:
        plan(table, catalog_uri)
    elif once:
        with _leading(settings, table or ()) as maintenance:
            _erasures(maintenance).run()
            report = maintenance.run()
            if not table:
                MaintenanceTasks(maintenance).note_round()
        printing.print_report(report)
        if report.failures:
            raise typer.Exit(FAILED_TABLES)
    else:
        _loop(settings, table or ())


def _loop(settings: OptimizeSettings, tables: Sequence[str]) -> None:
    stop = threading.Event()

    def leave(number: int, _: object) -> None:
        log.info("optimize.stopping", signal=signal.Signals(number).name)
        if stop.is_set():  # asked twice
            raise SystemExit(128 + number)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, leave)
    if settings.http.port is not None:
        start_http_server(settings.http.port, addr=settings.http.host)
    log.info("optimize.running", interval_s=settings.interval_s)
    catalog = _client(settings)
    with leader_lease(catalog, settings.lease_s) as leader:
        while leader.acquire(stop):
            with _maintenance(
                settings, tables, leader.fencing_token, lambda: stop.is_set() or leader.lost
            ) as maintenance:
                _lead(maintenance, stop)
    catalog.close()
    log.info("optimize.stopped")


def _lead(maintenance: Maintenance, stop: threading.Event) -> None:
    """Rounds until told to stop, or until the lease is lost. Because a round may take hours, other things
    happen beside them: looks for tables that get snapshots fast, purges that are not to wait, erasures that
    are asked for, and looks at the ends of certificates."""
    _tell_of_no_retention(maintenance)
    watch, s = SnapshotWatch(maintenance.catalog, maintenance.settings), maintenance.settings
    beside: list[Future[None]] = []

    def look() -> None:
        if crowded := watch.crowded(epoch_ms(maintenance.clock.now())):
            watch.note(maintenance.expire(crowded).snapshots_left)

    def purge_at_once() -> None:
        list(MaintenanceTasks(maintenance).purge(only_at_once=True))

    def round_() -> None:
        maintenance.run()
        if not maintenance.halted():
            MaintenanceTasks(maintenance).note_round()
            MaintenanceTasks(maintenance).run_due()

    def ended() -> bool:
        return maintenance.halted() or any(one.done() for one in beside)

    works: tuple[tuple[float, Callable[[], object]], ...] = (
        (s.snapshots.interval_s, look),
        (s.snapshots.interval_s, purge_at_once),
        (s.snapshots.interval_s, CertificateEnds({}).note),
        (s.erasure.interval_s, _erasures(maintenance).run),
    )
    with ThreadPoolExecutor(len(works), thread_name_prefix="beside") as pool:
        for interval_s, work in works:
            beside.append(pool.submit(_every, interval_s, work, maintenance.clock, ended, stop))
        _every(s.interval_s, round_, maintenance.clock, ended, stop)
        for one in beside:
            one.result()


def _tell_of_no_retention(maintenance: Maintenance) -> None:
    with suppress(FirnError):  # a catalog that does not answer now is no reason to end
        if not maintenance.policies.of_lake():
            advice = "set catalog.retention: what neither stream nor tenant says is kept for ever"
            log.warning("retention.none", advice=advice)


def _erasures(maintenance: Maintenance) -> Erasures:
    """What carries out the erasures that are asked for, of the tables that were named where some were."""
    m, named = maintenance, maintenance.inventory
    return Erasures.of(
        m.catalog,
        m.storage,
        m.clock,
        work_list=work_list_of(m.catalog, m.settings.control),
        lease=m.states.lease,
        halted=m.halted,
        only=named.tables if isinstance(named, NamedTables) else (),
        token_filter=m.settings.merge.token_filter,
    )


def _every(
    interval_s: float,
    work: Callable[[], object],
    clock: Clock,
    ended: Callable[[], bool],
    stop: threading.Event,
) -> None:
    """Does work from interval to interval until it is `ended`. What fails once may pass the next time; a lost
    lease ends it."""
    while not ended():
        again_at_s = clock.monotonic_s() + interval_s
        try:
            work()
        except FirnError as error:
            log.warning("optimize.failed", error=str(error))
        while (left_s := again_at_s - clock.monotonic_s()) > 0 and not ended():
            stop.wait(min(left_s, 1.0))


@app.command()
def plan(table: Tables = None, catalog_uri: CatalogUri = None) -> None:
    """Prints what the next round would do, and changes nothing."""
    with _maintenance(OptimizeSettings.load(catalog__uri=catalog_uri), table or ()) as maintenance:
        maintenance.states.load()
        report = RoundReport()
        printing.print_plan(list(maintenance.plan(report)), report, maintenance.share())


@app.command()
def explain(
    table: Annotated[str, typer.Argument(help="NAMESPACE.TABLE")], catalog_uri: CatalogUri = None
) -> None:
    """Says of one table what was done, what is due, what is skipped and why."""
    with _maintenance(OptimizeSettings.load(catalog__uri=catalog_uri)) as maintenance:
        view = load_view(maintenance.catalog, maintenance.storage, _table(table))
        if view is None:
            raise NotFoundError(f"there is no table {table}; `python -m optimize plan` lists those with work")
        for line in explain_table(maintenance, view):
            printing.say(line)


@app.command()
def status(catalog_uri: CatalogUri = None) -> None:
    """Prints who leads, which tables are paused, failing or waiting, and how many files wait for their
    deletion."""
    with _maintenance(OptimizeSettings.load(catalog__uri=catalog_uri)) as maintenance:
        maintenance.states.load()
        printing.print_status(maintenance)


@app.command()
def resume(
    table: Annotated[str, typer.Argument(help="NAMESPACE.TABLE")], catalog_uri: CatalogUri = None
) -> None:
    """Ends the pause of a table that failed too often."""
    with _maintenance(OptimizeSettings.load(catalog__uri=catalog_uri)) as maintenance:
        maintenance.states.load()
        maintenance.states.forget(_table(table))


@app.command()
def retention(dry_run: DryRun = False, table: Tables = None, catalog_uri: CatalogUri = None) -> None:
    """Takes hours past the retention of stream, tenant or lake from the tables, whole UTC hours, by metadata
    alone."""
    settings = OptimizeSettings.load(catalog__uri=catalog_uri)
    with (_maintenance if dry_run else _leading)(settings, table or ()) as maintenance:
        printing.print_retention(MaintenanceTasks(maintenance).retention(dry_run=dry_run), dry_run=dry_run)


@app.command()
def purge(dry_run: DryRun = False, catalog_uri: CatalogUri = None) -> None:
    """Deletes the files of dropped tables whose time for undo is over."""
    settings = OptimizeSettings.load(catalog__uri=catalog_uri)
    with (_maintenance if dry_run else _leading)(settings) as maintenance:
        printing.print_purge(MaintenanceTasks(maintenance).purge(dry_run=dry_run), dry_run=dry_run)


@app.command("orphan-files")
def orphan_files(
    delete: Annotated[
        bool, typer.Option("--delete", help="delete them; without it they are only listed")
    ] = False,
    table: Tables = None,
    catalog_uri: CatalogUri = None,
) -> None:
    """Lists files below tables that no version of them refers to, and deletes them where asked to."""
    settings = OptimizeSettings.load(catalog__uri=catalog_uri)
    with (_leading if delete else _maintenance)(settings, table or ()) as maintenance:
        printing.print_orphans(MaintenanceTasks(maintenance).orphans(delete=delete), deleted=delete)


if __name__ == "__main__":
    run_program(app)
