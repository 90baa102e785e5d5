"""How long API keys are in force."""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from catalog.access.access import Principal
from catalog.model.error_response import bad_request
from lake.clock import epoch_ms

Listed = Mapping[str, Any]  # a key of `keys.list_keys`
NEVER = "never"
OVERLAP = "24h"
SOON_MS = 14 * 86_400_000
LONGEST_S = 100 * 365 * 86_400
SECONDS = {"m": 60, "h": 3_600, "d": 86_400}
MONTH_MS = 30 * 86_400_000
_INSTANT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9:.]{5,15}(Z|[+-][0-9]{2}:[0-9]{2})?)?")
_SPAN = re.compile(r"([0-9]{1,9})([mhd])")


class State(StrEnum):
    """How a key stands. `OVERLAP`: it was rotated, and its former secret is in force as well."""

    IN_FORCE = "in force"
    OVERLAP = "in force with two secrets"
    EXPIRED = "expired"
    REVOKED = "revoked"


def end_of(expires: str | None, now_ms: int, *, default_s: float) -> int | None:
    """When a key ends whose maker said `90d`, `12h`, `30m`, an instant (RFC 3339, or a day; UTC unless it
    says otherwise), `never`, or nothing (then `default_s`; 0: never). Raises CatalogError 400."""
    if expires is None:
        return now_ms + int(default_s * 1_000) if default_s else None
    if expires == NEVER:
        return None
    span_ms = _span_ms(expires)
    end_ms = _instant_ms(expires) if span_ms is None else now_ms + span_ms
    if end_ms is None or not now_ms < end_ms <= now_ms + LONGEST_S * 1_000:
        raise bad_request(
            "a key expires after a time like 90d, 12h or 30m, at a time to come like 2027-01-31 or "
            f"2027-01-31T12:00Z, or never; {expires[:50]!r} is none"
        )
    return end_ms


def overlap_of(overlap: str) -> int:
    """For how many ms a former secret stays in force whose rotation said `24h` or `0` (not at all). Raises
    CatalogError 400."""
    span_ms = 0 if overlap == "0" else _span_ms(overlap)
    if span_ms is None or span_ms > MONTH_MS:
        raise bad_request(
            "the former secret stays in force for a time like 24h, at most 30d, or 0; "
            f"{overlap[:50]!r} is none"
        )
    return span_ms


def span_of(text: str) -> int:
    """The ms of a time like 90d, 12h or 30m. Raises CatalogError 400."""
    span_ms = _span_ms(text)
    if span_ms is None:
        raise bad_request(f"write a time like 90d, 12h or 30m; {text[:50]!r} is none")
    return span_ms


def _span_ms(text: str) -> int | None:
    found = _SPAN.fullmatch(text)
    return int(found[1]) * SECONDS[found[2]] * 1_000 if found else None


def _instant_ms(text: str) -> int | None:
    if not _INSTANT.fullmatch(text):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return epoch_ms(moment if moment.tzinfo else moment.replace(tzinfo=UTC))


def day(expires_ms: int) -> str:
    """A key's end as people write it."""
    return datetime.fromtimestamp(expires_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M UTC")


def expired(holder: Principal) -> str:
    """What the holder of a secret is told whose time is over."""
    end = day(holder.expires_ms or 0)
    if holder.by_former_secret:
        return f"the former secret of key {holder.key_id} expired on {end}; use the one that replaced it"
    return (
        f"key {holder.key_id} expired on {end}; an administrator makes a new one with `python -m catalog key "
        "create`"
    )


def is_in_force(key: Listed, now_ms: int) -> bool:
    """Whether a key of `keys.list_keys` lets anybody in."""
    return state_of(key, now_ms) in (State.IN_FORCE, State.OVERLAP)


def state_of(key: Listed, now_ms: int) -> State:
    """How a listed key stands."""
    if key["revoked-ms"] is not None:
        return State.REVOKED
    if key["expires-ms"] is not None and key["expires-ms"] <= now_ms:
        return State.EXPIRED
    return State.OVERLAP if (key["former-secret-until-ms"] or 0) > now_ms else State.IN_FORCE


def expires_within(key: Listed, now_ms: int, span_ms: int) -> bool:
    """Whether a listed key is in force and will have ended some time from now."""
    end_ms = key["expires-ms"]
    return is_in_force(key, now_ms) and end_ms is not None and end_ms <= now_ms + span_ms


def unused_for(key: Listed, now_ms: int, span_ms: int) -> bool:
    """Whether a listed key is in force and nobody has used it for some time, or since it was made."""
    since_ms = max(key["created-ms"], key["last-used-ms"] or 0)
    return is_in_force(key, now_ms) and since_ms <= now_ms - span_ms


def warnings(keys: Sequence[Listed], now_ms: int) -> Iterator[str]:
    """What an administrator should know about the keys of `keys.list_keys`, a sentence each."""
    endless = [key["id"] for key in keys if key["expires-ms"] is None and is_in_force(key, now_ms)]
    if endless:
        yield (
            f"{len(endless)} keys never expire ({', '.join(endless)}); replace them by keys made with "
            "--expires where you can"
        )
    for key in keys:
        if expires_within(key, now_ms, SOON_MS):
            yield f"key {key['id']} expires on {day(key['expires-ms'])}; make its holder a new one"
