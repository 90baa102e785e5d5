"""How far ingestion is behind, asked of the ingesters over HTTP: maintenance stands back while it lags, but
never wholly."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import httpx
import structlog

from lake.settings import OptimizeSettings
from lake.tls import tls_context

ANSWER_S = 5.0
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Share:
    """The part of a round's budget that may be spent now, and why it is not all of it (empty: it is)."""

    share: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Lag:
    """`records`: not yet read from Kafka. `age_s`: how long the oldest record that no table has yet waits;
    None where nobody says."""

    records: int = 0
    age_s: float | None = None


def ingestion_lag(settings: OptimizeSettings, now: datetime) -> Lag | None:
    """The lag over all ingesters; None where none of them answers."""
    found: list[Lag] = []
    headers = (
        {"Authorization": f"Bearer {settings.lag.ingest_token.get_secret_value()}"}
        if settings.lag.ingest_token
        else {}
    )
    for uri in settings.lag.ingest_uris:
        try:
            response = httpx.get(
                f"{uri.rstrip('/')}/v1/status",
                headers=headers,
                timeout=ANSWER_S,
                verify=tls_context(),
                trust_env=False,
            )
            response.raise_for_status()
            found.append(lag_of(response.json(), now))
        except (httpx.HTTPError, ValueError, TypeError, KeyError, AttributeError) as error:
            log.info("optimize.ingester_does_not_answer", uri=uri, error=str(error))
    ages = [lag.age_s for lag in found if lag.age_s is not None]
    return Lag(sum(lag.records for lag in found), max(ages, default=None)) if found else None


def lag_of(status: Mapping[str, Any], now: datetime) -> Lag:
    """Reads a body of `/v1/status`. Raises ValueError, TypeError, KeyError where it is none.

    Records that are read and wait in the buffers for their flush are no lag: where the partitions tell how
    far reading is, that counts; `lag_records` counts from what is durable.
    """
    known = [
        p for p in status.get("partitions") or () if p.get("end") is not None and p.get("routed") is not None
    ]
    records = (
        sum(max(0, int(p["end"]) - int(p["routed"])) for p in known)
        if known
        else int(status.get("lag_records") or 0)
    )
    until = status.get("complete_until")
    return Lag(
        records, None if until is None else max(0.0, (now - datetime.fromisoformat(until)).total_seconds())
    )


def share_of(lag: Lag | None, settings: OptimizeSettings) -> Share:
    """The whole budget while ingestion keeps up (or cannot be asked); beyond its limits ever less, never
    below the floor."""
    if lag is None:
        return Share(1.0)
    shares = [Share(1.0)]
    if lag.records > settings.lag.records_max:
        shares.append(
            Share(
                settings.lag.records_max / lag.records,
                f"ingestion lags by {lag.records:,} records (limit {settings.lag.records_max:,})",
            )
        )
    if lag.age_s is not None and lag.age_s > settings.lag.age_max_s:
        reason = (
            f"the oldest record that is in no table yet waits for {lag.age_s:,.0f} s (limit "
            f"{settings.lag.age_max_s:,.0f})"
        )
        shares.append(Share(settings.lag.age_max_s / lag.age_s, reason))
    least = min(shares, key=lambda share: share.share)
    return Share(max(settings.lag.share_floor, least.share), least.reason)
