"""`python -m tests.benchmarks.counted ingest run`, `... catalog serve`: the program as it is, counting what
it asks of the storage (`storage_requests.py`)."""

import runpy
import sys

from ingest.node.engines.local import LocalEngine
from tests.benchmarks.storage_requests import REQUESTS, run_counted_worker
from tests.benchmarks.timers import CATALOG, MAIN, install


def main(program: str, *args: str) -> None:
    """Runs a program of the repository as its `__main__`."""
    LocalEngine.worker_body = staticmethod(run_counted_worker)
    install(MAIN if program == "ingest" else CATALOG, REQUESTS)
    sys.argv = [program, *args]
    runpy.run_module(program, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
