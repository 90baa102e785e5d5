"""Waits for one process to end and then stops a stack: `python -m infra.local.watchdog STATE_FOLDER PID
CREATED`.

It ties a stack to a test run or to `up --foreground`: even after their SIGKILL nothing stays behind. (The
kernel's parent-death signal would go off at the end of the thread that started a service, not of the process,
and is lost when the service changes its user.)
"""

import sys
import time
from pathlib import Path

from infra.local.processes import leader
from infra.local.state import ServiceRecord

POLL_S = 0.5


def wait_for_end(pid: int, created: float) -> None:
    """Returns when the process with this pid and start time (seconds since the epoch) is gone, or dead and
    not yet collected by its parent."""
    watched = ServiceRecord("watched", pid=pid, created=created)
    while leader(watched):
        time.sleep(POLL_S)


def main(folder: str, pid: str, created: str) -> None:
    wait_for_end(int(pid), float(created))
    # Only now: while it waits, the watchdog stays as small as a Python process can be.
    from infra.local.supervisor import Stack

    Stack(Path(folder)).stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
