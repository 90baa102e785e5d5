"""Boards in the catalog's work list: a document each, of its tenant, that changes by compare-and-set."""

import os
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import orjson
import structlog

from lake.catalog_client import CatalogClient
from lake.errors import ConflictError, NotFoundError, RefusedError
from lake.extras_client import ExtrasClient, Task
from lake.lease import Lease, LeaseTimes
from lake.tenant import TenantId
from query.model.problem import BadRequestError, refuse
from query.tables.board import BYTES_MAX, Board, board_of

KIND = "query.board"
# Whoever makes a board holds it, of whichever tenant and server: so what they have counted still holds.
MAKING = "query.boards"
MAKING_TIMES = LeaseTimes(ttl_s=10.0, renew_every_s=2.5, try_every_s=0.05)
MAKING_WAIT_S = 10.0
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class StoredBoard:
    """A board as it is kept. `by`, `at`: who wrote it, and when; `version` 0: it is not kept yet."""

    tenant: TenantId
    name: str
    board: Board
    by: str
    at: str
    version: int = 0

    @property
    def id(self) -> str:
        return f"{KIND}:{self.tenant.namespace}:{self.name}"


class BoardStore:
    """One work list's. All methods raise what `ExtrasClient` raises, and RefusedError where there is no list.
    Thread-safe."""

    def __init__(self, work_list: CatalogClient) -> None:
        self._work_list = work_list
        self._extras = ExtrasClient(work_list)

    def of(self, tenant: TenantId) -> Iterator[StoredBoard]:
        """A tenant's boards by their names; without those that this version cannot read, which the log
        names."""
        self._check()
        for task in self._extras.tasks(KIND, state=tenant.namespace):
            try:
                yield StoredBoard(
                    tenant,
                    str(task.record["name"]),
                    board_of(task.record["board"]),
                    str(task.record["by"]),
                    str(task.record["at"]),
                    task.version,
                )
            except (KeyError, TypeError, BadRequestError) as error:
                log.warning("boards.not_read", board=task.id, fault=type(error).__name__)

    @contextmanager
    def making(self) -> Iterator[str | None]:
        """Has whoever else makes a board wait, so that a limit that was looked at is kept; gives the lease
        that `keep` takes. Raises ConflictError where its turn does not come."""
        self._check()
        holder = f"{socket.gethostname()}/{os.getpid()}/{uuid.uuid4().hex}"  # each request is another one
        with Lease(self._work_list, MAKING, MAKING_TIMES, holder=holder) as lease:
            if not lease.acquire(threading.Event(), MAKING_WAIT_S):
                raise ConflictError("too many boards are being made at once; send it again")
            yield lease.fencing_token

    def keep(self, board: StoredBoard, lease: str | None = None) -> int:
        """Writes a board over the version last read; its new version. `lease`: that of `making`, which has to
        be in force still. Raises ConflictError where it is not, or somebody else has written the board
        meanwhile, BadRequestError where it is too large."""
        self._check()
        record = {"name": board.name, "board": board.board.to_json(), "by": board.by, "at": board.at}
        if (size := len(orjson.dumps(record))) > BYTES_MAX:
            raise refuse(f"the board has {size:,} bytes, at most {BYTES_MAX:,}; make two of it")
        task = Task(board.id, KIND, board.tenant.namespace, board.version, record)
        try:
            (version,) = self._extras.save_tasks([task], lease=lease)
        except RefusedError as error:
            if lease is None:
                raise
            raise ConflictError(f"making the board took too long ({error}); send it again") from error
        if version is None:
            raise ConflictError(f"somebody else has just changed the board {board.name!r}; load it again")
        return version

    def drop(self, board: StoredBoard) -> None:
        """Forgets a board."""
        self._extras.remove_task(board.id)

    def drop_all(self, tenant: TenantId) -> None:
        """Forgets all of a tenant's, whatever they hold: who comes later under its name starts without."""
        if self._work_list.has_extras:
            for task in list(self._extras.tasks(KIND, state=tenant.namespace)):
                self._extras.remove_task(task.id)

    def _check(self) -> None:
        if not self._work_list.has_extras:
            raise RefusedError(
                "beside this catalog boards need Firn's work list: run `python -m catalog serve --control` "
                "and set control.uri"
            )


def board_named(boards: Iterator[StoredBoard], name: str, tenant: TenantId) -> StoredBoard:
    """The one of this name. Raises NotFoundError."""
    found = next((each for each in boards if each.name == name), None)
    if found is None:
        raise NotFoundError(f"tenant {tenant.name!r} has no board {name[:100]!r}; its boards are listed")
    return found
