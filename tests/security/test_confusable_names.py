"""Tenants with names that look alike are warned of: where they are listed, and when one gets its first table.
Nobody is refused for a name."""

from contextlib import closing
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.local.supervisor import Stack
from lake.catalog_client import CatalogClient
from lake.confusable import peculiarities, skeleton, visible, warnings_of
from tests.query.support.guarded import START, Guarded
from tests.query.support.log_table import LogTable
from tests.query.support.processes import run
from tests.stack.support.kafka_topics import Record
from tests.stack.support.line import Line
from tests.stack.support.plain_http import http
from tests.stack.support.waiting import fresh, wait_for

pytestmark = pytest.mark.finding(34)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("\u0430cme", "mixes letters of Cyrillic and Latin"),
        ("\u03b1cme", "mixes letters of Greek and Latin"),
        ("ac\u200bme", "not seen"),
        ("acme\u00ad", "not seen"),
        ("ac\u3164me", "not seen"),
        ("ac\u00a0me", "not seen"),
        ("acme\u202egnp", "right to left"),
        ("\u05e9\u05dc\u05d5\u05dd", "right to left"),
        (" acme", "blank"),
    ],
)
def test_a_peculiar_name_is_told(name: str, says: str) -> None:
    """By itself, whoever else there is; without repeating what may not be seen."""
    assert says in "; ".join(peculiarities(name))
    assert visible(name).isascii()


@pytest.mark.parametrize(
    "name",
    ["acme", "Acme-Shop", "my_app", "東京", "東京 acme", "Ünal", "привет", "ελλάδα", "naïve", "한국", "a b"],
)
def test_an_ordinary_name_of_any_script_is_not(name: str) -> None:
    """One script is no mixture, and Japanese or Korean beside Latin is usual."""
    assert peculiarities(name) == ()


@pytest.mark.parametrize(
    "other",
    [
        "Acme",
        "\u0430cme",
        "\u0410\u0421\u041c\u0415",
        "ac\u200dme",
        "\uff41cme",
        "\u0251cme".replace("\u0251", "\u03b1"),
        "acme ",
    ],
)
def test_names_that_look_alike_are_told_of_each_other(other: str) -> None:
    """Case, scripts, width and what is not seen make no difference to people; others are left in peace."""
    told = warnings_of(["acme", other, "beta", "東京"])
    assert set(told) == {"acme", other}
    assert f'looks like "{visible(other)}"' in told["acme"]
    assert 'looks like "acme"' in told[other]


@given(st.text(max_size=30))
def test_a_skeleton_is_its_own_skeleton(name: str) -> None:
    """So that two names are alike whichever is asked about; any text has one."""
    assert skeleton(skeleton(name)) == skeleton(name)


@pytest.mark.stack
def test_lists_warn_of_what_the_key_reaches_and_of_nobody_else(
    keyed: Guarded, catalog_client: CatalogClient, stack: Stack
) -> None:
    """An administrator is told of both; the tenant's own key is told nothing of a tenant that it does not
    reach. The command line tells both."""
    own = fresh("alike")
    twin = own.replace("a", "\u0430", 1)
    for name in (own, twin):
        LogTable(catalog_client, name).append([{"timestamp": START, "message": "x"}])
    with closing(CatalogClient(keyed.catalog.address, token=keyed.keys["admin"])) as admin:
        namespace = LogTable(catalog_client, twin).name.namespace
        bound = str(admin.post("/firn/v1/keys", {"scope": "read", "namespace": [namespace]})["key"])
    seen = everybody(keyed, "admin")
    assert seen[own] == [f'looks like "{visible(twin)}"']
    assert seen[twin] == ["mixes letters of Cyrillic and Latin", f'looks like "{own}"']
    assert everybody(keyed, bound) == {twin: ["mixes letters of Cyrillic and Latin"]}
    names = keyed.ask("GET", "/v1/tenants/names", "admin", params={"limit": 100_000}).json()["warnings"]
    assert (names[own], names[twin]) == (seen[own], seen[twin])
    listed = [
        orjson.loads(line)
        for line in run("catalog", stack.environment(), "tenant", "list").stdout.splitlines()
    ]
    assert {each["tenant"]: each["warnings"] for each in listed if each["tenant"] in (own, twin)} == {
        own: seen[own],
        twin: seen[twin],
    }


def everybody(keyed: Guarded, key: str) -> dict[str, list[str]]:
    """The warnings about every tenant that the key reaches."""
    found, after = dict[str, list[str]](), ""
    while after is not None:
        page: Any = keyed.ask("GET", "/v1/tenants", key, params={"limit": 1_000, "after": after}).json()
        found |= {each["tenant"]: each["warnings"] for each in page["tenants"]}
        after = page["next"]
    return found


@pytest.mark.stack
def test_ingestion_warns_when_such_a_tenant_gets_a_table(line: Line) -> None:
    """In the log, with the name spelled out, and by a counter; the record is a row all the same."""
    own = fresh("shop")
    twin = own.replace("o", "\u043e", 1)
    topic = line.kafka.topic(1)
    line.kafka.produce(topic, [Record(b'{"message":"x"}', headers=(("tenant", own.encode()),))])
    ingester = line.ingester(topic)
    try:
        line.wait_for_rows(ingester, own, 1)
        line.kafka.produce(topic, [Record(b'{"message":"x"}', headers=(("tenant", twin.encode()),))])
        line.wait_for_rows(ingester, twin, 1)
        wait_for(lambda: "tenant.confusable" in ingester.log_file.read_text(), 30.0, "the warning")
        said = next(
            text for text in ingester.log_file.read_text().splitlines() if "tenant.confusable" in text
        )
        assert visible(twin) in said.replace("\\\\", "\\")
        assert twin not in said
        metrics = http.get(f"{ingester.address}/metrics", timeout=30.0).text
        assert 'firn_ingest_confusable_tenants_total{what="looks_like"} 1.0' in metrics
    finally:
        ingester.kill()
