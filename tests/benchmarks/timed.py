"""`python -m tests.benchmarks.timed ingest run`, `... catalog serve`: the program as it is, with timers
(`timers.py`)."""

import runpy
import sys

from ingest.node.engines.local import LocalEngine
from tests.benchmarks.timers import CATALOG, MAIN, install, run_timed_worker


def main(program: str, *args: str) -> None:
    """Runs a program of the repository as its `__main__`."""
    LocalEngine.worker_body = staticmethod(run_timed_worker)
    install(MAIN if program == "ingest" else CATALOG)
    sys.argv = [program, *args]
    runpy.run_module(program, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
