"""Hostile input through the API: no foreign row, no 500, nothing executed but the search."""

import os
import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from lake.catalog_client import CatalogClient
from tests.query.support.guarded import SECRET, START, Guarded
from tests.query.support.log_table import LogTable, fresh_tenant
from tests.stack.support.line import Sql
from tests.stack.support.waiting import wait_for

pytestmark = pytest.mark.stack

# The whole proof takes 2,000.
INPUTS = int(os.environ.get("FIRN_HOSTILE_INPUTS", "15"))
SEED = int(os.environ.get("FIRN_TEST_SEED", "5"))
MEGABYTE = "x" * 1_000_000
LOOKED_AT_EVERY = 100
OUTSIDE = Path(tempfile.gettempdir()) / f"written-by-a-query-{os.getpid()}"


def hostile_texts(victim: LogTable, count: int) -> list[str]:
    """Texts that try to leave their place: SQL, comments, unions, other tenants' names, broken unicode, signs
    of the language."""
    namespace, table = victim.name
    seeds = [
        "'",
        '"',
        "''",
        '"; DROP TABLE x; --',
        "' OR '1'='1",
        "') UNION SELECT * FROM other --",
        "/* */",
        "--",
        ";",
        "\\",
        "\\'",
        "%00",
        "\u2028",
        "\ufeff",
        "\u202e",
        "＇",
        "ʼ",
        "${jndi:ldap://x}",
        "{{7*7}}",
        "../../etc/passwd",
        f'lake."{namespace}"."{table}"',
        f"{namespace}.{table}",
        victim.tenant,
        f"' UNION ALL SELECT message FROM lake.{namespace}.{table} --",
        f'"{victim.tenant}" OR "1"="1"',
        f"tenant:{victim.tenant}",
        f"_topic:* OR {SECRET[:-1]}*",
        "read_parquet('/etc/passwd')",
        f"COPY (SELECT 1) TO '{OUTSIDE}'",
        f"'; COPY (SELECT 1) TO '{OUTSIDE}'; --",
        f"ATTACH '{OUTSIDE}' AS y",
        "$$",
        "U&'\\0027'",
        "e'\\x27'",
        "x" * 5_000,
        "(" * 200,
        "*" * 300,
        "a:" * 100,
        "NOT " * 100,
        "[* TO *]",
        "a:[' TO '']",
        "\t\r\n",
        "𝒶𝓇𝒾",
        "İ",
        "ß",
        "\U0001f4a9" * 50,
        "١٢٣",
        "1e308",
        "-9223372036854775809",
        "NaN",
        "field:'",
        "'':''",
        '"":""',
        'a:"\'"',
    ]
    random_, single = random.Random(SEED), tuple(seeds)
    while len(seeds) < count:
        seeds.append("".join(random_.choice(single) for _ in range(random_.randint(2, 4))))
    return seeds[:count]


Ask = tuple[str, dict[str, Any]]


def places(text: str, mine: LogTable, victim: LogTable) -> tuple[list[Ask], list[Ask]]:
    """Requests that hold the text in each of the places where texts go: those answered in process, and those
    that cost a query of Trino."""
    sound = {
        "tenant": mine.tenant,
        "stream": "logs",
        "from": START.isoformat(),
        "to": (START + timedelta(hours=1)).isoformat(),
    }
    quoted = '"{}"'.format(text.replace("\\", "\\\\").replace('"', '\\"'))
    namespace = mine.name.namespace
    in_process: list[Ask] = [
        *(
            ("search", {**sound, field: text})
            for field in (
                "query",
                "query",
                "query",
                "stream",
                "from",
                "to",
                "cursor",
                "pin",
                "engine",
                "order",
                "tenant",
            )
        ),
        ("search", {**sound, "query": f"message:{quoted}"}),
        ("search", {**sound, "query": f"{text}:x"}),
        ("search", {**sound, "query": f"message:[{text} TO {text}]"}),
        ("histogram", {**sound, "query": text, "by": "level"}),
        ("values", {**sound, "field": text}),
        ("values", {**sound, "field": "message", "query": text}),
        ("fields", {**sound, "stream": text}),
        ("explain", {**sound, "query": text}),
        ("errors", {**sound, "query": text}),
        ("search/stream", {**sound, "query": text}),
        *(
            ("exports", {**sound, "query": text, "format": written_as})
            for written_as in ("ndjson", "csv", "parquet")
        ),
        *(("exports", {**sound, field: text}) for field in ("tenant", "stream", "pin", "from", "format")),
        ("erasures", {"tenant": mine.tenant, "query": text, "dry_run": True}),
        ("streams/types", {"tenant": mine.tenant, "stream": "logs", "field": text, "type": "string"}),
        ("streams/retention", {"tenant": mine.tenant, "stream": "logs", "retention": text, "dry_run": True}),
    ]
    on_trino: list[Ask] = [
        ("search", {**sound, "query": text, "engine": "trino"}),
        ("search", {**sound, "query": quoted, "engine": "trino"}),
        ("sql", {"tenant": mine.tenant, "sql": text}),
        ("sql", {"tenant": mine.tenant, "sql": f"SELECT message FROM logs WHERE message = {text}"}),
        ("sql", {"tenant": mine.tenant, "sql": f"SELECT message FROM {text}"}),
        ("sql", {"tenant": mine.tenant, "sql": f'SELECT message AS "{text}" FROM logs'}),
        ("sql", {"tenant": mine.tenant, "sql": f"SELECT message FROM {namespace}.logs {text}"}),
        ("sql", {"tenant": mine.tenant, "sql": f"SELECT message FROM {victim.name.namespace}.logs {text}"}),
        ("sql", {"tenant": mine.tenant, "sql": f'SELECT message FROM "{victim.tenant}".logs {text}'}),
        ("sql", {"tenant": text, "sql": "SELECT message FROM logs"}),
    ]
    return in_process, on_trino


def asked(mine: LogTable, victim: LogTable) -> Iterator[Ask]:
    """The other tenant's names in every place, then every hostile text in one. The places that cost a query
    of Trino are rarer."""
    for name in (victim.tenant, victim.name.namespace, str(victim.name), f'"{victim.tenant}".logs'):
        in_process, on_trino = places(name, mine, victim)
        yield from (*in_process, *on_trino)
    random_ = random.Random(SEED)
    for text in hostile_texts(victim, INPUTS):
        in_process, on_trino = places(text, mine, victim)
        yield random_.choice(on_trino if random_.random() < 0.12 else in_process)


def test_hostile_texts_in_every_place_show_nothing_foreign(
    guarded: Guarded, catalog_client: CatalogClient, trino: Sql
) -> None:
    """Search, SQL, export, link, erasure, types, with a tenant's key: never a 500, no foreign row, nothing
    run but queries, the other's table as it was."""
    before = catalog_client.load_table(guarded.theirs.name)["metadata-location"]
    with closing(guarded.client("mine")) as api:
        for at, (path, body) in enumerate(asked(guarded.mine, guarded.theirs)):
            answer = api.post(f"/v1/{path}", json=body)
            assert answer.status_code < 500, (path, body, answer.text)
            assert SECRET not in answer.text, (path, body)
            if at % LOOKED_AT_EVERY == 0:  # Trino forgets what ran long ago
                _check_what_ran(trino)
        for text in (MEGABYTE, f'"{MEGABYTE}"', f"message:{MEGABYTE}"):
            for path, field in (
                ("search", "query"),
                ("search", "pin"),
                ("sql", "sql"),
                ("exports", "query"),
                ("erasures", "query"),
                ("search", "tenant"),
            ):
                answer = api.post(f"/v1/{path}", json={"tenant": guarded.mine.tenant, field: text})
                assert answer.status_code == 400, (path, field, answer.text[:300])
                assert len(answer.content) < 2_000
        _check_exports(api, guarded.mine.tenant)
    assert "select" in _check_what_ran(trino)
    assert not OUTSIDE.exists()
    assert catalog_client.load_table(guarded.theirs.name)["metadata-location"] == before


def _check_what_ran(trino: Sql) -> set[str]:
    """Everything the API sent to Trino began as a query; with which words."""
    ran = trino(
        "SELECT DISTINCT lower(regexp_extract(query, '^\\s*(\\w+)', 1)) FROM system.runtime.queries WHERE "
        "source = 'firn-query'"
    )
    words = {row[0] for row in ran}
    assert words <= {"select", "with"}
    return words


def _check_exports(api: httpx.Client, tenant: str) -> None:
    """What was asked for as export is written in the background: no file of it holds another tenant's row."""

    def jobs() -> list[dict[str, Any]]:
        return list(api.get("/v1/exports", params={"tenant": tenant}).json()["exports"])

    wait_for(lambda: all(job["state"] != "running" for job in jobs()), 120.0, "the exports")
    assert jobs()
    for job in jobs():
        assert job["state"] == "done", job
        for part in job["parts"]:
            assert SECRET.encode() not in api.get(f"/v1/exports/{job['id']}/parts/{part['name']}").content


def test_a_tenants_name_never_reaches_another_tenants_table(
    api: httpx.Client, log_table: Callable[..., LogTable]
) -> None:
    """Names that differ in case, escapes or separators are other tenants, and identifiers are not accepted as
    names."""
    table = log_table(fresh_tenant("Acme_Shop"))
    table.append([{"timestamp": START, "message": SECRET}])
    for name in (
        table.tenant.lower(),
        table.tenant.upper(),
        table.name.namespace,
        f"{table.tenant}\x1f",
        f"lake.{table.tenant}",
        f"{table.tenant}.logs",
        f"{table.tenant}/logs",
    ):
        answer = api.post("/v1/search", json={"tenant": name, "from": "2000-01-01"})
        assert answer.status_code in (400, 404), (name, answer.text)
        assert SECRET not in answer.text
