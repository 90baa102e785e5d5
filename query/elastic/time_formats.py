"""Times in answers, as Java's patterns write them."""

import re
from datetime import UTC, datetime, tzinfo

from lake.clock import epoch_us
from query.elastic.elastic_error import unsupported

_PATTERN = re.compile(r"'(?P<text>[^']*)'|(?P<letters>([A-Za-z])\3*)|(?P<mark>[^A-Za-z'])")
_NAMED = frozenset({"", "strict_date_optional_time", "date_optional_time", "strict_date_time", "date_time"})
_DATES = {"date": "%Y-%m-%d", "strict_date": "%Y-%m-%d", "basic_date": "%Y%m%d"}
_LETTERS = {
    "yyyy": "%Y",
    "uuuu": "%Y",
    "yy": "%y",
    "MM": "%m",
    "MMM": "%b",
    "dd": "%d",
    "HH": "%H",
    "mm": "%M",
    "ss": "%S",
    "EEE": "%a",
}


def time_text(at: datetime, form: str = "", zone: tzinfo = UTC) -> str:
    """A time as a request wants it; the first of several forms. Raises ElasticError for one that is not
    known."""
    first, local = form.partition("||")[0], at.astimezone(zone)
    if first == "epoch_millis":
        return str(epoch_us(at) // 1_000)
    if first == "epoch_second":
        return str(epoch_us(at) // 1_000_000)
    if first == "strict_date_optional_time_nanos":
        return local.isoformat(timespec="microseconds").replace("+00:00", "Z")
    if first in _NAMED:
        return local.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if first in _DATES:
        return local.strftime(_DATES[first])
    return "".join(_part(found, local, first) for found in _PATTERN.finditer(first))


def _part(found: re.Match[str], at: datetime, form: str) -> str:
    letters = found["letters"]
    if letters is None:
        return found["mark"] or found["text"] or "'"
    if letters in _LETTERS:
        return at.strftime(_LETTERS[letters])
    if set(letters) == {"S"} and len(letters) <= 6:
        return f"{at.microsecond:06d}"[: len(letters)]
    if letters in ("X", "XX", "XXX", "Z", "ZZ", "ZZZZZ"):
        text = at.isoformat(timespec="seconds")[19:]
        return "Z" if text == "+00:00" and letters[0] == "X" else text
    if letters == "T":
        return letters
    raise unsupported(f"format: {form[:60]}", f"its {letters[:20]} is not known here")
