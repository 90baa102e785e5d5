"""`python -m <room>` as a child process, forked from one that has imported the rooms already.

The imports take a CPU second or more, most of what a start costs, and tests start some hundred processes.
What runs is the room's `__main__`, in a process with arguments, variables, folder and logs of its own; the
processes that it spawns (an ingester that starts its workers again) come from the same server, whose children
they are. Fault points are those of its variables. Sources that change while tests run are seen by half.
"""

import atexit
import multiprocessing
import os
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import forkserver, popen_forkserver
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import psutil

from infra.local.jvm_parts import REPOSITORY
from ingest.model import fault_point

IMPORTED = "tests.stack.support.imported_rooms"
ROOMS = ("ingest", "query", "optimize", "catalog", "ui", "infra")
# Whatever ends the test run, also SIGKILL, ends its processes.
TIED = (setpriv, "--pdeathsig", "KILL", "--") if (setpriv := shutil.which("setpriv")) else ()


@dataclass(frozen=True, slots=True)
class Start:
    """What is started: `python -m <room> <arguments>` in the repository, with these variables and no other.
    Its output is appended to files. `leads`: in a session of its own."""

    room: str
    arguments: Sequence[str]
    environment: Mapping[str, str]
    output: Path
    errors: Path
    leads: bool


class Forked:
    """A process from the fork server; the part of subprocess.Popen that tests use."""

    def __init__(self, start: Start) -> None:
        for log in (start.output, start.errors):
            log.touch()  # whoever looks into it does not have to wait for the process
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([IMPORTED])
        self._process = context.Process(target=_run, args=(start,), name=start.room)
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the exit code. Raises TimeoutExpired."""
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired(self._process.name, timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        """Sends a signal; to nobody where it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


RoomProcess = Forked | subprocess.Popen[bytes]


def start_room(
    room: str,
    *arguments: str,
    environment: Mapping[str, str],
    log: Path,
    errors: Path | None = None,
    leads: bool = False,
) -> RoomProcess:
    """Starts `python -m <room> <arguments>` in the repository, with these variables and no other; its output
    is appended to a log, its errors too where no other file is given. `leads`: in a session of its own, so
    that a signal can be sent to all that it starts."""
    start = Start(room, arguments, dict(environment), log, errors or log, leads)
    if room in ROOMS:
        return Forked(start)
    with log.open("ab") as output, start.errors.open("ab") as problems:
        return subprocess.Popen(
            (*TIED, sys.executable, "-m", room, *arguments),
            cwd=REPOSITORY,
            env=start.environment,
            stdout=output,
            stderr=problems,
            start_new_session=leads,
        )


def run_room(
    room: str, *arguments: str, environment: Mapping[str, str], timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """Runs `python -m <room> <arguments>` to its end. Raises TimeoutExpired, and then has killed it."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as ended:
        output, errors = Path(name) / "output", Path(name) / "errors"
        process = start_room(room, *arguments, environment=environment, log=output, errors=errors)
        ended.callback(process.wait)
        ended.callback(process.kill)
        code = process.wait(timeout_s)
        return subprocess.CompletedProcess(arguments, code, output.read_text(), errors.read_text())


def started_by(pid: int) -> list[psutil.Process]:
    """What a room's process has forked or spawned (an ingester its workers) and still lives; without
    multiprocessing's own helper, which comes with the first that is spawned."""
    forked = [each for each in psutil.Process(pid).children() if "resource_tracker" not in _command(each)]
    return [*forked, *_spawned_by(pid)]


def family(pid: int) -> list[psutil.Process]:
    """A room's process, what it has forked and spawned, and all that these have started."""
    heads = [psutil.Process(pid), *_spawned_by(pid)]
    return [each for head in heads for each in (head, *head.children(recursive=True))]


def _spawned_by(pid: int) -> list[psutil.Process]:
    server = psutil.Process(pid).parent()
    assert server is not None
    return [each for each in server.children() if _name(each) == _name_of_spawned(pid)]


def _name_of_spawned(by: int) -> str:
    return f"of-{by}"


def _name(process: psutil.Process) -> str:
    try:
        return str(process.name())
    except psutil.NoSuchProcess:  # it has ended meanwhile
        return ""


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


def _run(start: Start) -> None:
    """What the process does: takes what a start of the interpreter would have made its own, then runs the
    room."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=_end_with, args=(parent.sentinel,), name="tied", daemon=True).start()
    if start.leads:
        os.setsid()
    _take_over(start)
    # A process from the server may ask it for more: it is there, whoever began it.
    vars(forkserver._forkserver)["ensure_running"] = lambda: None
    SpawnProcess._Popen = partial(_fork_spawned, start)  # type: ignore[assignment]
    sys.argv = [start.room, *start.arguments]
    try:
        runpy.run_module(start.room, run_name="__main__", alter_sys=True)
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()


def _take_over(start: Start) -> None:
    """Makes variables, folder and output this process's own."""
    os.environ.clear()
    os.environ.update(start.environment)
    os.chdir(REPOSITORY)
    fault_point.arm()
    with start.output.open("ab") as output, start.errors.open("ab") as errors:
        os.dup2(output.fileno(), 1)
        os.dup2(errors.fileno(), 2)


def _fork_spawned(start: Start, process: Any) -> popen_forkserver.Popen:
    """Starts what a room spawns: its arguments are pickled, its variables and output are the room's, as if it
    were spawned."""
    target = process._target
    own = replace(start, environment=dict(os.environ))
    process._target = partial(_run_spawned, own, os.getpid(), target)
    try:
        return popen_forkserver.Popen(process)
    finally:
        process._target = target


def _run_spawned(start: Start, spawned_by: int, target: Callable[..., None], *args: Any) -> None:
    Path("/proc/self/comm").write_text(_name_of_spawned(spawned_by))
    _take_over(start)
    target(*args)


def _end_with(test_run: int) -> None:
    """Ends this process when the test run has ended, however it did."""
    wait([test_run])
    os.kill(os.getpid(), signal.SIGKILL)
