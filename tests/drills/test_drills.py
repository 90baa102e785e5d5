"""Every drill, on the real stack: `make prove` runs them."""

from collections.abc import Callable

import pytest

from tests.drills.__main__ import take
from tests.drills.support.runbook import Runbook, pages

pytestmark = [pytest.mark.stack, pytest.mark.prove]
PAGES = {page.name: page for page in pages()}


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_the_page_leads_out_of_the_disaster(
    page: Runbook, record_property: Callable[[str, object], None]
) -> None:
    """Nothing is lost or doubled but what the page calls lost."""
    for name, value in take(page, seed=1).figures.items():
        record_property(name, value)
