"""Worker processes: forked before there is work, spawned in the place of one that ended, gone with the main
process however that ends."""

import subprocess
import sys

import psutil
import pytest

from infra.local.jvm_parts import REPOSITORY
from tests.stack.support.waiting import wait_for

GONE_S = 60.0
# A fork is for a process without threads, which the one of the tests is not.
FORKS = """
import time
from ingest.node.engines.worker_process import fork_workers
workers = fork_workers(2)
print(*(worker.process.pid for worker in workers), flush=True)
"""
WORKS = """
from multiprocessing.connection import Connection
for word, worker in zip(("one", "two"), workers):
    worker.begin(Connection.send, word)
    print(worker.pipe.recv())
    worker.process.join()
    print(worker.process.exitcode)
"""
ENDS_ONE = """
first, second = workers
first.end()
print(first.process.exitcode, second.process.is_alive())
try:
    second.process.kill()
    second.process.join()
    second.begin(print)
except OSError:
    print("told")
"""
WAITS = "time.sleep(600)"


def _run(script: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.split()[2:]


def test_a_forked_worker_does_the_work_it_is_given() -> None:
    """Each its own."""
    assert _run(FORKS + WORKS) == ["one", "0", "two", "0"]


def test_a_worker_leaves_at_the_end_of_its_pipe_and_one_that_is_gone_is_noticed() -> None:
    """Other workers that were forked later do not keep the pipe open."""
    assert _run(FORKS + ENDS_ONE) == ["0", "True", "told"]


@pytest.mark.parametrize("how", ["terminate", "kill"])
def test_workers_that_wait_are_gone_with_the_main_process(how: str) -> None:
    """Also where it is killed and cannot tell them."""
    with subprocess.Popen(
        [sys.executable, "-c", FORKS + WAITS], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
    ) as main:
        assert main.stdout is not None
        workers = [psutil.Process(int(pid)) for pid in main.stdout.readline().split()]
        assert len(workers) == 2
        getattr(main, how)()
    wait_for(lambda: not any(map(_runs, workers)), GONE_S, "workers to leave")


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
