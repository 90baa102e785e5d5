"""`python -m infra`: the stack on this machine, from the command line."""

import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from infra.cost.command import cost
from infra.local import class_recording, core_build, jvm_parts, log_tail, processes
from infra.local import doctor as examination
from infra.local.prerequisites import require
from infra.local.services import DEFAULT, SERVICES
from infra.local.supervisor import Database, Stack
from lake import native_core
from lake.errors import FirnError, NotFoundError, SettingsError
from lake.settings import InfraSettings
from lake.terminal import TerminalConsole

POLL_S = 0.5
PARTS = (*jvm_parts.ALL, core_build.NAME, class_recording.NAME)
AGAIN_S = 0.05
HELP = f"""Starts, watches and stops Firn on this machine: Kafka, the catalog, Trino and Firn's own services.

Everything listens on 127.0.0.1 only, on free ports; logs, data and the list of
started processes live in the state folder.

    python -m infra doctor               what this machine has and lacks
    python -m infra doctor --production  what an installation leaves open
    python -m infra up                   start {", ".join(DEFAULT)} and leave them running
    python -m infra status               what runs, where, and how much memory it takes
    python -m infra logs kafka --follow  what a service writes
    python -m infra down                 stop exactly what was started
    python -m infra cost --help          what a load would take and cost

Services: {", ".join(SERVICES)}. What a service needs is started with it.
"""
app = typer.Typer(
    help=HELP,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
console = TerminalConsole()
errors = TerminalConsole(stderr=True, highlight=False, soft_wrap=True)

StateOption = Annotated[
    Path | None,
    typer.Option(
        "--state",
        help="Folder of the running stack: state file, logs, data. Default: state/ in the repository.",
    ),
]
ServicesArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="[SERVICES]...", show_default=False, help=f"Any of: {', '.join(SERVICES)}."),
]


def say(line: str) -> None:
    """Progress goes to stderr, so that stdout holds results alone."""
    errors.print(line, markup=False)


class Interrupted(BaseException):
    """Ctrl-C or SIGTERM. Not KeyboardInterrupt, with which Python sometimes ends itself by a signal whatever
    exit code is asked for."""

    def __init__(self, number: int) -> None:
        self.exit_code = 128 + number


@contextmanager
def one_clear_message() -> Iterator[None]:
    """Turns Firn's errors into their message and exit code 2, and Ctrl-C or SIGTERM into exit code 130 or
    143."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)
    sys.unraisablehook = raise_once_more
    try:
        yield
    except FirnError as error:
        errors.print(f"error: {error}", markup=False, style="red")
        raise typer.Exit(2) from None
    except Interrupted as interruption:
        errors.print("interrupted", markup=False)
        raise typer.Exit(interruption.exit_code) from None


def interrupt(number: int, _: FrameType | None) -> None:
    """The way out for the first signal; those after it cannot disturb the stopping, which takes no longer
    than the services' grace."""
    for other in (signal.SIGINT, signal.SIGTERM):
        signal.signal(other, signal.SIG_IGN)
    raise Interrupted(number)


def raise_once_more(dropped: "sys.UnraisableHookArgs") -> None:
    """Python drops what a signal raises inside of a destructor or a weak reference's callback: the
    interruption then comes again in a moment."""
    if not isinstance(interruption := dropped.exc_value, Interrupted):
        sys.__unraisablehook__(dropped)
        return
    signal.signal(signal.SIGALRM, partial(_raise, interruption))
    signal.setitimer(signal.ITIMER_REAL, AGAIN_S)


def _raise(interruption: Interrupted, *_: object) -> None:
    raise interruption


def state_folder(state: Path | None) -> Path:
    """A folder given on the command line is relative to where the user is, the configured one to the
    repository."""
    return state.absolute() if state else jvm_parts.REPOSITORY / InfraSettings.load().state


def parse_pairs(pairs: list[str] | None, what: str) -> dict[str, str]:
    """`NAME=VALUE` texts as a mapping. Raises SettingsError."""
    split = [pair.partition("=") for pair in pairs or []]
    if bad := [name for name, equals, _ in split if not equals or not name]:
        raise SettingsError(f"{what} {bad[0]!r} is not NAME=VALUE")
    return {name: value for name, _, value in split}


def parse_ports(pairs: list[str] | None) -> dict[str, int]:
    """`SERVICE=PORT` texts as a mapping. Raises SettingsError."""
    ports = {}
    for name, value in parse_pairs(pairs, "--port").items():
        if not value.isdigit() or int(value) > 65535:
            raise SettingsError(f"--port {name}={value}: a port is a number from 0 (any free one) to 65535")
        ports[name] = int(value)
    return ports


@app.command()
def up(
    services: ServicesArgument = None,
    state: StateOption = None,
    foreground: Annotated[
        bool, typer.Option("--foreground", help="Stay, and stop everything on Ctrl-C or when a service dies.")
    ] = False,
    database: Annotated[
        str | None,
        typer.Option(help="The catalog's database: sqlite or postgres. Fixed when the catalog first starts."),
    ] = None,
    warehouse: Annotated[
        str | None,
        typer.Option(
            help=(
                "file:///path, or s3://firn-warehouse/prefix (local S3). Fixed when the catalog first starts."
            )
        ),
    ] = None,
    catalog_uri: Annotated[
        str | None, typer.Option(help="Use this Iceberg REST catalog instead of starting ours.")
    ] = None,
    port: Annotated[
        list[str] | None, typer.Option(help="SERVICE=PORT instead of a free port; may be repeated.")
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(help="NAME=VALUE for the started processes, such as FIRN_INGEST_FLUSH__INTERVAL_S=10."),
    ] = None,
) -> None:
    """Start services and what they need; they keep running when this command ends."""
    with one_clear_message():
        stack = Stack(state_folder(state), warehouse=warehouse, tied=foreground, say=say)
        ports, environment = parse_ports(port), parse_pairs(env, "--env")
        stack.start(
            *services or (),
            database=parse_database(database),
            catalog_uri=catalog_uri,
            ports=ports,
            environment=environment,
        )
        show(stack)
        if foreground:
            say("Ctrl-C stops everything")
            stay(stack)
        else:
            say("stop with: python -m infra down" + (f" --state {state}" if state else ""))


def parse_database(text: str | None) -> Database | None:
    match text:
        case None | "sqlite" | "postgres":
            return text
    raise SettingsError(f"--database {text}: use sqlite or postgres")


def stay(stack: Stack) -> None:
    """Waits until Ctrl-C, SIGTERM or the death of a service, and stops all that runs."""
    try:
        while True:
            stack.check()
            time.sleep(POLL_S)
    finally:
        stack.stop()


@app.command()
def down(services: ServicesArgument = None, state: StateOption = None) -> None:
    """Stop services (all when none is named), also those of a supervisor that crashed. Data and logs stay."""
    with one_clear_message():
        Stack(state_folder(state), say=say).stop(*services or ())
        say("down")


@app.command()
def status(state: StateOption = None) -> None:
    """Show what was started: pid, state, address, memory and log. Exit code 1 when a service has died."""
    with one_clear_message():
        stack = Stack(state_folder(state), say=say)
        show(stack)
        if stack.died():
            raise typer.Exit(1)


def show(stack: Stack) -> None:
    """The table of `status`."""
    table = Table("service", "pid", "state", "address", "memory", "log", title=None)
    records = stack.read().services
    for name in SERVICES:
        record = records.get(name)
        if record is None:
            continue
        running = stack.running(name)
        memory = f"{processes.memory_bytes(record) / 2**20:.0f} MB" if running else ""
        table.add_row(
            name,
            str(record.pid or ""),
            condition(stack, name, record.address),
            record.address if running else "",
            memory,
            str(stack.log(name)),
        )
    if table.row_count:
        (console if console.is_terminal else TerminalConsole(width=200)).print(table)
    else:
        say("nothing was started here yet: python -m infra up")


def condition(stack: Stack, name: str, address: str) -> str:
    """One word for a service's state: ready, not ready (with the reason), died, stopped."""
    if not stack.running(name):
        return "died" if name in stack.died() else "stopped"
    why = SERVICES[name].probe(address)
    return "ready" if why is None else f"not ready: {why}"


@app.command()
def logs(
    name: Annotated[str, typer.Argument(help=f"One of: {', '.join(SERVICES)}.")],
    lines: Annotated[int, typer.Option("-n", "--lines", min=0, help="How many lines of its end.")] = 50,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what is written from now on; Ctrl-C ends it.")
    ] = False,
    state: StateOption = None,
) -> None:
    """Print the end of a service's log."""
    with one_clear_message():
        if name not in SERVICES:
            raise SettingsError(f"there is no service {name!r}; the services are {', '.join(SERVICES)}")
        log = Stack(state_folder(state)).log(name)
        if not log.exists():
            raise NotFoundError(
                f"{name} has no log in {log.parent}: it was not started here (python -m infra up {name})"
            )
        for line in log_tail.last_lines(log, lines=lines):
            print(line)
        if follow:
            print_as_it_comes(log_tail.follow(log), lambda: time.sleep(POLL_S))


def print_as_it_comes(texts: Iterator[str], pause: Callable[[], None]) -> None:
    for text in texts:
        if text:
            sys.stdout.write(text)
            sys.stdout.flush()
        else:
            pause()


@app.command()
def doctor(
    state: StateOption = None,
    production: Annotated[
        bool,
        typer.Option(
            "--production",
            help=(
                "Look at the settings and at the Kafka, catalog, storage and Trino that they name instead: "
                "what is missing or unsafe there."
            ),
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --production: findings as JSON.")] = False,
) -> None:
    """Tell what this machine has and lacks, or what an installation does. Exit code 1 when something is
    missing or unsafe."""
    with one_clear_message():
        if production:
            from infra.production.report import show  # Kafka's client is nothing for all other verbs

            raise typer.Exit(show(console, as_json=as_json))
        findings = examination.examine(state_folder(state))
        table = Table("", "what", "found")
        for finding in findings:
            table.add_row(
                Text("missing", "red") if finding.missing else Text("ok", "green"),
                finding.what,
                finding.found,
            )
        (console if console.is_terminal else TerminalConsole(width=200)).print(table)
        require(examination.all_missing(findings))


@app.command()
def fetch(
    services: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PARTS]...", show_default=False, help=f"Any of: {', '.join(PARTS)}."),
    ] = None,
    write_hashes: Annotated[
        bool,
        typer.Option(
            "--write-hashes",
            help=(
                "After a change of versions: take what Maven brings for what it should bring, and list its "
                "SHA-256."
            ),
        ),
    ] = False,
) -> None:
    """Download the JVM parts with Maven into the cache ($FIRN_CACHE, default .cache), refuse files that
    infra/poms does not list, build the native core there where cargo is, and record the classes of the
    services and of Spark, with which they start faster.

    Nothing happens for those already there.
    """
    with one_clear_message():
        if unknown := set(services or ()) - set(PARTS):
            raise SettingsError(
                f"there are no parts named {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}"
            )
        usual = (*jvm_parts.SERVICES, core_build.NAME, class_recording.NAME)
        wanted = services or (jvm_parts.ALL if write_hashes else usual)
        for part in wanted:
            if part == core_build.NAME:
                show_core(core_build.build(say))
                continue
            if part == class_recording.NAME:
                show_archives(class_recording.make(say))
                continue
            folder = jvm_parts.write_hashes(part, say) if write_hashes else jvm_parts.fetch(part, say)
            console.print(f"{part}: {folder}", soft_wrap=True)


def show_core(built: Path | native_core.Absent) -> None:
    """Where the native core is. That there is none is told, and is no error."""
    if isinstance(built, native_core.Absent):
        told = f"not built, and Firn does its work in Python, more slowly: {built.reason}"
        errors.print(f"{core_build.NAME}: {told}", markup=False)
    else:
        console.print(f"{core_build.NAME}: {built}", soft_wrap=True)


def show_archives(made: Mapping[str, Path | class_recording.NotMade]) -> None:
    """Where the class archives are. That there is none is told, and is no error."""
    for part, archive in made.items():
        if isinstance(archive, class_recording.NotMade):
            told = f"no class archive, and {part} starts more slowly: {archive.reason}"
            errors.print(f"{class_recording.NAME}: {told}", markup=False)
        else:
            console.print(f"{class_recording.NAME}: {archive}", soft_wrap=True)


app.command()(one_clear_message()(cost))


if __name__ == "__main__":
    app()
