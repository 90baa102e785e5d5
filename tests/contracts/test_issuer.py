"""The contract of issuers for a provider that is not ours and for the one that stands for it."""

from collections.abc import Iterator

import pytest

from lake.clock import SystemClock
from tests.catalog.support.fake_issuer import AUDIENCE, FakeIssuer, fake_issuer
from tests.contracts.support.issuer_suite import CLAIMS, SUBJECT, IssuerContract
from tests.ui.support.provider import CLIENT, Provider, provider


class TestFakeIssuer(IssuerContract):
    """The one whose keys tests change."""

    @pytest.fixture
    def fake(self) -> Iterator[FakeIssuer]:
        with fake_issuer() as running:
            yield running

    @pytest.fixture
    def url(self, fake: FakeIssuer) -> str:
        return fake.url

    @pytest.fixture
    def audience(self) -> str:
        return AUDIENCE

    @pytest.fixture
    def token(self, fake: FakeIssuer) -> str:
        return fake.token(SystemClock().now().timestamp(), sub=SUBJECT, **CLAIMS)


class TestProviderOfOthers(IssuerContract):
    """`oidc-provider-mock`, by the authorization code flow."""

    @pytest.fixture
    def real(self) -> Iterator[Provider]:
        with provider({SUBJECT: CLAIMS}) as running:
            yield running

    @pytest.fixture
    def url(self, real: Provider) -> str:
        return real.url

    @pytest.fixture
    def audience(self) -> str:
        return CLIENT

    @pytest.fixture
    def token(self, real: Provider) -> str:
        return real.token(SUBJECT)
