"""How long rows are kept, by what stream, tenant and lake say."""

from datetime import UTC, datetime

import httpx
import pytest

from lake.catalog_client import CatalogClient, TableName
from lake.holds import Hold, spell_holds
from lake.retention import Level, Retention, parse_retention, retention_of, spell_retention
from lake.retention_policies import BELIEVED_S, Policies

TABLE, LOGS = TableName("acme", "logs"), {"firn.tenant": "acme"}


@pytest.mark.parametrize(
    ("text", "hours"),
    [("30d", 720), ("1 day", 24), ("720h", 720), ("5 Hours", 5), (" Forever ", None), ("36h", 36)],
)
def test_it_is_days_or_hours_or_for_ever(text: str, hours: int | None) -> None:
    """And what is written of it says the same."""
    assert parse_retention(text) == hours
    assert parse_retention(spell_retention(hours)) == hours


@pytest.mark.parametrize("text", ["0d", "-1d", "30", "1y", "1.5d", "30d;", "P30D", "", "one month"])
def test_what_is_unclear_is_refused(text: str) -> None:
    """It is an error that says how to write it, never a guess."""
    with pytest.raises(ValueError, match="write days or hours"):
        parse_retention(text)


@pytest.mark.parametrize(
    ("stream", "tenant", "lake", "expected"),
    [
        ("3d", "30d", "90d", Retention(72, Level.STREAM)),
        (None, "30d", "90d", Retention(720, Level.TENANT)),
        ("", " ", "90d", Retention(2_160, Level.LAKE)),
        (None, None, None, Retention(None, None)),
        ("forever", "30d", "90d", Retention(None, Level.STREAM)),
    ],
)
def test_the_most_particular_one_counts(
    stream: str | None, tenant: str | None, lake: str | None, expected: Retention
) -> None:
    """Also where it says that rows are kept for ever."""
    assert retention_of((Level.STREAM, stream), (Level.TENANT, tenant), (Level.LAKE, lake)) == expected


def test_an_unclear_one_hides_the_more_general_ones() -> None:
    """What somebody meant for a tenant must not be taken for what the lake says; who said it is named."""
    with pytest.raises(ValueError, match=r"firn\.retention of the tenant: 'one month'"):
        retention_of((Level.STREAM, None), (Level.TENANT, "one month"), (Level.LAKE, "90d"))


class _Clock:
    at_s = 0.0

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)

    def monotonic_s(self) -> float:
        return self.at_s


def test_firns_catalog_tells_all_at_once() -> None:
    """A page at a time, whatever the number of tenants that are asked about; one that does not know the
    question is asked for each."""
    asked, clock, knows = list[str](), _Clock(), [True]
    said = {"acme": {"firn.retention": "30d"}, "other": {"firn.holds": spell_holds([Hold("h", "logs")])}}

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        if request.url.path == "/v1/config":
            return httpx.Response(200, json={"overrides": {"firn.extras": "1", "firn.retention": "9d"}})
        if request.url.path == "/firn/v1/policies" and knows[0]:
            names = ["acme"] if not request.url.params.get("pageToken") else ["other"]
            page = {"namespaces": [{"namespace": [name], "properties": said[name]} for name in names]}
            token = "more" if names == ["acme"] else None
            lake = {"firn.retention": "90d"}
            return httpx.Response(200, json={"lake": lake, **page, "next-page-token": token})
        if request.url.path.startswith("/v1/namespaces/"):
            return httpx.Response(200, json={"properties": said[request.url.path.rsplit("/", 1)[1]]})
        return httpx.Response(404, json={})

    catalog = CatalogClient("http://catalog", transport=httpx.MockTransport(answer))
    for timeout_s in (None, 5.0):
        asked.clear()
        policies = Policies(catalog, clock, timeout_s)
        assert policies.of(TABLE, LOGS) == Retention(720, Level.TENANT)
        assert policies.of(TableName("third", "logs"), LOGS) == Retention(2_160, Level.LAKE)
        assert [hold.id for hold in policies.holds(TableName("other", "logs"))] == ["h"]
        assert policies.holds(TableName("other", "audit")) == ()
        assert asked.count("/firn/v1/policies") == len(asked) - asked.count("/v1/config") == 2
    knows[0] = False
    policies = Policies(catalog, clock)
    assert policies.of(TABLE, LOGS) == Retention(720, Level.TENANT)
    assert [hold.id for hold in policies.holds(TableName("other", "logs"))] == ["h"]
    assert policies.of_lake() == "9d"


def test_catalogs_are_asked_once_a_minute() -> None:
    """For a namespace and for the lake; what a table says itself needs no question, nor do tables that are
    none of Firn's logs, or have a key."""
    said, asked, clock = {"acme": "30d", "lake": "90d"}, list[str](), _Clock()

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        is_lake = request.url.path == "/v1/config"
        told = {"firn.retention": said["lake" if is_lake else "acme"]}
        return httpx.Response(200, json={"overrides": told} if is_lake else {"properties": told})

    catalog = CatalogClient("http://catalog", transport=httpx.MockTransport(answer))
    policies = Policies(catalog, clock)
    assert policies.of(TABLE, {**LOGS, "firn.retention": "3d"}) == Retention(72, Level.STREAM)
    for others in ({}, {**LOGS, "firn.key": '["id"]'}):
        assert policies.of(TABLE, others) == Retention()
    assert asked == []
    assert policies.of(TABLE, LOGS) == Retention(720, Level.TENANT)
    before = len(asked)
    said["acme"] = ""
    assert policies.of(TABLE, LOGS) == Retention(720, Level.TENANT)
    assert len(asked) == before
    clock.at_s = BELIEVED_S + 1
    assert policies.of(TABLE, LOGS) == Retention(2_160, Level.LAKE)
