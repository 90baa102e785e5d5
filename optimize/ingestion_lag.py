"""How far ingestion is behind, asked of the ingesters over HTTP: maintenance stands back while it lags, but never wholly."""

from collections.abc import Sequence
from dataclasses import dataclass

import httpx
import structlog

from lake.settings import OptimizeSettings

ANSWER_S = 5.0
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Share:
    """The part of a round's budget that may be spent now, and why it is not all of it (empty: it is)."""

    share: float
    reason: str = ""


def lag_records(uris: Sequence[str]) -> int | None:
    """Records in Kafka that no ingester has read yet; None where none of them answers."""
    lag, answered = 0, False
    for uri in uris:
        try:
            response = httpx.get(f"{uri.rstrip('/')}/v1/status", timeout=ANSWER_S, trust_env=False)
            response.raise_for_status()
            partitions = response.json().get("partitions", [])
        except (httpx.HTTPError, ValueError) as error:
            log.info("optimize.ingester_does_not_answer", uri=uri, error=str(error))
            continue
        answered = True
        lag += sum(max(0, (p.get("end") or 0) - (p.get("routed") or 0)) for p in partitions if p.get("end") is not None)
    return lag if answered else None


def share_of(lag: int | None, settings: OptimizeSettings) -> Share:
    """The whole budget while ingestion keeps up (or cannot be asked); beyond `lag_records_max` ever less, never below the floor."""
    if lag is None or lag <= settings.lag_records_max:
        return Share(1.0)
    share = max(settings.lag_share_floor, settings.lag_records_max / lag)
    return Share(share, f"ingestion lags by {lag:,} records (limit {settings.lag_records_max:,})")
