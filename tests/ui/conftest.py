"""The API behind the pages of the shared stack; pages alone, with a login, for tests without a stack."""

from collections.abc import Iterator

import pytest

from infra.local.supervisor import Stack
from tests.ui.support.door import Door, door, login_settings
from tests.ui.support.fake_login_issuer import FakeLoginIssuer, fake_login_issuer


@pytest.fixture(scope="session")
def query_uri(stack: Stack, ui_uri: str) -> str:
    """The address of the API behind the pages of the shared stack."""
    return stack.address("query")


@pytest.fixture
def issuer() -> Iterator[FakeLoginIssuer]:
    """The server that says who somebody is."""
    with fake_login_issuer() as running:
        yield running


@pytest.fixture
def pages(issuer: FakeLoginIssuer) -> Door:
    """The routes of a login, with a browser before them."""
    return door(login_settings(issuer.url))
