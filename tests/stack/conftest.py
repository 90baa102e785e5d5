"""What tests of the line share beside the services: what one leaves behind does not disturb the next."""

from collections.abc import Iterator

import pytest

from tests.stack.line import Line

PAGE = 1_000


@pytest.fixture(autouse=True)
def nothing_stays_parked(line: Line) -> Iterator[None]:
    """Every node reads what is parked in the catalog when it starts; parkings of a test that has ended are taken away."""
    yield
    parked = line.catalog.get("/firn/v1/parked", pageSize=PAGE)["parked"]
    if parked:
        lease = line.catalog.post("/firn/v1/leases/tests/acquire", {"holder": "tests", "ttl-ms": 10_000})
        changes = [{"identifier": record["identifier"], "version": record["version"], "record": None} for record in parked]
        line.catalog.post("/firn/v1/parked", {"lease": f"tests:{lease['token']}", "changes": changes})
