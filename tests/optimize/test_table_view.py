"""Views of many tables cost few requests, and of one no more manifests than are asked for."""

from dataclasses import replace
from typing import NoReturn

import pytest

from catalog.model.error_response import unavailable
from lake.catalog_client import CatalogClient, TableName
from lake.commit import creation_request, new_table_state
from lake.data_file import DataFile
from lake.errors import ForeignFileError, NotFoundError
from lake.extras_client import ExtrasClient
from lake.manifest import ManifestEntry, Status
from lake.manifest_list import DATA_MANIFEST, ManifestFile, ManifestList
from lake.storage import open_storage
from optimize.inventory import AllTables
from optimize.table_view import LOADED_TOGETHER, TableView, load_views
from tests.lake.support.fake_catalog import FakeCatalog

GONE = TableName("gone", "logs")


def _catalog(count: int, **more: bool) -> tuple[FakeCatalog, list[TableName]]:
    """A catalog with some tables that have no rows yet."""
    catalog, names = FakeCatalog(**more), [TableName(f"t{at}", "logs") for at in range(count)]
    client = catalog.client()
    for name in names:
        client.create_namespace(name.namespace, {})
        client.create_table(
            name, creation_request(new_table_state(name, name.namespace, "logs", "file:///w"))
        )
    catalog.asked.clear()
    return catalog, names


def test_many_tables_are_loaded_with_one_request() -> None:
    """Each has its view; one that is not there has none."""
    catalog, names = _catalog(3)
    found = dict(load_views(catalog.client(), open_storage(), [*names, GONE]))
    assert catalog.asked == ["loads"]
    assert list(found) == [*names, GONE]
    assert found.pop(GONE) is None
    assert {name: view.name for name, view in found.items() if isinstance(view, TableView)} == {
        name: name for name in names
    }


def test_names_are_taken_no_further_ahead_than_tables_are_loaded() -> None:
    """Who ends early has not loaded the tables of a lake."""
    catalog, names = _catalog(2 * LOADED_TOGETHER)
    taken = list[TableName]()

    def one_after_the_other() -> object:
        for name in names:
            taken.append(name)
            yield name

    views = load_views(catalog.client(), open_storage(), one_after_the_other())
    next(views)
    assert len(taken) == LOADED_TOGETHER
    assert len(list(views)) == 2 * LOADED_TOGETHER - 1
    assert catalog.asked == ["loads", "loads"]


def test_a_catalog_that_has_no_batches_is_asked_for_each_table() -> None:
    """As every other catalog is."""
    catalog, names = _catalog(2, has_extras=False)
    found = dict(load_views(catalog.client(), open_storage(), [*names, GONE]))
    assert [isinstance(view, TableView) for view in found.values()] == [True, True, False]
    assert catalog.asked == ["logs"] * 3


def test_what_a_batch_does_not_bring_is_asked_for_by_itself() -> None:
    """An answer that is full, a request that failed, and a table whose metadata was late."""
    catalog, names = _catalog(4)
    catalog.unreadable[names[1]] = unavailable("slow")
    found = dict(load_views(catalog.client(), open_storage(), names))
    assert all(isinstance(view, TableView) for view in found.values())
    assert catalog.asked == ["loads", "logs"]
    catalog.asked.clear()
    catalog.refuses["loads"] = unavailable("down")
    assert all(isinstance(view, TableView) for _, view in load_views(catalog.client(), open_storage(), names))
    assert catalog.asked == ["loads", *["logs"] * 4]


def test_a_table_that_cannot_be_read_has_its_error_and_the_others_their_views() -> None:
    """Its head names a manifest list that is not there."""
    catalog, names = _catalog(3)
    metadata = catalog.tables[names[1]]
    uri = f"{metadata['location']}/metadata/none.avro"
    snapshot = {"snapshot-id": 1, "timestamp-ms": 1, "manifest-list": uri, "summary": {}}
    catalog.tables[names[1]] = {**metadata, "snapshots": [snapshot], "current-snapshot-id": 1}
    found = dict(load_views(catalog.client(), open_storage(), names))
    assert isinstance(found[names[1]], NotFoundError)
    assert isinstance(found[names[0]], TableView)
    assert isinstance(found[names[2]], TableView)


def _manifest(uri: str, low: int | None, high: int) -> ManifestFile:
    bounds = {} if low is None else {"lower_bound": _int(low), "upper_bound": _int(high)}
    summary = {"contains_null": False, **bounds}
    return ManifestFile(uri, 1, 0, DATA_MANIFEST, 1, 1, 1, 1, 0, 0, 1, 0, 0, [summary])


def _int(number: int) -> bytes:
    return number.to_bytes(4, "little", signed=True)


def test_manifests_of_later_hours_are_not_read() -> None:
    """The files of hours 10 and 30 are known; the manifest of hour 50 cannot be read."""
    state = new_table_state(TableName("a", "logs"), "a", "logs", "file:///nowhere")
    manifests = [_manifest("older", 10, 30), _manifest("newer", 30, 30), _manifest("newest", 50, 50)]
    hours = {"older": (10,), "newer": (30,)}
    view = TableView(
        replace(state, head=1, manifests=ManifestList.of(manifests)),
        {"snapshots": []},
        open_storage(),
        known={
            uri: tuple(ManifestEntry(Status.ADDED, DataFile(f"{uri}-{hour}", hour, 1, 1)) for hour in found)
            for uri, found in hours.items()
        },
    )
    assert not view.partitions(before_hour=5)
    assert 10 in view.partitions(before_hour=11)
    assert set(view.partitions(before_hour=31)) == {10, 30}
    with pytest.raises(ForeignFileError):
        view.partitions()


def test_a_manifest_without_bounds_is_read() -> None:
    """Nobody knows what it holds."""
    state = new_table_state(TableName("a", "logs"), "a", "logs", "file:///nowhere")
    entry = ManifestEntry(Status.ADDED, DataFile("file", 3, 1, 1))
    manifests = ManifestList.of([_manifest("old", None, 0)])
    view = TableView(
        replace(state, head=1, manifests=manifests),
        {"snapshots": []},
        open_storage(),
        known={"old": (entry,)},
    )
    assert set(view.partitions(before_hour=2)) == {3}


def test_all_tables_of_a_catalog_are_known_by_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the protocol alone, and beside an older catalog, it is one for each tenant."""
    catalog, names = _catalog(3)

    def found(client: CatalogClient) -> list[TableName]:
        return [each.table for each in AllTables(client).candidates()]

    assert found(catalog.client()) == names
    assert catalog.asked == ["tables"]
    catalog.asked.clear()
    monkeypatch.setattr(ExtrasClient, "tables", _not_there)
    assert found(catalog.client()) == names
    assert catalog.asked == ["namespaces", *["tables"] * 3]
    catalog.has_extras = False
    assert found(catalog.client()) == names


def _not_there(_: ExtrasClient) -> NoReturn:
    raise NotFoundError("there is no such path")
