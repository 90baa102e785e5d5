"""What an event of a live tail has to hold to be shown; what another program has written or cut may not."""

from collections.abc import Mapping
from datetime import datetime

import orjson

from ui.event_stream import Event

UNREADABLE = "unreadable"
# What of it is kept, to be looked at.
KEPT_BYTES = 200
_TEXT, _TEXT_OR_NONE = (str,), (str, type(None))
# By kind: names, and the types that their values may have. Other kinds may hold what they like.
_NEEDED: Mapping[str, Mapping[str, tuple[type, ...]]] = {
    "record": {
        "timestamp": _TEXT,
        "severity": _TEXT_OR_NONE,
        "message": _TEXT_OR_NONE,
        "stream": _TEXT,
        "fields": (dict,),
    },
    "rejected": {"stream": _TEXT, "reason": _TEXT, "detail": _TEXT},
    "dropped": {"records": (int,)},
    "failed": {"message": _TEXT},
}


def checked(event: Event) -> Event:
    """The event, or the beginning of it as one that cannot be read."""
    return event if is_readable(event) else Event(UNREADABLE, event.data[:KEPT_BYTES])


def is_readable(event: Event) -> bool:
    """Whether it is a JSON object with what its kind needs."""
    if event.kind == "open":
        return True
    try:
        told = orjson.loads(event.data)
        if not isinstance(told, dict):
            return False
        if event.kind == "record":
            datetime.fromisoformat(told["timestamp"])
    except (ValueError, KeyError, TypeError):
        return False
    needed = _NEEDED.get(event.kind, {})
    return all(isinstance(told.get(name, told), kinds) for name, kinds in needed.items())
