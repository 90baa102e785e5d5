"""The stack of one state folder: starts services, knows where they are, and stops exactly what it started.

Everything known is in the state file, so any process may open the same folder later: `down` after a crash
works like `stop` before it.
"""

import fcntl
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from infra.local import jvm_parts, log_tail, processes
from infra.local import state as state_file
from infra.local.prerequisites import require
from infra.local.service import BUCKET, Service
from infra.local.services import DEFAULT, SERVICES, catalog
from infra.local.startup import Request, bring_up, log_path
from infra.local.state import ServiceRecord, StackState
from lake.clock import SYSTEM_CLOCK
from lake.errors import NotFoundError, PrerequisiteError, SettingsError, UnavailableError
from lake.private_files import close, private_file, private_folder
from lake.settings import InfraSettings
from lake.storage import canonical

WATCHDOG = "watchdog"
LOCK_TIMEOUT_S = 300.0
LOCK_POLL_S = 0.2
Database = Literal["sqlite", "postgres"]


def _say_on_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


class Stack:
    """Services of one state folder. As a context manager it stops all of them at the end.

    `warehouse`: `file:///path` (default: a folder beside the state), or `s3://firn-warehouse/prefix` on the
    stack's own S3. It is fixed when the catalog first starts. `tied`: a watchdog process stops everything
    when this process dies, however it dies; for tests.
    """

    def __init__(
        self,
        state: Path,
        *,
        warehouse: str | None = None,
        tied: bool = False,
        say: jvm_parts.Say = _say_on_stderr,
    ) -> None:
        self.folder = Path(state).absolute()
        self._warehouse = _checked_warehouse(warehouse)
        self._tied = tied
        self._say = say

    def start(
        self,
        *services: str,
        database: Database | None = None,
        catalog_uri: str | None = None,
        ports: Mapping[str, int] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Starts services (default: kafka, catalog, trino, ingest) and what they need, and returns when all
        are ready.

        Those that run already are left alone. `database`: what the catalog uses, fixed at its first start
        (default sqlite). `catalog_uri`: use this REST catalog, not one of ours. `ports`: by service; an
        occupied one is an error. `environment`: variables for the processes started now. Ports and variables
        are remembered for the next start. Raises PrerequisiteError, SettingsError, UnavailableError; then, as
        after Ctrl-C, everything that this call started is stopped again.
        """
        named = [_service(name) for name in services or DEFAULT]
        with self._locked():
            self._configure(database, catalog_uri)
            missing_from = [service for service in self._with_needs(named) if not self.running(service.name)]
            self._refuse_moved_ports(ports or {})
            require(
                thing
                for service in missing_from
                for thing in (
                    *service.missing(),
                    *(jvm_parts.missing(service.parts) if service.parts else ()),
                )
            )
            for service in missing_from:
                if service.parts:
                    jvm_parts.fetch(service.parts, self._say)
            request = Request(
                missing_from, ports or {}, environment or {}, InfraSettings.load().ready_timeout_factor
            )
            try:
                self._tie()
                bring_up(self.folder, request, self._say, self.environment)
            except BaseException:
                self._end(missing_from)
                raise

    def stop(self, *services: str) -> None:
        """Stops services, politely first, those that depend on others before these; all of the stack when
        none is named."""
        if not self.folder.is_dir():
            return
        with self._locked():
            self._end([_service(name) for name in services] if services else list(SERVICES.values()))

    def kill(self, service: str) -> None:
        """Ends a service and its children by SIGKILL, as a crash would. Raises NotFoundError where this stack
        did not start it."""
        _service(service)
        with self._locked():
            if not self._record(service).launch:
                raise NotFoundError(f"{service} was not started by this stack: there is nothing to end")
            processes.kill(self._record(service))
            self._note(self._record(service).stopped())

    def address(self, service: str) -> str:
        """`host:port` of Kafka, the URL of the others (of PostgreSQL SQLAlchemy's). Raises NotFoundError
        where it was never started."""
        address = self._record(_service(service).name).address
        if not address:
            raise NotFoundError(f"{service} has no address yet: start it with `python -m infra up {service}`")
        return address

    def running(self, service: str) -> bool:
        """True while the process of a service lives (it may still be starting)."""
        return processes.leader(self._record(service)) is not None

    def log(self, service: str) -> Path:
        """The log file of a service."""
        return log_path(self.folder, service)

    def pid(self, service: str) -> int:
        """The process id of a running service. Raises NotFoundError where it does not run."""
        process = processes.leader(self._record(service))
        if process is None:
            raise NotFoundError(f"{service} does not run: start it with `python -m infra up {service}`")
        return process.pid

    def environment(self) -> dict[str, str]:
        """The FIRN_* variables that make `python -m <room>` talk to this stack."""
        state = self.read()
        variables = {"FIRN_INFRA_STATE": str(self.folder)}
        if state.catalog_uri:
            variables |= catalog.exports(state.catalog_uri)
        for record in state.services.values():
            variables |= record.exports
        return variables

    def died(self) -> list[str]:
        """Services that were started, were not stopped, and do not run."""
        return [name for name in SERVICES if self._record(name).launch and not self.running(name)]

    def check(self) -> None:
        """Raises UnavailableError with the end of its log where a service died."""
        for name in self.died():
            raise UnavailableError(
                log_tail.failure(name, "died", self.log(name), start=self._record(name).log_start)
            )

    def read(self) -> StackState:
        """The state file as it is now."""
        return state_file.load(self.folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    # -- inside

    def _record(self, name: str) -> ServiceRecord:
        return self.read().record(name)

    def _note(self, record: ServiceRecord) -> None:
        state_file.save(self.folder, self.read().with_record(record))

    def _configure(self, database: Database | None, catalog_uri: str | None) -> None:
        """Notes where the tables and the catalog's rows live. Once the catalog has run that is fixed, because
        they would stay behind."""
        state = self.read()
        fixed = bool(state.record("catalog").address)
        for what, known, wanted in (
            ("warehouse", state.warehouse, self._warehouse),
            ("database", state.database, database),
        ):
            if fixed and wanted and known != wanted:
                raise SettingsError(
                    f"the stack in {self.folder} has the {what} {known!r}, not {wanted!r}: use another state "
                    "folder, or delete this one"
                )
        state_file.save(
            self.folder,
            replace(
                state,
                warehouse=self._warehouse or state.warehouse or f"file://{self.folder / 'warehouse'}",
                database=database or state.database or "sqlite",
                catalog_uri=state.catalog_uri if catalog_uri is None else catalog_uri,
            ),
        )

    def _with_needs(self, named: Sequence[Service]) -> list[Service]:
        """The named services and all they need, in the order of SERVICES, which is one of dependency."""
        state = self.read()
        wanted: set[str] = set()
        left = [service.name for service in named]
        while left:
            name = left.pop()
            if name not in wanted:
                wanted.add(name)
                left.extend(SERVICES[name].needs(state))
        return [service for name, service in SERVICES.items() if name in wanted]

    def _refuse_moved_ports(self, wanted: Mapping[str, int]) -> None:
        for name, port in wanted.items():
            has = self._record(_service(name).name).ports.get("port")
            if self.running(name) and port and port != has:
                raise SettingsError(
                    f"{name} already runs on port {has}: stop it first with `python -m infra down {name}`, "
                    "or leave the port out"
                )

    def _end(self, services: Sequence[Service]) -> None:
        """Ends services level by level: nothing is stopped before what depends on it."""
        state = self.read()
        levels: dict[int, list[Service]] = {}
        for service in services:
            if state.record(service.name).launch:
                levels.setdefault(_depth(service, state), []).append(service)
        for _, level in sorted(levels.items(), reverse=True):
            with ThreadPoolExecutor(len(level)) as pool:
                list(pool.map(self._end_one, level))
            for service in level:
                self._note(self._record(service.name).stopped())
        if self._record(WATCHDOG).launch and not any(self._record(name).launch for name in SERVICES):
            processes.end(self._record(WATCHDOG), grace_s=2.0)
            self._note(self._record(WATCHDOG).stopped())

    def _end_one(self, service: Service) -> None:
        record = self._record(service.name)
        if not processes.members(record):
            return
        self._say(f"{service.name} stops")
        if processes.end(record, grace_s=service.grace_s, polite=service.polite):
            self._say(f"{service.name} did not stop by itself within {service.grace_s:.0f} s and was killed")
        if left := processes.members(record):
            raise UnavailableError(
                f"{service.name} cannot be ended: process {', '.join(str(p.pid) for p in left)} survives "
                "SIGKILL; look at it with `ps`"
            )

    def _tie(self) -> None:
        """Starts the watchdog of a tied stack, before any service."""
        if not self._tied or processes.leader(self._record(WATCHDOG)):
            return
        log = self.log(WATCHDOG)
        private_folder(log.parent)
        record = ServiceRecord(WATCHDOG).planned(ports={}, environment={}, log_start=0)
        self._note(record)
        me = os.getpid()
        command = (
            sys.executable,
            "-m",
            "infra.local.watchdog",
            str(self.folder),
            str(me),
            repr(processes.created_at(me)),
        )
        process = processes.spawn(
            command, launch=record.launch, environment={}, folder=jvm_parts.REPOSITORY, log=log
        )
        self._note(replace(record, pid=process.pid, created=processes.created_at(process.pid)))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One process (or thread) at a time changes a stack. The lock goes with the process that holds it."""
        try:
            private_folder(self.folder)
            if (
                self.folder / state_file.FILE
            ).exists():  # ours from the beginning, and made when folders were not closed yet
                close(self.folder)
            file = private_file(self.folder / "lock").open("w")
        except OSError as error:
            raise PrerequisiteError(
                f"cannot use the state folder {self.folder}: {error.strerror}. Choose another one with "
                "--state"
            ) from error
        with file:
            deadline = SYSTEM_CLOCK.monotonic_s() + LOCK_TIMEOUT_S
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if SYSTEM_CLOCK.monotonic_s() > deadline:
                        busy = (
                            f"another command has been changing the stack in {self.folder} for "
                            f"{LOCK_TIMEOUT_S:.0f} s: end it first"
                        )
                        raise UnavailableError(busy) from None
                time.sleep(LOCK_POLL_S)
            yield


def _service(name: str) -> Service:
    try:
        return SERVICES[name]
    except KeyError:
        raise SettingsError(f"there is no service {name!r}; the services are {', '.join(SERVICES)}") from None


def _depth(service: Service, state: StackState) -> int:
    return max((1 + _depth(SERVICES[name], state) for name in service.needs(state)), default=0)


def _checked_warehouse(warehouse: str | None) -> str | None:
    if warehouse is None:
        return None
    uri = canonical(warehouse).rstrip("/")
    if uri.startswith("s3://") and uri.split("/")[2] != BUCKET:
        raise SettingsError(
            f"the local stack has the one bucket {BUCKET}: use s3://{BUCKET}/<prefix>, not {warehouse}"
        )
    return uri
