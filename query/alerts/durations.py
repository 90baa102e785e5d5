"""Lengths of time as rules write them: `30s`, `5m`, `2h`, `7d`."""

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer

_WRITTEN = re.compile(r"(?P<count>\d{1,6})\s*(?P<unit>[smhd])")
_UNIT_S = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}


def seconds_of(given: Any) -> int:
    """Reads a length of time, in seconds; a whole number is seconds already. Raises ValueError."""
    if isinstance(given, int) and not isinstance(given, bool):
        return given
    match = _WRITTEN.fullmatch(given.strip()) if isinstance(given, str) else None
    if match is None:
        raise ValueError(f"{str(given)[:40]!r} is no length of time; write 30s, 5m, 2h or 7d")
    return int(match["count"]) * _UNIT_S[match["unit"]]


def spell(seconds: int) -> str:
    """Writes a length of time in the largest unit that it is a multiple of."""
    unit = next(
        each for each, unit_s in _UNIT_S.items() if seconds % unit_s == 0 and (seconds or unit_s == 1)
    )
    return f"{seconds // _UNIT_S[unit]}{unit}"


Seconds = Annotated[int, BeforeValidator(seconds_of), PlainSerializer(spell, return_type=str)]
