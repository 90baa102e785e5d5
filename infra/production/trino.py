"""Whether Trino asks people who they are, and has the rules by which they see their own tenant alone."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import orjson

from infra.local.trino_access import PASSWORDS, RULES
from infra.production.finding import Finding, ok, unknown, unsafe
from infra.production.rooms import Rooms
from lake.tls import tls_context

NAME = "trino"
ANSWER_S = 10.0
STRANGER = "firn-doctor"


def look(rooms: Rooms) -> Iterator[Finding]:
    """Sends a statement as somebody who does not exist, and reads the rules where their folder is here."""
    settings = rooms.query.trino
    verify = httpx.create_ssl_context(verify=settings.ca) if settings.ca else tls_context()
    with httpx.Client(base_url=settings.uri, timeout=ANSWER_S, verify=verify) as client:
        answer = client.post("/v1/statement", content="SELECT 1", headers={"X-Trino-User": STRANGER})
        if answer.status_code == 200:
            client.delete(answer.json()["nextUri"], headers={"X-Trino-User": STRANGER})
    yield judge(settings.uri, answer.status_code)
    if settings.access:
        yield judge_rules(settings.access, settings.catalog)


def judge(uri: str, status: int) -> Finding:
    """`status`: of the answer to a statement of a stranger without a password."""
    if status in (401, 403):
        return ok(NAME, f"Trino at {uri} asks for a password")
    if status == 200:
        return unsafe(
            NAME,
            f"Trino at {uri} takes statements of anybody, who reads every tenant's rows; set up users",
            "and rules",
            "(python -m query trino-access, docs/search.md)",
        )
    return unknown(
        NAME, f"Trino at {uri} answers {status} to a statement without a password; ask again when it is well"
    )


def judge_rules(folder: Path, catalog: str) -> Finding:
    """`folder`: what `python -m query trino-access` wrote, `catalog`: Trino's, of the tables."""
    do = "write them anew: python -m query trino-access"
    try:
        rules = orjson.loads((folder / RULES).read_bytes())
        tables, catalogs = rules["tables"], rules["catalogs"]
        is_open = any(
            rule.get("allow") == "all" and rule.get("catalog", ".*") in (".*", catalog) for rule in catalogs
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return unsafe(NAME, f"{folder / RULES} has no rules that can be read ({error}); {do}")
    if not tables or is_open:
        return unsafe(NAME, f"{folder / RULES} lets people write to {catalog}; {do}")
    if not (folder / PASSWORDS).is_file():
        return unsafe(NAME, f"{folder / PASSWORDS} is missing, so nobody has a password; {do}")
    return ok(NAME, f"{folder / RULES} has rules for {len(tables)} kinds of tables")
