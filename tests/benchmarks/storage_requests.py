"""What a process asks of the storage, counted (`timers.py`).

One call is one request to an object store: a file is written by one PUT, read by one GET; a listing is one
LIST for a thousand objects, of which the tables here have fewer. Calls of files on a disk count as they would
there.
"""

from collections.abc import Mapping
from typing import Any

from tests.benchmarks.timers import WORKER, install

PUT, GET, LIST, DELETE = "put", "get", "list", "delete"
REQUESTS: Mapping[str, tuple[str, ...]] = {
    PUT: (
        "lake.storage:LocalStorage.write",
        "lake.storage:LocalStorage.write_new",
        "lake.storage:LocalStorage.create",
    ),
    GET: (
        "lake.storage:LocalStorage.read",
        "lake.storage:LocalStorage.read_range",
        "lake.storage:LocalStorage.open",
        "lake.storage:LocalStorage.size",
        "lake.storage:LocalStorage.stat",
    ),
    LIST: ("lake.storage:LocalStorage.list",),
    DELETE: ("lake.storage:LocalStorage.delete",),
}


def run_counted_worker(*args: Any) -> None:
    """The body of a worker process."""
    from ingest.node.engines.local_worker import run_local_worker

    install(WORKER, REQUESTS)
    run_local_worker(*args)
