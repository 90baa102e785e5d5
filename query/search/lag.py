"""How far ingestion is behind, asked of ingest over HTTP and remembered for a moment."""

import threading
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Protocol

import httpx

from lake.clock import SYSTEM_CLOCK, Clock
from lake.tenant import TableId
from lake.tls import tls_context
from query.model.instant import parse_period

KEPT_S = 2.0
TIMEOUT_S = 2.0
USUAL_FLUSHES = 2


@dataclass(frozen=True, slots=True)
class Lag:
    """`records`: not yet in tables, all topics together; None: ingest does not answer. `complete_until`: what
    reached Kafka before is in; None: unknown. `is_usual`: that is no longer ago than it may be while nothing
    is wrong, twice the time within which every table is flushed.

    `is_told` False: the records are of all tenants, and who asks is one of them; how many there are is not
    for them.
    """

    records: int | None
    complete_until: datetime | None = None
    parked_reason: str | None = None
    is_told: bool = True
    is_usual: bool = False


class LagSource(Protocol):
    """Whoever knows the lag."""

    def of(self, table: TableId) -> Lag | None:
        """None: there is nobody to ask."""


class UnknownLag:
    """Where no ingest is configured."""

    def of(self, table: TableId) -> Lag | None:  # noqa: ARG002 - the protocol's
        return None


class UntoldLag:
    """The lag for the key of one tenant: whether there is any, and not how much."""

    def __init__(self, source: LagSource) -> None:
        self._source = source

    def of(self, table: TableId) -> Lag | None:
        known = self._source.of(table)
        return None if known is None else replace(known, is_told=False)


class IngestLag:
    """Asks ingest's /v1/status, at most every two seconds."""

    def __init__(self, uri: str, token: str | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._http = httpx.Client(
            base_url=uri.rstrip("/"),
            headers=headers,
            timeout=TIMEOUT_S,
            verify=tls_context(),
            trust_env=False,
        )
        self._lock = threading.Lock()
        self._asked_s = -KEPT_S
        self._status: dict[str, Any] | None = None
        self._complete_until: datetime | None = None  # as last heard: what is in stays in

    def of(self, table: TableId) -> Lag:
        status = self.status() or {}
        records, parked = status.get("lag_records"), status.get("parked")
        until, now = (_moment(status.get(name)) for name in ("complete_until", "now"))
        self._complete_until = until or self._complete_until
        reason = parked.get(str(table)) if isinstance(parked, dict) else None
        flush_s = status.get("flush_interval_s")
        is_usual = (
            isinstance(records, int)
            and until is not None
            and now is not None
            and isinstance(flush_s, int | float)
            and now - until <= timedelta(seconds=USUAL_FLUSHES * flush_s)
        )
        return Lag(
            records if isinstance(records, int) else None, self._complete_until, reason, is_usual=is_usual
        )

    def status(self) -> dict[str, Any] | None:
        """What ingest says of itself; None where it does not answer."""
        with self._lock:
            if self._clock.monotonic_s() - self._asked_s < KEPT_S:
                return self._status
            try:
                answer = self._http.get("/v1/status")
                self._status = answer.json() if answer.is_success else None
            except (httpx.HTTPError, ValueError):
                self._status = None
            self._asked_s = self._clock.monotonic_s()
            return self._status


def _moment(text: object) -> datetime | None:
    period = parse_period(text) if isinstance(text, str) else None
    return period.start if period else None
