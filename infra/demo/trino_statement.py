"""One SQL statement through Trino's HTTP protocol ("Trino client REST API"): what the demo needs to count,
nothing more."""

from typing import Any

import httpx
import stamina

from lake.errors import RefusedError, UnavailableError


def quoted(identifier: str) -> str:
    """An identifier as SQL spells it."""
    return '"' + identifier.replace('"', '""') + '"'


def select(trino_uri: str, sql: str) -> list[list[Any]]:
    """All rows of a query. Raises RefusedError with Trino's message, UnavailableError where it does not
    answer."""
    rows: list[list[Any]] = []
    with httpx.Client(
        headers={"X-Trino-User": "demo", "X-Trino-Source": "firn-demo"}, timeout=60.0, trust_env=False
    ) as http:
        answer = _send(http, "POST", f"{trino_uri}/v1/statement", sql)
        while True:
            if error := answer.get("error"):
                raise RefusedError(f"Trino: {error['message']} ({error.get('errorName')})")
            rows += answer.get("data", [])
            if not (following := answer.get("nextUri")):
                return rows
            answer = _send(http, "GET", following, None)


@stamina.retry(on=UnavailableError, attempts=5, timeout=30.0)
def _send(http: httpx.Client, method: str, uri: str, body: str | None) -> dict[str, Any]:
    try:
        response = http.request(method, uri, content=body)
        response.raise_for_status()
    except httpx.HTTPError as error:
        raise UnavailableError(f"Trino did not answer {method} {uri}: {error}") from error
    return dict(response.json())
