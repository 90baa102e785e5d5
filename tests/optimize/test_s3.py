"""The same maintenance on an object store: merges by both executors, retention, orphan files, purge."""

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from infra.local.supervisor import Stack
from lake.catalog_client import CatalogClient
from lake.clock import SystemClock
from lake.erasure_work import ErasureRequest, ErasureWork, pack_rows
from lake.settings import StorageSettings
from lake.storage import AnyStorage
from lake.table_version import Manifests, load_version
from optimize.erasures import Erasures
from optimize.maintenance_tasks import MaintenanceTasks
from optimize.orphan_files import comparable
from optimize.orphan_files import live_files as named_files
from optimize.table_view import load_view
from tests.optimize.conftest import Optimizer
from tests.optimize.support.delete_files import delete_positions
from tests.optimize.support.live_files import live_files, missing_files, offsets_of
from tests.optimize.support.maintained import maintenance
from tests.optimize.support.small_files import SmallFiles, this_hour
from tests.stack.support.waiting import fresh

pytestmark = [pytest.mark.stack, pytest.mark.prove]


@pytest.fixture(scope="module")
def s3_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A catalog over an S3-compatible store."""
    with Stack(tmp_path_factory.mktemp("s3"), warehouse="s3://firn-warehouse/tables", tied=True) as stack:
        stack.start("s3", "catalog", environment={"FIRN_CATALOG_UNDO_WINDOW_S": "0"})
        yield stack


@pytest.fixture(scope="module")
def storage(s3_stack: Stack) -> AnyStorage:
    given = {
        name.removeprefix("FIRN_STORAGE_").lower(): value
        for name, value in s3_stack.environment().items()
        if name.startswith("FIRN_STORAGE_")
    }
    return AnyStorage(StorageSettings.load(**given))


@pytest.fixture
def s3_catalog(s3_stack: Stack) -> Iterator[CatalogClient]:
    with closing(CatalogClient(s3_stack.address("catalog"))) as client:
        yield client


def test_both_executors_merge_on_an_object_store(
    s3_stack: Stack, s3_catalog: CatalogClient, storage: AnyStorage, optimizer_on: Callable[..., Optimizer]
) -> None:
    """One hour is merged by PyArrow, one with deleted rows by Spark; every other row is there once, deleted
    ones stay away."""
    table = SmallFiles(s3_catalog, storage, fresh("s3"))
    plain, deleted = this_hour() - 3, this_hour() - 4
    table.append(plain, 10, times=4)
    table.append(deleted, 10, times=4)
    view = load_view(s3_catalog, storage, table.name)
    assert view is not None
    uris = sorted(file.uri for file in view.partitions()[deleted].files)
    delete_positions(table, deleted, {uris[0]: [0, 3], uris[2]: [9]})
    optimizer_on(s3_stack).run("run", "--once", "--table", str(table.name))
    assert live_files(s3_catalog, storage, table.name) == {plain: 1, deleted: 1}
    assert missing_files(s3_catalog, storage, table.name) == []
    kept = offsets_of(table)
    assert len(kept) == len(set(kept)) == 77
    assert set(range(40)) < set(kept)


def test_retention_orphans_and_purge_on_an_object_store(
    s3_catalog: CatalogClient, storage: AnyStorage
) -> None:
    """Old hours go; a file nobody names goes and no other; a dropped table's prefix goes and its neighbours'
    stay."""
    table, other = (
        SmallFiles(s3_catalog, storage, fresh("s3"), properties={"firn.retention": "24h"}) for _ in range(2)
    )
    for one in (table, other):
        one.append(this_hour() - 3, 5, times=2)
        one.append(this_hour() - 50, 5)
    tasks = MaintenanceTasks(
        maintenance(s3_catalog, [table.name, other.name], storage=storage, retention__purge_after_s=0)
    )
    assert sorted((expired.table, expired.rows) for expired in tasks.retention()) == sorted(
        (one.name, 5) for one in (table, other)
    )
    orphan = f"{table.state.location}/data/{this_hour()}/left behind=1.parquet"
    storage.write(orphan, b"x")
    view = load_view(s3_catalog, storage, table.name)
    assert view is not None
    listed = {stored.uri for stored in storage.list(table.state.location)}
    assert {uri for uri in listed if comparable(uri) not in named_files(view)} >= {orphan}
    s3_catalog.drop_table(table.name, purge=True)
    ((dropped, files),) = [(d, n) for d, n in tasks.purge() if d.uuid == table.state.uuid]
    assert (dropped.refusal, files) == ("", len(listed))
    assert list(storage.list(table.state.location)) == []
    assert missing_files(s3_catalog, storage, other.name) == []
    assert offsets_of(other) == list(range(10))


def test_rows_are_erased_on_an_object_store(s3_catalog: CatalogClient, storage: AnyStorage) -> None:
    """Files are read where they lie, also one that is larger than a part; rows that position deletes
    hide are left out as well."""
    table = SmallFiles(s3_catalog, storage, fresh("erased"))
    table.append(this_hour() - 3, 10)
    words = [fresh("word-") + "x" * 1_000 for _ in range(20_000)]
    table.append(this_hour() - 2, len(words), {"words": words})
    version = load_version(s3_catalog, Manifests(storage), table.name)
    assert version is not None
    small, large = sorted(version.data, key=lambda uri: version.data[uri].file.rows)
    delete_positions(table, this_hour() - 3, {small: [4]})
    rows = {small: pack_rows([0, 9]), large: pack_rows(range(0, len(words), 2))}
    request = ErasureRequest(fresh("r"), table.name, version.state.uuid, rows, 0)
    ErasureWork(s3_catalog).ask(request)
    erasures = Erasures.of(s3_catalog, storage, SystemClock())
    assert erasures.run() == 1
    answer = erasures.work.answer(request.id)
    assert answer is not None
    assert (answer.state, answer.problem, answer.rows) == ("done", None, 2 + len(words) // 2)
    assert {small, large} <= set(answer.queued)
    kept = [*(at for at in range(10) if at not in (0, 4, 9)), *(10 + at for at in range(1, len(words), 2))]
    assert sorted(offsets_of(table)) == kept
    assert missing_files(s3_catalog, storage, table.name) == []
