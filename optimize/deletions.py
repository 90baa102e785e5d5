"""The queue of files that nobody reaches any more: they stay for the readers' grace, then they are deleted,
slowly.

Firn's catalog keeps the queue. Another catalog keeps none; there such files are left to the orphan remover.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import structlog

from lake.catalog_client import CatalogClient, TableName
from lake.clock import SYSTEM_CLOCK, Clock
from lake.errors import FirnError, ForeignFileError, NotFoundError
from lake.extras_client import DueDeletion, ExtrasClient, UnreachedFile
from lake.metrics import OPTIMIZE_FOREIGN_FILES
from lake.storage import AnyStorage
from lake.table_location import TableLocation

PAGE_FILES = 1_000
DELETE_FILES = 200
log = structlog.get_logger()


class Throttle:
    """Lets at most so many requests a second pass."""

    def __init__(self, per_s: float, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._per_s = per_s
        self._next_s = self._clock.monotonic_s()

    def take(self, requests: int = 1) -> None:
        """Returns when the requests may be sent."""
        now_s = self._clock.monotonic_s()
        wait_s = self._next_s - now_s
        self._next_s = max(self._next_s, now_s) + requests / self._per_s
        if wait_s > 0:
            time.sleep(wait_s)


@dataclass(frozen=True, slots=True)
class DeletionQueue:
    """Files to delete later. `lease`: the leader's, `name:token`; a stale one is refused."""

    catalog: CatalogClient
    throttle: Throttle = field(default_factory=lambda: Throttle(500.0))
    lease: str | None = None

    def add(self, files: Sequence[tuple[str, TableName, str]], not_before_ms: int) -> None:
        """Queues files, each with its table's name and uuid. What cannot be queued is only logged: the orphan
        remover finds it."""
        try:
            for at in range(0, len(files), PAGE_FILES):
                unreached = [
                    UnreachedFile(uri, not_before_ms, {"table": str(table), "table-uuid": table_uuid})
                    for uri, table, table_uuid in files[at : at + PAGE_FILES]
                ]
                refused = ExtrasClient(self.catalog).queue_deletions(unreached, lease=self.lease)
                if refused:
                    OPTIMIZE_FOREIGN_FILES.inc(len(refused))
                    log.warning("optimize.deletions_refused", files=len(refused), first=refused[0])
        except FirnError as error:
            log.warning("optimize.deletions_not_queued", files=len(files), error=str(error))

    def due(self) -> Iterator[list[DueDeletion]]:
        """Pages of files whose grace is over. Each page is to be acknowledged before the next is asked
        for."""
        while True:
            try:
                page = ExtrasClient(self.catalog).due_deletions()
            except NotFoundError:
                return  # a catalog without a queue
            if not page:
                return
            yield page

    def delete_due(self, storage: AnyStorage, halted: Callable[[], bool] = lambda: False) -> int:
        """Deletes what is due until it is done or `halted`. A crash in between deletes some files again,
        which is no harm. Returns their number.

        A file that is not its table's is left where it is, counted and logged, and taken off the queue.
        """
        deleted = 0
        for page in self.due():
            for at in range(0, len(page), DELETE_FILES):
                if halted():
                    return deleted
                part = page[at : at + DELETE_FILES]
                self.throttle.take(len(part))
                deleted += _delete(storage, part)
                ExtrasClient(self.catalog).acknowledge_deletions([file.id for file in part], lease=self.lease)
        return deleted


def _delete(storage: AnyStorage, files: Sequence[DueDeletion]) -> int:
    by_root: dict[str, list[str]] = {}
    for file in files:
        try:
            by_root.setdefault(TableLocation(file.roots).check(file.uri), []).append(file.uri)
        except ForeignFileError as error:
            _leave(file.uri, error)
    return sum(_delete_below(storage, root, uris) for root, uris in by_root.items())


def _delete_below(storage: AnyStorage, root: str, uris: Sequence[str]) -> int:
    try:
        storage.delete(uris, root=root)
    except ForeignFileError:  # a link leads out of the table's folder: the others go one by one
        return sum(_delete_one(storage, root, uri) for uri in uris)
    return len(uris)


def _delete_one(storage: AnyStorage, root: str, uri: str) -> bool:
    try:
        storage.delete([uri], root=root)
    except ForeignFileError as error:
        _leave(uri, error)
        return False
    return True


def _leave(uri: str, error: ForeignFileError) -> None:
    OPTIMIZE_FOREIGN_FILES.inc()
    log.warning("optimize.foreign_file_left", uri=uri, error=str(error))
