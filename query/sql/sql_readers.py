"""The processes that read people's SQL. A parser cannot be interrupted, a process can be ended: a statement
that takes too long costs only its reader.

Of each asker one statement is read at a time, so that a reader is free for the others; readers that end are
followed by new ones.
"""

import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import orjson
import structlog
from prometheus_client import Counter

from lake.errors import UnavailableError
from lake.tenant import TableId, TenantId
from query.model.cancellation import Run
from query.model.limits import BusyError
from query.model.problem import BadRequestError, Problem, refuse
from query.sql.sql_guard import Statement, check_text

log = structlog.get_logger()
MEMORY_BYTES = 1024 * 1024 * 1024
ENDS_WITHIN_S = 5.0
ENDED = Counter(
    "firn_query_sql_readers_ended",
    "Readers of SQL that were ended by a statement which took more than sql.parse_cpu_s, or otherwise",
    ["why"],
)


class _ReaderEndedError(Exception):
    """The process ended before it answered. `over`: because its time was over."""

    def __init__(self, *, over: bool) -> None:
        super().__init__("over" if over else "ended")
        self.over = over


class _Reader:
    """One process."""

    def __init__(self, cpu_s: float) -> None:
        command = [sys.executable, "-m", "query.sql.sql_reader_process", str(cpu_s), str(MEMORY_BYTES)]
        environment = {
            "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)
        }  # and no secrets
        # A session of its own: Ctrl-C is for the API, whose end closes the pipe.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, start_new_session=True
        )

    def ask(self, line: bytes, run: Run) -> bytes:
        """The answer to a line. Raises _ReaderEndedError, TimeOverError, CancelledError."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with run.stoppable(self.end), suppress(BrokenPipeError):
            self._process.stdin.write(line)
            self._process.stdin.flush()
            if said := self._process.stdout.readline():
                return said
        run.check()
        raise _ReaderEndedError(over=self._process.wait(ENDS_WITHIN_S) == -signal.SIGPROF)

    @property
    def is_idle(self) -> bool:
        """Whether it lives and has said nothing that was not asked for."""
        assert self._process.stdout is not None
        return self._process.poll() is None and not select.select([self._process.stdout], [], [], 0)[0]

    def end(self) -> None:
        self._process.kill()

    def close(self) -> None:
        """Ends it and what leads to it."""
        self.end()
        self._process.wait(ENDS_WITHIN_S)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()


class SqlReaders:
    """Reads statements in `count` processes of `cpu_s` seconds of processor time for each statement.
    Thread-safe."""

    def __init__(self, count: int, cpu_s: float, queue_timeout_s: float) -> None:
        self._cpu_s = cpu_s
        self._timeout_s = queue_timeout_s
        self._lock = threading.Condition()
        self._idle = [_Reader(cpu_s) for _ in range(count)]
        self._asking: set[str] = set()
        self._closed = False

    def read(self, sql: str, default: TenantId | None, catalog: str, run: Run, *, asker: str) -> Statement:
        """`read_statement` in another process. `asker`: whose turn it is. Raises BadRequestError, BusyError,
        UnavailableError, CancelledError."""
        check_text(sql)
        line = (
            orjson.dumps(
                {"sql": sql, "default": None if default is None else default.name, "catalog": catalog}
            )
            + b"\n"
        )
        for _ in range(2):  # a reader that was ended from outside says nothing of the statement
            try:
                with self._reader(asker) as reader:
                    return _statement(reader.ask(line, run))
            except _ReaderEndedError as error:
                ENDED.labels("time" if error.over else "other").inc()
                log.warning("sql.reader_ended", over=error.over, characters=len(sql))
                if error.over:
                    told = (
                        f"the statement takes more than {self._cpu_s:g} s to be read; nest it less deep, "
                        "or write it shorter"
                    )
                    raise refuse(told) from error
        raise UnavailableError(
            "the process that reads SQL ended twice; ask again, and if it goes on look at the API's log and "
            "memory"
        )

    def close(self) -> None:
        """Ends the readers that are idle; those at work are ended when they are given back."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for reader in idle:
            reader.close()

    @contextmanager
    def _reader(self, asker: str) -> Iterator[_Reader]:
        with self._lock:
            if not self._lock.wait_for(
                lambda: bool(self._idle) and asker not in self._asking, self._timeout_s
            ):
                raise BusyError("other statements are being read; ask again in a moment")
            self._asking.add(asker)
            reader = self._idle.pop()
        try:
            if not reader.is_idle:
                reader.close()
                reader = _Reader(self._cpu_s)
            yield reader
        finally:
            self._give_back(asker, reader)

    def _give_back(self, asker: str, reader: _Reader) -> None:
        if not reader.is_idle:  # ended, or its answer was not waited for
            reader.close()
            reader = _Reader(self._cpu_s)
        with self._lock:
            self._asking.discard(asker)
            if not self._closed:
                self._idle.append(reader)
            self._lock.notify_all()
        if self._closed:
            reader.close()


def _statement(said: bytes) -> Statement:
    document = orjson.loads(said)
    if "problem" in document:
        raise BadRequestError(Problem(**document["problem"]))
    return Statement(
        document["sql"], frozenset(TableId(TenantId(tenant), stream) for tenant, stream in document["tables"])
    )
