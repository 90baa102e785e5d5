"""Whether machines agree on the time: signatures of S3, tokens and the end of keys are compared with it."""

from collections.abc import Iterator
from datetime import datetime
from email.utils import parsedate_to_datetime

import httpx

from infra.production.finding import Finding, ok, unknown, unsafe, warning
from infra.production.rooms import Rooms
from lake.clock import SYSTEM_CLOCK, Clock
from lake.tls import tls_context

NAME = "clocks"
ANSWER_S = 10.0
# HTTP tells whole seconds.
WARNING_S, UNSAFE_S = 5.0, 60.0


def look(rooms: Rooms, clock: Clock = SYSTEM_CLOCK) -> Iterator[Finding]:
    """Asks each service for its time, as HTTP tells it."""
    addresses = {rooms.ingest.catalog.uri, rooms.query.trino.uri, rooms.storage.s3.endpoint or ""}
    for address in sorted(addresses - {""}):
        began = clock.now()
        answer = httpx.get(address, timeout=ANSWER_S, verify=tls_context())
        yield judge(address, answer.headers.get("date"), began + (clock.now() - began) / 2)


def judge(address: str, told: str | None, now: datetime) -> Finding:
    """`told`: the header Date, `now`: this machine's time when it was written."""
    if told is None:
        return unknown(NAME, f"{address} does not tell its time; compare it by hand")
    away_s = abs((parsedate_to_datetime(told) - now).total_seconds())
    if away_s <= WARNING_S:
        return ok(NAME, f"{address} and this machine agree within {WARNING_S:.0f} s")
    tell = unsafe if away_s > UNSAFE_S else warning
    return tell(NAME, f"the clock of {address} is {away_s:.0f} s away from this one; run NTP on both")
