"""The search API of the shared stack, and a client of it."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from infra.local.supervisor import Stack
from lake.catalog_client import CatalogClient
from tests.query.support.elastic_shop import ElasticShop
from tests.query.support.guarded import Guarded, start_guarded
from tests.query.support.log_table import LogTable, fresh_tenant
from tests.stack.support.eraser import Eraser

if TYPE_CHECKING:
    from elasticsearch import Elasticsearch


@pytest.fixture(scope="session")
def query_uri(stack: Stack, eraser: Eraser) -> str:
    """The address of `python -m query serve` on the shared stack, whose erasures are carried out."""
    if not stack.running("query"):
        stack.start("query")
    return stack.address("query")


@pytest.fixture(scope="session")
def api(query_uri: str) -> Iterator[httpx.Client]:
    """A client of the API."""
    with httpx.Client(base_url=query_uri, timeout=120.0, trust_env=False) as client:
        yield client


@pytest.fixture(scope="module")
def elastic_shop(catalog_client: CatalogClient) -> ElasticShop:
    """Two streams of a tenant of their own."""
    return ElasticShop.made(catalog_client)


@pytest.fixture(scope="module")
def elastic(query_uri: str) -> Iterator["Elasticsearch"]:
    """Elasticsearch's own client of the API."""
    from elasticsearch import Elasticsearch  # other tests need no such library

    with Elasticsearch(f"{query_uri}/elasticsearch", api_key="any", request_timeout=120) as client:
        yield client


@pytest.fixture
def log_table(catalog_client: CatalogClient) -> Callable[..., LogTable]:
    """`log_table(stream=..., types=...)`: an empty table of a tenant of its own."""

    def make(tenant: str | None = None, **options: Any) -> LogTable:
        return LogTable(catalog_client, tenant or fresh_tenant(), **options)

    return make


@pytest.fixture(scope="session")
def guarded(
    stack: Stack,
    eraser: Eraser,
    catalog_client: CatalogClient,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Guarded]:
    """An API that asks for keys, over the tables of the shared stack."""
    made = start_guarded(stack, catalog_client, tmp_path_factory.mktemp("guarded"))
    yield made
    made.end()
