"""The contract of catalogs for Firn's own and for the one in memory that stands for it in plain tests."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from infra.local.supervisor import Stack
from lake.catalog_client import CatalogClient
from tests.contracts.support.catalog_suite import CatalogContract
from tests.lake.support.fake_catalog import FakeCatalog


class TestFakeCatalog(CatalogContract):
    """The one in memory."""

    @pytest.fixture
    def client(self) -> CatalogClient:
        return FakeCatalog().client()

    @pytest.fixture
    def root(self) -> str:
        return "file:///warehouse"


@pytest.mark.stack
class TestFirnsCatalog(CatalogContract):
    """Firn's, on SQLite."""

    @pytest.fixture(scope="class")
    def running(self, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
        with Stack(tmp_path_factory.mktemp("catalog"), tied=True) as stack:
            stack.start("catalog")
            yield stack

    @pytest.fixture
    def client(self, running: Stack) -> Iterator[CatalogClient]:
        with closing(CatalogClient(running.address("catalog"))) as client:
            yield client

    @pytest.fixture
    def root(self, client: CatalogClient) -> str:
        assert client.warehouse is not None
        return client.warehouse
