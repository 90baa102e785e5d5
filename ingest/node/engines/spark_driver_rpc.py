"""The socket between the driver of the Spark engine and its tasks: whoever knows the key of this run may ask.

Messages are pickled, so nothing is read from a peer that has not answered the challenge. They are not
encrypted, and hold no secret.
"""

import secrets
import threading
from collections.abc import Mapping, Sequence
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, Listener, answer_challenge, deliver_challenge, wait
from typing import Any

import structlog

from ingest.model.link import Grown, GrowTables
from ingest.model.table_retention import TableRetention
from ingest.node.engines.spark_task_spec import (
    AskRetention,
    AskRouting,
    FetchTaskSpec,
    JobOver,
    RoutingDecisions,
    TaskSpec,
)
from lake.errors import UnavailableError
from lake.log_schema import WantedColumn
from lake.tenant import TableId

log = structlog.get_logger()
Address = tuple[str, int]
Question = FetchTaskSpec | AskRouting | AskRetention | GrowTables
Answer = TaskSpec | RoutingDecisions | TableRetention | Grown | JobOver


class DriverRpcServer:
    """The driver's end. `host`: an address of this machine that executors reach."""

    def __init__(self, host: str) -> None:
        self.key = secrets.token_bytes(32)
        self._listener = Listener((host, 0), "AF_INET", backlog=128)
        self._peers: set[Connection[Any, Any]] = set()
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, name="driver-rpc", daemon=True).start()

    @property
    def address(self) -> Address:
        """Host and port."""
        address: Address = self._listener.address
        return address

    def _accept(self) -> None:
        while True:
            try:
                peer = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._admit, args=(peer,), name="driver-rpc-admits", daemon=True).start()

    def _admit(self, peer: Any) -> None:
        try:
            deliver_challenge(peer, self.key)
            answer_challenge(peer, self.key)
        except (AuthenticationError, EOFError, OSError) as error:
            log.warning("task.not_admitted", reason=repr(error))
            peer.close()
            return
        with self._lock:
            self._peers.add(peer)

    def questions(self, timeout_s: float) -> list[tuple[Any, Question]]:
        """What tasks have asked, waiting at most so long for the first."""
        with self._lock:
            peers = list(self._peers)
        found: list[tuple[Any, Question]] = []
        asking: list[Any] = list(wait(peers, timeout_s))
        for ready in asking:
            try:
                found.append((ready, ready.recv()))
            except (EOFError, OSError):
                self._leave(ready)
        return found

    def answer(self, peer: Any, answer: Answer) -> None:
        """Answers a question; a task that is gone needs none."""
        try:
            peer.send(answer)
        except OSError:
            self._leave(peer)

    def _leave(self, peer: Any) -> None:
        with self._lock:
            self._peers.discard(peer)
        peer.close()

    def close(self) -> None:
        self._listener.close()


class DriverRpcClient:
    """A task's end. Raises UnavailableError where the driver is gone or the job is over: the task ends, its
    files are nobody's."""

    def __init__(self, address: Address, key: bytes, job: int) -> None:
        self._job = job
        try:
            self._peer = Client(address, authkey=key)
        except (OSError, EOFError, AuthenticationError) as error:
            raise UnavailableError(
                f"the driver at {address[0]}:{address[1]} does not answer: {error!r}"
            ) from error

    def order(self, task: int) -> TaskSpec:
        """What the task is to do."""
        answer: TaskSpec = self._ask(FetchTaskSpec(self._job, task))
        return answer

    def decisions(self, tables: Sequence[TableId]) -> RoutingDecisions:
        """Where the records of tables go; waits some seconds for tables that are not known yet."""
        answer: RoutingDecisions = self._ask(AskRouting(self._job, tables))
        return answer

    def grow(self, names: Mapping[TableId, Mapping[str, WantedColumn]]) -> Mapping[TableId, bytes]:
        """As a worker's link to the committer."""
        answer: Grown = self._ask(GrowTables(names))
        return answer.schemas

    def retention(self, table: TableId, said: Mapping[str, str], *, anew: bool) -> TableRetention:
        """As `Retentions` tell it."""
        answer: TableRetention = self._ask(AskRetention(table, said, anew))
        return answer

    def _ask(self, question: Question) -> Any:
        try:
            self._peer.send(question)
            answer = self._peer.recv()
        except (OSError, EOFError) as error:
            raise UnavailableError(f"the driver is gone: {error!r}") from error
        if isinstance(answer, JobOver):
            raise UnavailableError("the job of this task is over")
        return answer

    def close(self) -> None:
        self._peer.close()
