"""Worker processes: forked before there is work, spawned in the place of one that ended, gone with the main
process however that ends."""

import multiprocessing
import subprocess
import sys
from collections.abc import Sequence

import psutil
import pytest

from infra.local.jvm_parts import REPOSITORY
from ingest.node.engines.local import LocalEngine, NodeRestart
from ingest.node.engines.worker_process import WorkerProcess
from lake.settings import IngestSettings, TopicSettings
from tests.stack.support.forked import started_by
from tests.stack.support.line import Line
from tests.stack.support.waiting import wait_for

GONE_S = 60.0
# A fork is for a process without threads, which the one of the tests is not.
FORKS = """
import signal
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
WAITS = "signal.pause()"


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


def test_a_worker_that_is_gone_before_it_has_work_begins_the_node_anew() -> None:
    """As one does that ends later."""
    ours, theirs = multiprocessing.Pipe()
    theirs.close()
    engine = LocalEngine(IngestSettings(topics=(TopicSettings(name="logs"),)))
    engine._workers = [WorkerProcess(multiprocessing.Process(), ours)]
    with pytest.raises(NodeRestart, match="worker 0 ended before it had work"):
        engine._begin_workers("file:///nowhere", {})


@pytest.mark.stack
def test_the_first_workers_of_a_node_are_forked_and_those_of_its_next_start_spawned(line: Line) -> None:
    """When it starts again it has clients and threads, which are not to be copied."""
    node = line.ingester(line.kafka.topic(2), workers=2)
    forked = started_by(node.pid)
    assert [worker.ppid() for worker in forked] == [node.pid] * 2
    forked[0].kill()
    # Until it has noticed, the node is as ready as before.
    node.wait_until(lambda: len(_others(node.pid, forked)) == 2 and node.is_ready(), what="its next workers")
    assert not any(map(_runs, forked))
    spawned = _others(node.pid, forked)  # here by the tests' fork server
    assert len(spawned) == 2
    assert node.pid not in {worker.ppid() for worker in spawned}
    assert node.stop() == 0


def _others(pid: int, known: Sequence[psutil.Process]) -> list[psutil.Process]:
    return [process for process in started_by(pid) if process not in known]


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
