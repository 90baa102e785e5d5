"""Many tables loaded after each other."""

from collections.abc import Iterator
from typing import Any

import pytest

from catalog.model.error_response import unavailable
from lake.catalog_client import CatalogClient, TableName
from lake.errors import ForeignFileError, NotFoundError, UnavailableError
from lake.table_loads import load_each
from tests.lake.support.fake_catalog import FakeCatalog

NAMES = [TableName("acme", f"s{at}") for at in range(7)]


@pytest.fixture
def fake() -> Iterator[FakeCatalog]:
    catalog = FakeCatalog()
    for name in NAMES:
        catalog.tables[name] = {"location": f"file:///w/{name.name}"}
    return catalog


def _locations(client: CatalogClient, together: int) -> list[str]:
    found = [(name, loaded) for name, loaded in load_each(client, NAMES, together)]
    assert [name for name, _ in found] == NAMES
    return [loaded["metadata"]["location"] for _, loaded in found if isinstance(loaded, dict)]


@pytest.mark.parametrize("together", [1, 2, 3, 7, 100])
def test_tables_come_in_order_however_many_an_answer_holds(
    fake: FakeCatalog, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer of the catalog may hold fewer than were asked for."""
    client = fake.client()
    whole, requests = client.load_tables, list[int]()

    def short(names: list[TableName], **more: Any) -> Any:
        requests.append(len(names))
        return whole(names[:2], **more)

    monkeypatch.setattr(client, "load_tables", short)
    assert _locations(client, together) == [f"file:///w/s{at}" for at in range(7)]
    assert len(requests) <= 4
    assert max(requests, default=0) <= together


def test_another_catalog_is_asked_for_one_after_the_other(
    fake: FakeCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knows no request for many."""
    fake.has_extras = False
    client = fake.client()
    monkeypatch.setattr(client, "load_tables", lambda *_, **__: pytest.fail("asked for many"))
    assert len(_locations(client, 100)) == 7


def test_what_is_wrong_with_one_table_is_told_of_that_one(
    fake: FakeCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is gone, and one whose metadata did not come in time, which is asked for again by itself."""
    del fake.tables[NAMES[1]]
    fake.unreadable[NAMES[4]] = unavailable("the storage did not give it in time")
    client = fake.client()
    found = dict(load_each(client, NAMES))
    assert isinstance(found[NAMES[1]], NotFoundError)
    assert [isinstance(found[name], dict) for name in NAMES] == [at != 1 for at in range(7)]
    monkeypatch.setattr(client, "load_table", lambda _: (_ for _ in ()).throw(UnavailableError("away")))
    assert isinstance(dict(load_each(client, NAMES))[NAMES[4]], UnavailableError)


def test_without_an_answer_for_many_each_is_asked_for_by_itself(
    fake: FakeCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A catalog that fails at the request for many, or does not know it yet, may well give one."""
    client = fake.client()

    def fails(*_: object, **__: object) -> None:
        raise ForeignFileError("no")

    monkeypatch.setattr(client, "load_tables", fails)
    assert len(_locations(client, 3)) == 7
