"""The OpenAPI document against the API: schemathesis makes requests of it, sound ones and others; none may be
answered with a 500."""

import os
from datetime import UTC, datetime, timedelta
from random import Random, SystemRandom
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode

from lake.catalog_client import CatalogClient
from tests.query.support.log_table import LogTable, fresh_tenant

pytestmark = pytest.mark.stack
# Of all operations together; the long proof sends 5,000.
REQUESTS = int(os.environ.get("FIRN_FUZZ_REQUESTS", "15"))
SEED = int(os.environ.get("FIRN_TEST_SEED", SystemRandom().randrange(10**9)))
START = datetime(2026, 5, 5, 5, 0, tzinfo=UTC)
# These would remove the table that the others are asked about.
OF_ANY_TENANT = ("DELETE /v1/streams", "POST /v1/erasures")


def aimed(case: Any, tenant: str) -> Any:
    """Most requests are about a tenant that is there, so that they come further than its name."""
    if f"{case.method} {case.path}" in OF_ANY_TENANT:
        return case
    for part in (case.body, case.query):
        if isinstance(part, dict) and isinstance(part.get("tenant"), str) and len(part["tenant"]) % 4:
            part["tenant"] = tenant
            if isinstance(part.get("stream"), str) and len(part["stream"]) % 3:
                part["stream"] = "logs"
    return case


def test_no_request_is_answered_with_a_500(query_uri: str, catalog_client: CatalogClient) -> None:
    """Every operation of the document in turn, generated requests that keep to it and requests that do
    not; of few requests each operation gets one or the other, whichever this run draws."""
    table = LogTable(catalog_client, fresh_tenant("fuzzed"), types={"n": "long"})
    table.append(
        [{"timestamp": START + timedelta(seconds=at), "message": f"row {at}", "n": at} for at in range(20)]
    )
    print(f"FIRN_TEST_SEED={SEED}")
    document: Any = schemathesis.openapi.from_url(f"{query_uri}/openapi.json")
    operations = [found.ok() for found in document.get_all_operations()]
    assert len(operations) > 30
    each, draw, sent = REQUESTS // (2 * len(operations)) + 1, Random(SEED), 0
    with requests.Session() as session:
        session.trust_env = False
        for operation in operations:
            of_this = 0
            for mode in draw.sample(list(GenerationMode), len(GenerationMode)):
                if of_this < each or len(operations) < REQUESTS:
                    of_this += _send(operation, mode, session, table.tenant, each)
            sent += of_this
    assert sent >= max(len(operations), REQUESTS * 0.8)


def _send(operation: Any, mode: GenerationMode, session: requests.Session, tenant: str, count: int) -> int:
    """Sends requests of one operation; how many. Where nothing can vary there are no wrong requests."""
    sent = 0

    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @seed(SEED)
    @given(case=operation.as_strategy(generation_mode=mode))
    def send(case: Any) -> None:
        nonlocal sent
        answer = aimed(case, tenant).call(session=session, timeout=120.0)
        sent += 1
        assert answer.status_code != 500, (case.method, case.path, case.body, case.query, answer.text)

    try:
        send()
    except Unsatisfiable:
        return sent
    return sent
