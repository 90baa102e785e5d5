"""Timers around the functions of a process that `PARTS` names.

On SIGUSR2 the process writes what its parts have taken so far, CPU seconds of the threads that ran them, to
`$FIRN_BENCH_TIMES/<pid>.json`. What a part calls that is a part itself counts there alone. A timer takes
about a microsecond.
"""

import gc
import importlib
import os
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial, wraps
from pathlib import Path
from types import FrameType
from typing import Any

import orjson

FOLDER_VARIABLE = "FIRN_BENCH_TIMES"
WORKER, MAIN, CATALOG = "worker", "main process", "catalog"
Parts = Mapping[str, tuple[str, ...]]
# By process: part -> functions, as `module:name`. None may be a coroutine or a generator: a timer sees only
# how it begins.
PARTS: Mapping[str, Parts] = {
    WORKER: {
        "poll Kafka": ("ingest.kafka.consumer:InputTopics.take",),
        "route": ("ingest.node.pipeline:Pipeline.take",),
        "find what is due": ("ingest.node.pipeline:Pipeline.flush_due",),
        "decode": (
            "ingest.write.flush_writer:FlushWriter._convert_batched",
            "ingest.write.flush_writer:FlushWriter._convert",
        ),
        "lay out": ("ingest.write.flush_writer:FlushWriter._write",),
        "write parquet": ("ingest.write.writer:_write_parquet", "ingest.write.writer:_write_small"),
        "describe parquet": ("ingest.write.writer:describe_parquet", "ingest.write.writer:listed_file"),
        "write files": ("lake.storage:LocalStorage.write", "lake.storage:LocalStorage.write_new"),
        "sync files": ("lake.storage:LocalStorage.sync",),
        "send": ("multiprocessing.connection:Connection.send",),
        "receive": ("multiprocessing.connection:Connection.recv",),
        "settle": ("ingest.node.pipeline:Pipeline.settle", "ingest.node.pipeline:Pipeline.opened"),
        "group offsets": ("ingest.node.worker:Worker._duties",),
    },
    MAIN: {
        "send": ("multiprocessing.connection:Connection.send",),
        "receive": ("multiprocessing.connection:Connection.recv",),
        "handle": ("ingest.node.node:Node.handle",),
        "find out about tables": ("ingest.commit.table_states:TableStates.poll",),
        "load tables": ("ingest.commit.table_states:TableStates._load",),
        "load tables: request": ("lake.catalog_client:CatalogClient.load_table",),
        "create tables": ("ingest.commit.table_states:TableStates._create",),
        "tell workers of tables": ("ingest.node.node:Node._arrived",),
        "commit: find what is due": ("ingest.commit.committer:Committer.step",),
        "commit: prepare": ("ingest.commit.committer:Committer._prepare",),
        "commit: answers": ("ingest.commit.committer:Committer._take_answers",),
        "commit: request": ("lake.catalog_client:CatalogClient.commit_all",),
        "commit: settle": ("ingest.node.node:Node._commit",),
        "write files": ("lake.storage:LocalStorage.write", "lake.storage:LocalStorage.write_new"),
        "sync files": ("lake.storage:LocalStorage.sync",),
        "judge": ("ingest.node.node:Node._judge",),
        "park": ("ingest.parking.parking:Parking.step",),
    },
    CATALOG: {
        "understand requests": (
            "catalog.http.routes.batch_commits:parse_object",
            "catalog.http.routes.batch_commits:_unit",
        ),
        "look up tables": ("catalog.store.tables:require",),
        "read heads": ("catalog.commit.commits:Committer._read",),
        "next version": ("catalog.commit.commits:Committer._change",),
        "write metadata": ("catalog.store.metadata_store:MetadataStore.write_many",),
        "swap": ("catalog.commit.commits:Committer._swap",),
        "new names": ("catalog.commit.commits:Committer._write_names",),
        "remember metadata": ("catalog.commit.commits:Committer._clean",),
        "delete old metadata": ("catalog.store.metadata_store:MetadataStore.delete",),
    },
}
COLLECT = "collect garbage"


class Timers:
    """CPU seconds and calls by part, of all threads of this process."""

    def __init__(self) -> None:
        self._local = threading.local()
        self._threads: list[dict[str, list[int]]] = []  # part -> nanoseconds, calls

    def totals(self) -> dict[str, tuple[float, int]]:
        """Part -> CPU seconds, calls."""
        found: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        for of_thread in list(self._threads):
            for part, (took_ns, calls) in list(of_thread.items()):
                found[part][0] += took_ns
                found[part][1] += calls
        return {part: (took_ns / 1e9, calls) for part, (took_ns, calls) in found.items()}

    @contextmanager
    def running(self, part: str) -> Iterator[None]:
        """Times what is done meanwhile, but for what is a part itself."""
        within = self._within()
        within.append(0)
        began_ns = time.thread_time_ns()
        try:
            yield
        finally:
            self._ended(part, time.thread_time_ns() - began_ns, within)

    def around(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, timed."""

        @wraps(function)
        def timed(*args: Any, **more: Any) -> Any:
            within = self._within()
            within.append(0)
            began_ns = time.thread_time_ns()
            try:
                return function(*args, **more)
            finally:
                self._ended(part, time.thread_time_ns() - began_ns, within)

        return timed

    def collecting(self, phase: str, _: Mapping[str, int]) -> None:
        """A callback of the garbage collector."""
        within = self._within()
        if phase == "start":
            within.append(0)
            self._local.collects_since_ns = time.thread_time_ns()
        elif within:
            self._ended(COLLECT, time.thread_time_ns() - self._local.collects_since_ns, within)

    def _within(self) -> list[int]:
        """What the parts took that were called by those that run in this thread."""
        within: list[int] | None = getattr(self._local, "within", None)
        if within is None:
            within = self._local.within = []
            self._local.totals = defaultdict(lambda: [0, 0])
            self._threads.append(self._local.totals)
        return within

    def _ended(self, part: str, took_ns: int, within: list[int]) -> None:
        total = self._local.totals[part]
        total[0] += took_ns - within.pop()
        total[1] += 1
        if within:
            within[-1] += took_ns


def install(process: str, parts: Parts | None = None) -> None:
    """Times this process from now on, by these parts or by those that `PARTS` has of it."""
    timers = Timers()
    for part, functions in (PARTS[process] if parts is None else parts).items():
        for place in functions:
            module_name, _, name = place.partition(":")
            *owners, attribute = name.split(".")
            owner: Any = importlib.import_module(module_name)
            for each in owners:
                owner = getattr(owner, each)
            setattr(owner, attribute, timers.around(part, getattr(owner, attribute)))
    gc.callbacks.append(timers.collecting)
    signal.signal(signal.SIGUSR2, partial(_write, process, timers))


def _write(process: str, timers: Timers, _: int, __: FrameType | None) -> None:
    path = Path(os.environ[FOLDER_VARIABLE]) / f"{os.getpid()}.json"
    used = os.times()
    spent = {"cpu_s": used.user + used.system, "kernel_s": used.system}
    times = {"process": process, **spent, "parts": timers.totals()}
    path.with_suffix(".new").write_bytes(orjson.dumps(times))
    path.with_suffix(".new").rename(path)


def run_timed_worker(*args: Any) -> None:
    """The body of a worker process."""
    from ingest.node.engines.local_worker import run_local_worker

    install(WORKER)
    run_local_worker(*args)
