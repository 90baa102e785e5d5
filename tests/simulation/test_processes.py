"""Processes of the simulation end with the one that began them."""

import subprocess
import sys
import threading

import pytest

from infra.local.jvm_parts import REPOSITORY
from tests.simulation.processes import end_with_parent

BEGIN = """
from multiprocessing import get_context
from tests.simulation.test_processes import wait_for_ever
process = get_context("spawn").Process(target=wait_for_ever)
process.start()
process.join()
"""


def wait_for_ever() -> None:
    """As a process does that nobody sends anything any more."""
    end_with_parent()
    print("waiting", flush=True)
    threading.Event().wait()


@pytest.mark.long
@pytest.mark.timeout(120)
def test_a_process_ends_where_the_one_that_began_it_is_killed() -> None:
    """It is told by nobody: the end of what both print says so."""
    with subprocess.Popen([sys.executable, "-c", BEGIN], cwd=REPOSITORY, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"waiting\n"
        parent.kill()
        assert parent.stdout.read() == b""
