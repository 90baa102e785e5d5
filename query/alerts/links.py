"""Links to the rows that an alert is about: the search page with the query, the group, the window, and a pin
of the rows that there were."""

from urllib.parse import urlencode

from lake.tenant import TableId
from query.alerts.conditions import both
from query.alerts.rule import ErrorShareCondition, Rule
from query.alerts.transitions import Key
from query.alerts.windows import time_text

# A pin of very many ranges would make an address that servers refuse.
PIN_CHARACTERS_MAX = 4_000


def address_of(table: TableId, rule: Rule, values: Key, end: int, pin: str) -> dict[str, str]:
    """The parameters of the search page."""
    query = rule.query
    if isinstance(rule.condition, ErrorShareCondition):
        query = both(query, rule.condition.errors)
    for field, value in zip(rule.groups, values, strict=True):
        query = both(query, f"NOT {field}:*" if value is None else f"{field}:{_quoted(value)}")
    told = {
        "tenant": table.tenant.name,
        "stream": table.stream,
        "q": query,
        "from": time_text(end - rule.window),
        "to": time_text(end),
        "pin": pin if len(pin) <= PIN_CHARACTERS_MAX else "",
    }
    return {name: value for name, value in told.items() if value}


def link_to(pages_uri: str, address: dict[str, str]) -> str:
    """The search page at an address. `pages_uri`: where the front end is; empty: the address alone."""
    return f"{pages_uri.rstrip('/')}/?{urlencode(address)}"


def _quoted(value: str) -> str:
    escaped = "".join(f"\\{each}" if each in '\\"*?' else each for each in value)
    return f'"{escaped}"'
