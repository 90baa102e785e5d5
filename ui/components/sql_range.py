"""A range of time in a statement: `{from}` and `{to}` as Trino's expressions."""

import re

START, END = "{from}", "{to}"
_NOW = re.compile(r"now(?:(?P<sign>[+-])(?P<count>\d{1,9})(?P<unit>[smhdw]))?")
_TIME = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?)?(?:Z|[+-]\d\d:\d\d)?")
_MILLISECONDS = re.compile(r"\d{5,15}")
_UNITS = {"s": "SECOND", "m": "MINUTE", "h": "HOUR", "d": "DAY", "w": "DAY"}


def with_range(statement: str, start: str, end: str) -> str | None:
    """The statement over a range as the API's searches take it; None where a time is none of these."""
    for place, text in ((START, start), (END, end)):
        if place in statement:
            moment = _moment(text.strip())
            if moment is None:
                return None
            statement = statement.replace(place, moment)
    return statement


def _moment(text: str) -> str | None:
    """Nothing of the text but digits and what stands between those of a time gets into a statement."""
    if found := _NOW.fullmatch(text):
        if found["sign"] is None:
            return "current_timestamp"
        count = int(found["count"]) * (7 if found["unit"] == "w" else 1)
        return f"(current_timestamp {found['sign']} INTERVAL '{count}' {_UNITS[found['unit']]})"
    if _TIME.fullmatch(text):
        return f"from_iso8601_timestamp('{text.replace(' ', 'T')}')"
    if _MILLISECONDS.fullmatch(text):
        return f"from_unixtime({text} / 1000e0)"
    return None
