"""What tests of the line share beside the services: what one leaves behind does not disturb the next."""

from collections.abc import Iterator

import pytest

from tests.stack.support.line import Line
from tests.stack.support.parked import forget_parkings


@pytest.fixture(autouse=True)
def nothing_stays_parked(line: Line) -> Iterator[None]:
    """Also where the test has failed."""
    yield
    forget_parkings(line)
