"""The queue of files to delete: not before the grace, not faster than allowed, and it goes on where it was
left."""

import time
from collections.abc import Iterable

import pytest

from lake.catalog_client import CatalogClient, TableName
from lake.errors import UnavailableError
from lake.settings import StorageSettings
from lake.storage import AnyStorage
from optimize.deletions import DELETE_FILES, DeletionQueue, Throttle
from tests.stack.support.waiting import fresh

TABLE = TableName("acme", "logs")
# Of a table that is purged already: files below its location are nobody else's.
UUID = "0c2a4d0e-5f5a-4d0c-9a4b-0d6a1c1f5a11"
FAST = 1e6


def test_throttle_lets_so_many_requests_pass_a_second() -> None:
    """Twenty-one requests at a hundred a second take at least a fifth of a second, however they come."""
    throttle, started_s = Throttle(100.0), time.monotonic()
    for requests in (1, 10, 5, 4, 1):
        throttle.take(requests)
    assert time.monotonic() - started_s >= 0.2


class Away(AnyStorage):
    """An object store that is away after its first deletion, until it is `back`."""

    def __init__(self) -> None:
        super().__init__(StorageSettings())
        self.back = False
        self.deleted: list[str] = []

    def delete(self, uris: Iterable[str], *, root: str | None = None) -> None:
        if self.deleted and not self.back:
            raise UnavailableError("the storage is away")
        self.deleted += uris


def files(catalog: CatalogClient, count: int) -> list[str]:
    return [f"{catalog.warehouse}/{UUID[:2]}/{UUID}/data/{fresh('f')}.parquet" for _ in range(count)]


@pytest.mark.stack
def test_deletion_goes_on_where_it_was_interrupted(catalog: CatalogClient) -> None:
    """When the storage fails half-way, what was deleted is off the queue and the rest stays on it; the next
    run deletes the rest."""
    queue, uris, storage = DeletionQueue(catalog, Throttle(FAST)), files(catalog, 2 * DELETE_FILES), Away()
    queue.delete_due(AnyStorage(StorageSettings()))
    queue.add([(uri, TABLE, UUID) for uri in uris], 0)
    with pytest.raises(UnavailableError):
        queue.delete_due(storage)
    assert storage.deleted == uris[:DELETE_FILES]
    storage.back = True
    assert queue.delete_due(storage) == DELETE_FILES
    assert storage.deleted == uris
    assert queue.delete_due(storage) == 0


@pytest.mark.stack
def test_file_is_not_deleted_before_its_time(catalog: CatalogClient) -> None:
    """A file whose grace is not over stays on the queue, one beside it goes."""
    queue, (due, early), storage = DeletionQueue(catalog, Throttle(FAST)), files(catalog, 2), Away()
    storage.back = True
    queue.add([(due, TABLE, UUID)], 0)
    queue.add([(early, TABLE, UUID)], int(time.time() * 1000) + 3_600_000)
    queue.delete_due(storage)
    assert due in storage.deleted
    assert early not in storage.deleted


@pytest.mark.stack
def test_halted_deletion_stops_between_two_requests(catalog: CatalogClient) -> None:
    """SIGTERM or a lost lease ends a long deletion; what is left stays on the queue."""
    queue, uris, storage = DeletionQueue(catalog, Throttle(FAST)), files(catalog, 2 * DELETE_FILES), Away()
    storage.back = True
    queue.delete_due(storage)
    storage.deleted.clear()
    queue.add([(uri, TABLE, UUID) for uri in uris], 0)
    assert queue.delete_due(storage, lambda: bool(storage.deleted)) == DELETE_FILES
    assert queue.delete_due(storage) == DELETE_FILES
