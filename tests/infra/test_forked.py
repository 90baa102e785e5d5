"""Processes from the fork server behave as those that Python starts: what tests take from one holds for the
other."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from infra.local.jvm_parts import REPOSITORY
from tests.environment import without_settings
from tests.stack.support import forked
from tests.stack.support.forked import Forked, run_room, start_room
from tests.stack.support.waiting import wait_for

pytestmark = pytest.mark.stack
ENDED_S = 60.0
# Starts a server, says its process id, and waits to be killed.
RUN_OF_TESTS = """
import os, signal, sys
from pathlib import Path
from tests.stack.support.forked import start_room

folder = Path(sys.argv[1])
environment = {**os.environ, "FIRN_CATALOG_WAREHOUSE": f"file://{folder}/w", "FIRN_CONFIG": ""}
database = f"sqlite:///{folder}/catalog.db"
arguments = ("serve", "--anonymous", "--port", "0", "--database-url", database)
print(start_room("catalog", *arguments, environment=environment, log=folder / "log").pid, flush=True)
signal.pause()
"""


@pytest.fixture(params=["forked", pytest.param("started", marks=pytest.mark.prove)])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to a process."""
    if request.param == "started":
        monkeypatch.setattr(forked, "ROOMS", ())
    return str(request.param)


def test_a_room_gets_its_arguments_and_variables_and_gives_its_code(kind: str) -> None:
    """What a verb prints, what it complains of and its exit code; variables of the test run are not its
    own."""
    own = {**without_settings(), "FIRN_CONFIG": "", "COLUMNS": "200"}
    helped = run_room("catalog", "--help", environment=own, timeout_s=ENDED_S)
    assert (helped.returncode, helped.stderr) == (0, "")
    assert "python -m catalog [OPTIONS] COMMAND" in helped.stdout
    refused = run_room("catalog", "serve", environment=own, timeout_s=ENDED_S)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "no warehouse is set" in refused.stderr
    other = {**own, "FIRN_CATALOG_WORKERS": "many"}
    assert "workers" in run_room("catalog", "serve", environment=other, timeout_s=ENDED_S).stderr


def test_a_room_is_killed_and_says_so(kind: str, tmp_path: Path) -> None:
    """Its code is the signal's; a second one is sent to nobody. It leads a session where asked to."""
    own = {**without_settings(), "FIRN_CONFIG": "", "FIRN_CATALOG_WAREHOUSE": f"file://{tmp_path}/w"}
    arguments = ("serve", "--anonymous", "--port", "0", "--database-url", f"sqlite:///{tmp_path}/catalog.db")
    process = start_room("catalog", *arguments, environment=own, log=tmp_path / "log", leads=True)
    assert isinstance(process, Forked) == (kind == "forked")
    try:
        wait_for(lambda: "catalog.listening" in (tmp_path / "log").read_text(), ENDED_S, "the catalog")
        assert (process.poll(), os.getsid(process.pid)) == (None, process.pid)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
    finally:
        process.kill()
    assert (process.wait(ENDED_S), process.poll()) == (-signal.SIGKILL, -signal.SIGKILL)
    process.terminate()


def test_a_room_ends_with_the_run_of_the_tests(tmp_path: Path) -> None:
    """Also where that is killed: no process of a test is left behind, nor the fork server."""
    command = [sys.executable, "-c", RUN_OF_TESTS, str(tmp_path)]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        room = psutil.Process(int(run.stdout.readline()))
        server = room.parent()
        assert server is not None
        try:
            wait_for(lambda: "catalog.listening" in (tmp_path / "log").read_text(), ENDED_S, "the catalog")
        finally:
            run.kill()
        wait_for(_ended(room), ENDED_S, "the end of the catalog")
        wait_for(_ended(server), ENDED_S, "the end of the fork server")


def _ended(process: psutil.Process) -> Callable[[], bool]:
    def ended() -> bool:
        with suppress(psutil.NoSuchProcess):
            return process.status() == psutil.STATUS_ZOMBIE
        return True

    return ended
