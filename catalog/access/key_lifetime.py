"""How long API keys are in force."""

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from catalog.model.error_response import bad_request

NEVER = "never"
SOON_MS = 14 * 86_400_000
LONGEST_S = 100 * 365 * 86_400
SECONDS = {"m": 60, "h": 3_600, "d": 86_400}
_SPAN = re.compile(r"([0-9]{1,9})([mhd])")


def end_of(expires: str | None, now_ms: int, *, default_s: float) -> int | None:
    """When a key ends whose maker said `90d`, `12h`, `30m`, `never`, or nothing (then `default_s`; 0: never).
    Raises CatalogError 400."""
    if expires is None:
        return now_ms + int(default_s * 1_000) if default_s else None
    if expires == NEVER:
        return None
    found = _SPAN.fullmatch(expires)
    span_s = int(found[1]) * SECONDS[found[2]] if found else 0
    if not 0 < span_s <= LONGEST_S:
        raise bad_request(
            f"a key expires after a time like 90d, 12h or 30m, or never; {expires[:50]!r} is none"
        )
    return now_ms + span_s * 1_000


def day(expires_ms: int) -> str:
    """A key's end as people write it."""
    return datetime.fromtimestamp(expires_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M UTC")


def expired(key_id: str, expires_ms: int) -> str:
    """What the holder of a key is told whose time is over."""
    return (
        f"key {key_id} expired on {day(expires_ms)}; an administrator makes a new one with `python -m "
        "catalog key create`"
    )


def warnings(keys: Sequence[dict[str, Any]], now_ms: int) -> Iterator[str]:
    """What an administrator should know about the keys of `access.list_keys`, a sentence each."""
    in_force = [
        key
        for key in keys
        if key["revoked-ms"] is None and (key["expires-ms"] is None or key["expires-ms"] > now_ms)
    ]
    if endless := [key["id"] for key in in_force if key["expires-ms"] is None]:
        yield (
            f"{len(endless)} keys never expire ({', '.join(endless)}); replace them by keys made with "
            "--expires where you can"
        )
    for key in in_force:
        if key["expires-ms"] is not None and key["expires-ms"] <= now_ms + SOON_MS:
            yield f"key {key['id']} expires on {day(key['expires-ms'])}; make its holder a new one"
