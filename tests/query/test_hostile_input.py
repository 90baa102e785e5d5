"""Hostile input through the API: no foreign row, no 500, nothing executed but the search."""

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from tests.query.log_table import LogTable, fresh_tenant

pytestmark = pytest.mark.stack

START = datetime(2026, 5, 6, 7, 0, tzinfo=UTC)
SECRET = "the-other-tenants-secret"
INPUTS = 400


def hostile_texts(victim: LogTable, count: int) -> list[str]:
    """Texts that try to leave their place: SQL, comments, unions, other tenants' names, broken unicode, signs of the language."""
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
        f"_topic:* OR {SECRET}",
        "read_parquet('/etc/passwd')",
        "COPY (SELECT 1) TO '/tmp/x'",
        "ATTACH '/tmp/x' AS y",
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
    random_ = random.Random(11)
    while len(seeds) < count:
        seeds.append("".join(random_.choice(seeds[:50]) for _ in range(random_.randint(2, 4))))
    return seeds[:count]


@pytest.fixture(scope="module")
def tables(catalog_client: Any) -> tuple[LogTable, LogTable]:
    """The caller's table and another tenant's, whose rows must never be seen."""
    mine, victim = LogTable(catalog_client, fresh_tenant("mine")), LogTable(catalog_client, fresh_tenant("victim"))
    mine.append([{"timestamp": START + timedelta(seconds=at), "message": f"mine {at}", "path": "/x"} for at in range(20)])
    victim.append([{"timestamp": START + timedelta(seconds=at), "message": f"{SECRET} {at}", "path": "/x"} for at in range(20)])
    return mine, victim


def test_hostile_texts_in_every_field_show_nothing_foreign(api: httpx.Client, tables: tuple[LogTable, LogTable]) -> None:
    """Quotes, semicolons, unions and other tenants' names as query, stream, time, cursor, pin and engine: rows are mine or there are none."""
    mine, victim = tables
    sound = {"tenant": mine.tenant, "stream": "logs", "from": START.isoformat(), "to": (START + timedelta(hours=1)).isoformat()}
    random_ = random.Random(5)
    for text in hostile_texts(victim, INPUTS):
        field = random_.choice(["query", "query", "query", "stream", "from", "to", "cursor", "pin", "engine", "order"])
        answer = api.post("/v1/search", json={**sound, field: text})
        assert answer.status_code < 500, (field, text, answer.text)
        assert SECRET not in answer.text.replace(text, "") or answer.status_code != 200, (field, text)
        if answer.status_code == 200:
            assert all(row["message"].startswith("mine ") for row in answer.json()["rows"]), (field, text)


def test_hostile_texts_on_trino_show_nothing_foreign(api: httpx.Client, tables: tuple[LogTable, LogTable]) -> None:
    """The same through Trino's dialect."""
    mine, victim = tables
    sound = {"tenant": mine.tenant, "from": START.isoformat(), "to": (START + timedelta(hours=1)).isoformat(), "engine": "trino"}
    for text in hostile_texts(victim, INPUTS)[::12]:
        for query in (text, '"{}"'.format(text.replace("\\", "\\\\").replace('"', '\\"'))):
            answer = api.post("/v1/search", json={**sound, "query": query})
            assert answer.status_code < 500, (query, answer.text)
            if answer.status_code == 200:
                assert all(row["message"].startswith("mine ") for row in answer.json()["rows"]), query


def test_a_tenants_name_never_reaches_another_tenants_table(api: httpx.Client, log_table: Callable[..., LogTable]) -> None:
    """Names that differ in case, escapes or separators are other tenants, and identifiers are not accepted as names."""
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
