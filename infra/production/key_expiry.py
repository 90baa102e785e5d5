"""Whether the catalog keys that the rooms have been given stay in force."""

from collections.abc import Iterator
from datetime import datetime, timedelta

import httpx

from infra.production.finding import Finding, ok, unknown, unsafe, warning
from infra.production.rooms import Rooms, text
from lake.clock import SYSTEM_CLOCK, moment_of
from lake.extras_client import WHOAMI_PATH
from lake.tls import tls_context

NAME = "keys"
ANSWER_S = 10.0
SOON = timedelta(days=14)


def look(rooms: Rooms) -> Iterator[Finding]:
    """Asks the catalog with each room's key when it ends."""
    now = SYSTEM_CLOCK.now()
    for name, access in (
        ("ingest", rooms.ingest.catalog),
        ("optimize", rooms.optimize.catalog),
        ("query", rooms.query.catalog),
    ):
        key = text(access.token)
        if key is None:
            continue
        headers, uri = {"Authorization": f"Bearer {key}"}, f"{access.uri.rstrip('/')}{WHOAMI_PATH}"
        answer = httpx.get(uri, headers=headers, timeout=ANSWER_S, verify=tls_context())
        if answer.status_code == httpx.codes.OK:
            yield judge(name, answer.json()["expires-ms"], now)
        elif answer.status_code == httpx.codes.UNAUTHORIZED:
            yield unsafe(NAME, f"the catalog refuses the key of {name}; give it one that is in force")
        else:
            yield unknown(NAME, f"the catalog answers {answer.status_code} when asked for the key of {name}")


def judge(room: str, expires_ms: int | None, now: datetime) -> Finding:
    """`expires_ms`: when the key, or its former secret, ends, in ms since 1970; None: never."""
    if expires_ms is None:
        return ok(NAME, f"the key of {room} does not expire")
    end = moment_of(expires_ms)
    if end > now + SOON:
        return ok(NAME, f"the key of {room} expires on {end:%Y-%m-%d}")
    return warning(
        NAME,
        f"the key of {room} expires on {end:%Y-%m-%d %H:%M} UTC; give it the new secret that",
        "`python -m catalog key rotate ID --expires 365d` makes",
    )
