"""Brings several services up at once: each as soon as what it needs is ready, and waits until every one
answers."""

import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from infra.local import log_tail, ports, processes
from infra.local import state as state_file
from infra.local.jvm_parts import Say
from infra.local.service import Service, Site
from infra.local.state import ServiceRecord
from lake.clock import SYSTEM_CLOCK
from lake.errors import UnavailableError
from lake.private_files import private_file, private_folder

POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Request:
    """What a start was asked for: services in dependency order, ports by service (0: any), variables for the
    started processes."""

    services: Sequence[Service]
    ports: Mapping[str, int]
    environment: Mapping[str, str]
    timeout_factor: float


@dataclass(frozen=True, slots=True)
class _Starting:
    service: Service
    process: subprocess.Popen[bytes]
    began_s: float


def bring_up(folder: Path, request: Request, say: Say, environment: Callable[[], Mapping[str, str]]) -> None:
    """Starts all services of a request and returns when all are ready.

    `environment` tells the variables of the stack as it is at that moment. Raises UnavailableError with the
    end of the log where a service dies or takes too long, PrerequisiteError for an occupied port; what was
    started until then keeps running.
    """
    waiting = list(request.services)
    starting: list[_Starting] = []
    names = {service.name for service in waiting}
    ready: set[str] = set()
    while waiting or starting:
        stack = state_file.load(folder)
        for service in [s for s in waiting if not (set(s.needs(stack)) & names) - ready]:
            waiting.remove(service)
            starting.append(_start(folder, service, request, environment()))
            say(f"{service.name} starts (log: {log_path(folder, service.name)})")
        for one in list(starting):
            if _is_ready(folder, one, request.timeout_factor):
                starting.remove(one)
                ready.add(one.service.name)
                say(
                    f"{one.service.name} is ready after {SYSTEM_CLOCK.monotonic_s() - one.began_s:.1f} s at "
                    f"{state_file.load(folder).record(one.service.name).address}"
                )
        time.sleep(POLL_S)


def log_path(folder: Path, name: str) -> Path:
    """The log of a service; one file for all its runs."""
    return folder / "logs" / f"{name}.log"


def _start(
    folder: Path, service: Service, request: Request, stack_environment: Mapping[str, str]
) -> _Starting:
    """Starts one process. The state file is written before (with the launch to find it by) and after (with
    its pid and address)."""
    state = state_file.load(folder)
    before = state.record(service.name)
    processes.kill(before)  # what a killed leader may have left behind
    chosen = {
        name: ports.choose(
            service.name,
            wanted=request.ports.get(service.name) if name == "port" else None,
            remembered=before.ports.get(name),
        )
        for name in service.ports
    }
    own = folder / service.name
    private_folder(own)
    launch = service.prepare(Site(folder=own, state_folder=folder, ports=chosen, stack=state))
    log = log_path(folder, service.name)
    private_folder(log.parent)
    private_file(log)
    user_environment = {**before.environment, **request.environment}
    record = before.planned(ports=chosen, environment=user_environment, log_start=log.stat().st_size)
    record = replace(record, address=launch.address, exports=launch.exports)
    _note(folder, record)
    process = processes.spawn(
        launch.command,
        launch=record.launch,
        environment={**stack_environment, **launch.exports, **launch.environment, **user_environment},
        folder=launch.folder,
        log=log,
        steps=launch.steps,
    )
    _note(folder, replace(record, pid=process.pid, created=processes.created_at(process.pid)))
    return _Starting(service, process, SYSTEM_CLOCK.monotonic_s())


def _note(folder: Path, record: ServiceRecord) -> None:
    state_file.save(folder, state_file.load(folder).with_record(record))


def _is_ready(folder: Path, one: _Starting, timeout_factor: float) -> bool:
    record = state_file.load(folder).record(one.service.name)
    log = log_path(folder, one.service.name)
    code = one.process.poll()
    if code is not None:
        how = f"was ended by signal {-code}" if code < 0 else f"stopped with exit code {code}"
        raise UnavailableError(
            log_tail.failure(one.service.name, f"{how} while starting", log, start=record.log_start)
        )
    why = one.service.probe(record.address)
    if why is None:
        return True
    timeout_s = one.service.ready_timeout_s * timeout_factor
    if SYSTEM_CLOCK.monotonic_s() - one.began_s > timeout_s:
        what = (
            f"was not ready after {timeout_s:.0f} s ({why}; FIRN_INFRA_READY_TIMEOUT_FACTOR gives it longer)"
        )
        raise UnavailableError(log_tail.failure(one.service.name, what, log, start=record.log_start))
    return False
