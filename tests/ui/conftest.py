"""The API behind the pages of the shared stack."""

import pytest

from infra.local.supervisor import Stack


@pytest.fixture(scope="session")
def query_uri(stack: Stack, ui_uri: str) -> str:
    """The address of the API behind the pages of the shared stack."""
    return stack.address("query")
