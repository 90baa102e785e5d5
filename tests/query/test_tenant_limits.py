"""What tenants may use of the search API: searches at once, seconds and bytes a day, exports; who sets it,
who is told, and what is counted."""

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from infra.local.supervisor import Stack
from lake.catalog_client import CatalogClient
from lake.limits import Bound, Limit
from lake.retention import Level
from lake.retention_policies import BELIEVED_S, Policies
from lake.tenant import TenantId
from query.access.access import Caller, Who
from query.api.turns import payer_of, shares_of
from query.export.export import ExportJobs, QuotaError
from query.model.lane import Lane
from query.model.search_usage import DailyLimitError, SearchUsage, Used
from query.model.tenant_limits import TenantLimits
from tests.query.support.guarded import START, Guarded
from tests.query.support.processes import run
from tests.query.test_export import Rows, job

EVENING = datetime(2026, 5, 1, 23, 59, 30, tzinfo=UTC)
Json = dict[str, Any]


class _Clock:
    """Moved by hand."""

    def __init__(self) -> None:
        self.at_s = 0.0

    def now(self) -> datetime:
        return EVENING + timedelta(seconds=self.at_s)

    def monotonic_s(self) -> float:
        return self.at_s


def test_a_full_disk_fails_no_search(tmp_path: Path) -> None:
    """It counts as long as the process runs."""
    usage = SearchUsage(tmp_path / "usage.db", _Clock())
    usage.today("a")
    usage._database.execute("PRAGMA query_only = ON")
    usage.add("a", "logs", Used(1, 6.0, 6))
    assert usage.today("a") == Used(1, 6.0, 6)
    assert list(usage.by_stream(None, EVENING.date(), EVENING.date())) == []
    usage.close()


@pytest.mark.parametrize(
    ("limit", "unit"), [(Limit.SEARCH_S_PER_DAY, "10 seconds"), (Limit.SEARCH_BYTES_PER_DAY, "10 bytes")]
)
def test_a_day_of_searches_ends_at_midnight(tmp_path: Path, limit: Limit, unit: str) -> None:
    """Whoever has used it is told who limits it and when to ask again; others go on, and so does he
    tomorrow. A restart forgets nothing."""
    clock = _Clock()
    limits = {limit: Bound(10, Level.LAKE)}
    usage = SearchUsage(tmp_path / "usage.db", clock)
    usage.add("a", "logs", Used(1, 6.0, 6))
    usage.check("a", limits)
    usage.add("a", "audit", Used(1, 4.0, 4))
    usage.close()
    usage = SearchUsage(tmp_path / "usage.db", clock)
    with pytest.raises(DailyLimitError, match=f"{unit} that {limit.value} .*, as the lake says") as refused:
        usage.check("a", limits)
    assert refused.value.retry_after_s == 31
    usage.check("b", limits)
    usage.check("a", {limit: Bound(None, Level.TENANT)})
    usage.check("a", {})
    clock.at_s = 31.0
    usage.check("a", limits)
    usage.close()


def test_usage_is_told_by_day_and_stream(tmp_path: Path) -> None:
    """Of one tenant or of all; after some 400 days it goes."""
    clock = _Clock()
    usage = SearchUsage(tmp_path / "usage.db", clock)
    for whose, stream in (("a", "logs"), ("a", "logs"), ("b", "")):
        usage.add(whose, stream, Used(1, 0.5, 100))
    clock.at_s = 60.0
    usage.add("a", "logs", Used(1, 0.5, 100))
    first, second = EVENING.date(), EVENING.date() + timedelta(days=1)

    def told(whose: str | None, *days: date) -> Sequence[tuple[str, str, str, Used]]:
        return [(e.day, e.namespace, e.stream, e.used) for e in usage.by_stream(whose, days[0], days[-1])]

    assert told("a", first, second) == [
        ("2026-05-01", "a", "logs", Used(2, 1.0, 200)),
        ("2026-05-02", "a", "logs", Used(1, 0.5, 100)),
    ]
    assert told(None, first) == [*told("a", first), ("2026-05-01", "b", "", Used(1, 0.5, 100))]
    clock.at_s = 401 * 86_400.0
    usage.add("a", "logs", Used(1, 0.5, 100))
    assert [day for day, *_ in told(None, first, second)] == ["2026-05-02"]
    usage.close()


def test_a_damaged_file_of_usage_is_put_aside(tmp_path: Path) -> None:
    """Nobody is kept from searching by it."""
    (tmp_path / "usage.db").write_bytes(b"no database" * 1_000)
    usage = SearchUsage(tmp_path / "usage.db", _Clock())
    usage.add("a", "logs", Used(1, 1.0, 1))
    assert usage.today("a") == Used(1, 1.0, 1)
    assert (tmp_path / "usage.damaged").exists()
    usage.close()


def test_the_catalog_is_asked_once_a_minute() -> None:
    """And where it does not answer, what was known last counts on; what was changed here is asked at once."""
    asked, clock, answers, most = list[str](), _Clock(), [True], ["3"]

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/config":
            return httpx.Response(200, json={"overrides": {"firn.extras": "1"}})
        asked.append(request.url.path)
        if not answers[0]:
            return httpx.Response(500, json={})
        said = [{"namespace": ["a"], "properties": {"firn.limits.exports": most[0]}}]
        return httpx.Response(200, json={"lake": {}, "namespaces": said, "next-page-token": None})

    catalog = CatalogClient("http://catalog", transport=httpx.MockTransport(answer))
    limits = TenantLimits(Policies(catalog, clock, 5.0), clock)
    assert limits.known("a") is None
    expected = {Limit.EXPORTS: Bound(3, Level.TENANT)}
    assert limits.of("a") == limits.known("a") == expected
    assert limits.of("b") == {}
    assert len(asked) == 1
    answers[0] = False
    clock.at_s += BELIEVED_S + 1
    assert limits.of("a") == limits.of("a") == expected
    assert len(asked) == 2
    answers[0], most[0] = True, "4"
    limits.forget()
    assert limits.of("a") == {Limit.EXPORTS: Bound(4, Level.TENANT)}


@pytest.fixture
def lane() -> Iterator[Lane]:
    made = Lane("test", 8, 2, 1.0)
    yield made
    made.threads.shutdown()


def test_a_tenants_limit_goes_before_the_setting(lane: Lane) -> None:
    """More or less, whoever asks about it; without one as many as the setting says."""
    tenant, catalog = TenantId("a"), CatalogClient("http://127.0.0.1:1")  # nobody is asked
    for who in (Who("k1", tenant.namespace), Who("k2")):
        caller = Caller("key", catalog, who)
        payer = payer_of(caller, tenant)
        for bound, at_once in ((Bound(1, Level.TENANT), 1), (Bound(5, Level.LAKE), 5), (Bound(), 2)):
            share = shares_of(caller, payer, lane, {Limit.SEARCHES_AT_ONCE: bound})[0]
            assert (share.name, share.at_once) == ("namespace a", at_once)


def test_exports_that_are_kept(tmp_path: Path) -> None:
    """As many as tenant or lake say, whatever the setting says; none: any number."""
    bounds = {"acme": Bound(1, Level.TENANT)}
    jobs = ExportJobs(tmp_path, lambda _: Rows(), number_of=lambda tenant: bounds[tenant])
    jobs.create(job("ndjson"))
    with pytest.raises(QuotaError, match="as the tenant says"):
        jobs.create(job("ndjson"))
    bounds["acme"] = Bound(None, Level.TENANT)
    for _ in range(3):
        jobs.create(job("ndjson"))


@pytest.fixture
def limited(guarded: Guarded) -> Iterator[Guarded]:
    """Without limits of `Mine` afterwards."""
    yield guarded
    unset = {limit.value: None for limit in Limit}
    guarded.ask("POST", "/v1/tenants/limits", "room", json={"tenant": "Mine", "limits": unset})


def rows_of(limited: Guarded, catalog: CatalogClient) -> int:
    """How many `Mine` has: other tests erase some."""
    metadata = catalog.load_table(limited.mine.name)["metadata"]
    head = metadata["current-snapshot-id"]
    (summary,) = (each["summary"] for each in metadata["snapshots"] if each["snapshot-id"] == head)
    return int(summary["total-records"])


def set_limits(guarded: Guarded, key: str = "room", **limits: int | str | None) -> httpx.Response:
    return guarded.ask("POST", "/v1/tenants/limits", key, json={"tenant": "Mine", "limits": limits})


def search(guarded: Guarded, key: str, tenant: str, **headers: str) -> httpx.Response:
    end = (START + timedelta(hours=1)).isoformat()
    body = {"tenant": tenant, "stream": "logs", "from": START.isoformat(), "to": end, "query": "/x"}
    return guarded.ask("POST", "/v1/search", key, json=body, headers=headers)


@pytest.mark.stack
def test_a_tenants_own_key_reads_its_limits_and_changes_none(limited: Guarded) -> None:
    """Of another tenant it reads none. What is no limit is refused."""
    assert set_limits(limited, exports=3, search_s_per_day="none").is_success
    for key in ("mine", "reader", "theirs"):
        assert set_limits(limited, key, exports=9).status_code == 403
    told = limited.ask("GET", "/v1/tenants/limits", "reader", params={"tenant": "Mine"}).json()["limits"]
    said = {each["limit"]: each["most"] for each in told if each["said_by"] == "tenant"}
    assert said == {"exports": 3, "search_s_per_day": None}
    refused = limited.ask("GET", "/v1/tenants/limits", "theirs", params={"tenant": "Mine"})
    assert refused.status_code == 403
    for wrong in ({"exports": 0}, {"exports": "many"}, {"export": 3}):
        assert set_limits(limited, **wrong).status_code == 400


@pytest.mark.stack
def test_whoever_has_read_enough_today_waits_for_tomorrow(limited: Guarded) -> None:
    """In one piece and in lines, by his own key and by any other that asks about his tenant; nobody else
    does. Looking at limits costs nothing."""
    assert search(limited, "mine", "Mine").is_success
    assert set_limits(limited, search_bytes_per_day=1).is_success
    for key in ("mine", "reader", "room"):
        for accept in ("application/json", "application/x-ndjson"):
            refused = search(limited, key, "Mine", accept=accept)
            assert refused.status_code == 429
            assert 1 < int(refused.headers["retry-after"]) <= 86_401
            assert "search_bytes_per_day" in refused.json()["error"]["message"]
    body = {"sql": "SELECT 1", "tenant": "Mine"}
    assert limited.ask("POST", "/v1/sql", "mine", json=body).status_code == 429
    assert search(limited, "theirs", "Theirs").is_success
    assert limited.ask("GET", "/v1/tenants/limits", "mine", params={"tenant": "Mine"}).is_success
    assert set_limits(limited, search_bytes_per_day=None).is_success
    assert search(limited, "mine", "Mine").is_success


@pytest.mark.stack
def test_usage_tells_a_tenant_what_is_his_alone(limited: Guarded, catalog_client: CatalogClient) -> None:
    """As JSON and as CSV; whoever reaches all tenants sees all. What was refused or found nothing of that
    name is no search."""

    def told(key: str, **query: str) -> Json:
        answer = limited.ask("GET", "/v1/usage", key, params=query)
        answer.raise_for_status()
        return dict(answer.json())

    def searches(told: Json) -> int:
        return sum(each["searches"] for each in told["searches"] if each["tenant"] == "Mine")

    before = searches(told("mine"))
    assert search(limited, "mine", "Mine").is_success
    assert search(limited, "room", "Mine").is_success
    assert search(limited, "mine", "Theirs").status_code == 403
    body = {"tenant": "Mine", "stream": "nosuch", "from": "2026-09-01", "to": "2026-09-02"}
    assert limited.ask("POST", "/v1/search", "mine", json=body).status_code == 404
    own = told("reader")
    assert searches(own) == before + 2
    assert {each["tenant"] for each in (*own["searches"], *own["ingested"], *own["stored"])} == {"Mine"}
    assert [each["bytes_stored"] for each in own["ingested"]] == [each["bytes"] for each in own["stored"]]
    assert [each["rows"] for each in own["stored"]] == [rows_of(limited, catalog_client)]
    assert all(each["seconds"] > 0 and each["bytes"] > 0 for each in own["searches"] if each["stream"])
    assert search(limited, "theirs", "Theirs").is_success
    assert {each["tenant"] for each in told("room")["searches"]} >= {"Mine", "Theirs"}
    assert limited.ask("GET", "/v1/usage", "theirs", params={"tenant": "Mine"}).status_code == 403
    assert told("mine", **{"from": "2020-01-01", "to": "2020-12-31"})["searches"] == []
    assert limited.ask("GET", "/v1/usage", "mine", params={"from": "soon"}).status_code == 400
    lines = limited.ask("GET", "/v1/usage", "mine", params={"format": "csv"}).text.splitlines()
    assert (
        lines[0]
        == "day,tenant,stream,records,bytes_in,bytes_stored,searches,search_seconds,search_bytes,rows"
    )
    (stored,) = (line.split(",") for line in lines if line.startswith(",Mine,logs,"))
    rows = str(rows_of(limited, catalog_client))
    assert (stored[3:5], int(stored[5]) > 0, stored[6:]) == (["", ""], True, ["", "", "", rows])


@pytest.mark.stack
def test_a_terminal_tells_and_changes_limits(
    limited: Guarded, stack: Stack, catalog_client: CatalogClient
) -> None:
    """With the key that it is given, an object a line; what is no number is refused with its name."""

    def say(key: str, *arguments: str) -> tuple[list[Json], str]:
        environment = {
            **stack.environment(),
            "FIRN_QUERY_CLIENT__URI": limited.api.address,
            "FIRN_QUERY_CLIENT__KEY": limited.keys[key],
        }
        done = run("query", environment, "limits", "Mine", *arguments)
        return [orjson.loads(line) for line in done.stdout.splitlines()], done.stderr

    told, _ = say("room", "--set", "exports=4", "--set", "searches_at_once=none")
    said = {each["limit"]: each["most"] for each in told if each["said_by"] == "tenant"}
    assert said == {"exports": 4, "searches_at_once": None}
    told, _ = say("room", "--unset", "exports")
    assert told == say("reader")[0]
    environment = {**stack.environment(), "FIRN_QUERY_CLIENT__URI": limited.api.address}
    environment["FIRN_QUERY_CLIENT__KEY"] = limited.keys["reader"]
    used = [orjson.loads(line) for line in run("query", environment, "usage", "Mine").stdout.splitlines()]
    assert used[-1]["rows"] == rows_of(limited, catalog_client)
    assert "--set exports" in say("room", "--set", "exports=x")[1]
    assert "403" not in say("mine", "--set", "exports=9")[1]
    assert "reaches all tenants" in say("mine", "--set", "exports=9")[1]
