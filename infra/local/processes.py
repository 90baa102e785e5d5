"""Starting, finding and ending the processes of one launch, and never anybody else's."""

import os
import shlex
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from infra.local.state import ServiceRecord
from lake.clock import SYSTEM_CLOCK
from lake.private_files import UMASK, private_file

LAUNCH_VARIABLE = "FIRN_LAUNCH"
# The start time psutil computes moves with corrections of the clock; nobody gets a reused pid within so short
# a time.
CREATED_TOLERANCE_S = 1.0
KILLED_WITHIN_S = 10.0
POLL_S = 0.05


def spawn(
    command: Sequence[str],
    *,
    launch: str,
    environment: Mapping[str, str],
    folder: Path,
    log: Path,
    steps: Sequence[str] = (),
) -> subprocess.Popen[bytes]:
    """Starts a command in its own session, its output appended to a log. `steps` are shell lines that run
    before it, in the same process."""
    argv = list(command)
    if steps:
        argv = ["/bin/sh", "-c", "\n".join(["set -e", *steps, f"exec {shlex.join(command)}"])]
    with private_file(log).open("ab") as output:
        return subprocess.Popen(
            argv,
            cwd=folder,
            env={**os.environ, **environment, LAUNCH_VARIABLE: launch},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            # what a service writes, its log and its part of the warehouse too, is for the owner of the stack
            # alone
            umask=UMASK,
            # Ctrl-C in the terminal reaches the supervisor alone, which stops services in their order
            start_new_session=True,
        )


def created_at(pid: int) -> float:
    """The start time of a process that was just started, seconds since the epoch; 0 when it is gone
    already."""
    try:
        return float(psutil.Process(pid).create_time())
    except psutil.NoSuchProcess:
        return 0.0


def leader(record: ServiceRecord) -> psutil.Process | None:
    """The process of a record if it still lives: same pid and same start time, so a reused pid is never taken
    for it."""
    if not record.pid:
        return None
    try:
        process = psutil.Process(record.pid)
        same = abs(process.create_time() - record.created) <= CREATED_TOLERANCE_S
        return process if same and _lives(process) else None
    except psutil.Error:
        return None


def members(record: ServiceRecord) -> list[psutil.Process]:
    """Every living process of a launch: the leader, its descendants, and all that carry the launch in their
    environment.

    The last finds a process whose pid was never noted, and children whose parent was killed.
    """
    found: dict[int, psutil.Process] = {}
    first = leader(record)
    if first is not None:
        found[first.pid] = first
        with suppress(psutil.Error):
            found.update((child.pid, child) for child in first.children(recursive=True))
    if record.launch:
        for process in psutil.process_iter():
            if process.pid not in found and _carries(process, record.launch):
                found[process.pid] = process
    found.pop(os.getpid(), None)
    return list(found.values())


def _carries(process: psutil.Process, launch: str) -> bool:
    try:
        return process.environ().get(LAUNCH_VARIABLE) == launch and _lives(process)
    except (psutil.Error, OSError):
        return False  # another user's process, or one that just ended


def end(record: ServiceRecord, *, grace_s: float, polite: signal.Signals = signal.SIGTERM) -> int:
    """Ends every process of a launch: first politely the leader, then, after `grace_s`, all that are left by
    SIGKILL. Returns how many got SIGKILL."""
    all_members = members(record)
    if not all_members:
        return 0
    first = leader(record)
    with suppress(psutil.NoSuchProcess):
        if first is not None:
            first.send_signal(polite)
        else:
            for process in all_members:
                process.send_signal(polite)
    wait_ended(all_members, timeout_s=grace_s)
    return kill(record)


def kill(record: ServiceRecord) -> int:
    """Ends every process of a launch by SIGKILL, repeating while new ones appear; returns how many."""
    killed = 0
    deadline = SYSTEM_CLOCK.monotonic_s() + KILLED_WITHIN_S
    while (left := members(record)) and SYSTEM_CLOCK.monotonic_s() < deadline:
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()
                killed += 1
        wait_ended(left, timeout_s=1.0)
    return killed


def wait_ended(processes: Sequence[psutil.Process], *, timeout_s: float) -> list[psutil.Process]:
    """Waits until processes are dead, and returns those that are not. A zombie is dead: its parent may take
    long to collect it."""
    deadline = SYSTEM_CLOCK.monotonic_s() + timeout_s
    while left := [process for process in processes if _lives(process)]:
        if SYSTEM_CLOCK.monotonic_s() >= deadline:
            break
        time.sleep(POLL_S)
    return left


def _lives(process: psutil.Process) -> bool:
    """False for a zombie: it is dead and waits for its parent. But while other threads of it still die, its
    ports and files are open."""
    try:
        return process.is_running() and (
            process.status() != psutil.STATUS_ZOMBIE or process.num_threads() > 1
        )
    except psutil.NoSuchProcess:
        return False


def memory_bytes(record: ServiceRecord) -> int:
    """Resident memory of all processes of a launch."""
    total = 0
    for process in members(record):
        with suppress(psutil.Error):
            total += process.memory_info().rss
    return total
