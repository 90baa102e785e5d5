"""Finding 8: one tenant's requests that never end, because Trino answers nothing, and everybody else."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from tests.query.support.guarded import START, Guarded
from tests.query.support.processes import Child
from tests.security.support.edges import Silent, limited
from tests.stack.support.waiting import wait_for

pytestmark = [pytest.mark.finding(8), pytest.mark.stack]
ASKED = 64
SENDERS_WAIT_S = 8.0
PATIENCE_S = 30.0  # of somebody who has to wait for nobody; a bound, no measure


@pytest.fixture
def trino() -> Iterator[Silent]:
    silent = Silent()
    yield silent
    silent.close()


@pytest.fixture
def hung(keyed: Guarded, trino: Silent, tmp_path: Path) -> Iterator[Guarded]:
    """The keyed API before a Trino that takes every connection and never answers."""
    own = limited(
        "query",
        catalog__uri=keyed.catalog.address,
        catalog__token=keyed.keys["room"],
        trino__uri=trino.address,
        state=tmp_path / "state",
    )
    # Wide searches go to Trino as well.
    api = Child(
        "query",
        tmp_path,
        {**keyed.environment, **own, **limited("query", embedded__scan_bytes_max=0)},
        ready_path="/healthz",
    ).start()
    yield Guarded(tmp_path, keyed.catalog, api, keyed.keys, keyed.mine, keyed.theirs, keyed.environment)
    api.kill()


def others_are_served(hung: Guarded) -> None:
    """Health, the other tenant, and the one itself where it needs no Trino."""
    with httpx.Client(base_url=hung.api.address, timeout=PATIENCE_S, trust_env=False) as client:
        assert client.get("/healthz").json() == {"status": "alive"}
        assert client.get("/readyz").json() == {"ready": True, "catalog": True, "trino": False}
        assert client.get("/metrics").status_code == 200
        assert client.get("/v1/tenants").status_code == 401
        for key, tenant in (("theirs", "b"), ("admin", "b")):
            headers = {"Authorization": f"Bearer {hung.keys[key]}"}
            for path, query in (
                ("tenants", {}),
                ("streams", {"tenant": tenant}),
                ("exports", {}),
                ("streams/detail", {"tenant": tenant, "stream": "logs"}),
            ):
                answer = client.get(f"/v1/{path}", params=query, headers=headers)
                assert answer.status_code == 200, (key, path, answer.text)
            body = {"tenant": tenant, "from": START.isoformat(), "to": "2026-09-02"}
            assert client.post("/v1/explain", json=body, headers=headers).status_code == 200


def flood(hung: Guarded, key: str, path: str, body: dict[str, object], pool: ThreadPoolExecutor) -> None:
    """64 requests at once whose senders wait for a while and then hang up."""
    headers = {"Authorization": f"Bearer {hung.keys[key]}"}
    limits = httpx.Limits(max_connections=ASKED)
    client = httpx.Client(
        base_url=hung.api.address, headers=headers, timeout=SENDERS_WAIT_S, limits=limits, trust_env=False
    )

    def ask() -> None:
        with suppress(httpx.TimeoutException):
            client.post(f"/v1/{path}", json=body)

    for _ in range(ASKED):
        pool.submit(ask)


RANGE = {"from": START.isoformat(), "to": "2026-09-02"}


@pytest.mark.parametrize(
    ("key", "path", "body"),
    [
        ("mine", "sql", {"sql": "SELECT 1", "tenant": "a"}),
        pytest.param("mine", "sql", {"sql": "SELECT 1"}, marks=pytest.mark.prove),
        ("reader", "search", {"tenant": "a", "query": "message:*x*", "engine": "trino", **RANGE}),
        pytest.param(
            "mine", "search/stream", {"tenant": "a", "engine": "trino", **RANGE}, marks=pytest.mark.prove
        ),
        pytest.param("mine", "search", {"tenant": "b", "engine": "trino", **RANGE}, marks=pytest.mark.prove),
        pytest.param("admin", "sql", {"sql": "SELECT 1"}, marks=pytest.mark.prove),
    ],
    ids=[
        "statements",
        "statements that name no tenant",
        "searches",
        "streams",
        "of another's name",
        "a key that reaches all",
    ],
)
def test_64_requests_that_never_end_stop_nobody(
    hung: Guarded, trino: Silent, key: str, path: str, body: dict[str, object]
) -> None:
    """While they hang, and when their senders have gone and the engine has not, health answers and the other
    tenant works, in SQL too."""
    with ThreadPoolExecutor(ASKED) as pool:
        flood(hung, key, path, body, pool)
        if not (key == "mine" and body.get("tenant") == "b"):
            wait_for(lambda: len(trino.connections) >= 2, PATIENCE_S, "statements that hang")
        others_are_served(hung)
        assert trino.asked_as("b") == 0
        pool.submit(
            httpx.post,
            f"{hung.api.address}/v1/sql",
            json={"sql": "SELECT 1", "tenant": "b"},
            headers=hung.client("theirs").headers,
            timeout=5,
        )
        wait_for(lambda: trino.asked_as("b"), PATIENCE_S, "the other tenant's statement reaching Trino")
        flood(hung, key, path, body, pool)
        others_are_served(hung)


def test_who_asks_for_more_than_its_turns_is_told_so(hung: Guarded, trino: Silent) -> None:
    """Of 64 statements those that can neither run nor wait are refused with a sentence, at once."""
    with ThreadPoolExecutor(ASKED) as pool:
        answers = [
            pool.submit(hung.ask, "POST", "/v1/sql", "mine", json={"sql": "SELECT 1", "tenant": "a"})
            for _ in range(ASKED)
        ]
        wait_for(lambda: sum(each.done() for each in answers) >= ASKED - 8, 2 * PATIENCE_S, "refusals")
        refused = [each.result() for each in answers if each.done()]
        assert {each.status_code for each in refused} == {429}
        assert "4 requests of namespace a run already" in refused[0].json()["error"]["message"]
        hung.api.kill()
