"""What the findings are tried on: a catalog and a search API that ask for keys, with the tenants `a` and `b`,
on the shared stack."""

from collections.abc import Iterator

import pytest

from infra.local.supervisor import Stack
from lake.catalog_client import CatalogClient
from tests.query.support.guarded import Guarded, start_guarded
from tests.security.support.ruled import Ruled, start_ruled
from tests.stack.support.eraser import Eraser
from tests.stack.support.line import Line
from tests.stack.support.parked import forget_parkings


@pytest.fixture(scope="session")
def keyed(
    stack: Stack,
    eraser: Eraser,
    catalog_client: CatalogClient,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Guarded]:
    """Keys by name: admin, room, mine (write key of `a`), reader (read key of `a`), theirs (write key of
    `b`)."""
    made = start_guarded(stack, catalog_client, tmp_path_factory.mktemp("keyed"), ("a", "b"))
    yield made
    made.end()


@pytest.fixture(scope="session")
def ruled(keyed: Guarded, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ruled]:
    """A Trino with users over that catalog, and an API on it."""
    with start_ruled(keyed, tmp_path_factory.mktemp("ruled")) as made:
        yield made


@pytest.fixture(autouse=True)
def nothing_stays_parked(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a test that uses the line leaves parked does not disturb the next."""
    line = request.getfixturevalue("line") if "line" in request.fixturenames else None
    yield
    if isinstance(line, Line):  # some tests call a line of code so
        forget_parkings(line)
