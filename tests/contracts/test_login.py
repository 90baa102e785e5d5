"""The contract of logging in for the issuer that stands for real ones; a real one passes it in
tests/ui/test_keycloak.py."""

from collections.abc import Iterator

import pytest

from tests.contracts.support.login_suite import LoginContract, PersonLogsIn
from tests.ui.support.door import Door, door, login_settings, sent_back
from tests.ui.support.fake_login_issuer import TOKEN, FakeLoginIssuer, fake_login_issuer


class TestFakeLoginIssuer(LoginContract):
    """The one that other tests make lie, stay away, and give somebody else's tokens."""

    @pytest.fixture
    def issuer(self) -> Iterator[FakeLoginIssuer]:
        with fake_login_issuer() as running:
            yield running

    @pytest.fixture
    def door(self, issuer: FakeLoginIssuer) -> Door:
        return door(login_settings(issuer.url))

    @pytest.fixture
    def logs_in(self) -> PersonLogsIn:
        return sent_back

    @pytest.fixture
    def token_endpoint(self, issuer: FakeLoginIssuer) -> str:
        return f"{issuer.url}{TOKEN}"

    @pytest.fixture
    def called(self) -> str:
        return "ann"
