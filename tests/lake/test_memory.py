"""Memory that one thread has freed is there for the others."""

import os
import subprocess
import sys

import pytest

CORES = len(os.sched_getaffinity(0))
# So many threads at once take memory of their arenas.
PROGRAM = """
import ctypes, sys, threading
from lake.memory import share_arenas
if sys.argv[1] == "shared":
    share_arenas()
malloc = ctypes.CDLL(None).malloc
malloc.restype = ctypes.c_void_p
count = int(sys.argv[2])
together = threading.Barrier(count + 1)

def take():
    malloc(1_000)
    together.wait()
    together.wait()

for _ in range(count):
    threading.Thread(target=take).start()
together.wait()
ctypes.CDLL(None).malloc_stats()
together.wait()
"""


def _arenas(how: str) -> int:
    command = [sys.executable, "-c", PROGRAM, how, str(4 * CORES)]
    told = subprocess.run(command, capture_output=True, check=True, text=True)
    return sum(line.startswith("Arena ") for line in told.stderr.splitlines())


def test_threads_share_few_arenas() -> None:
    """Of glibc; where nothing is set each thread has one."""
    if sys.platform != "linux" or (own := _arenas("own")) == 0:
        pytest.fail("this C library tells of no arenas")
    assert _arenas("shared") <= max(2, CORES) < own
