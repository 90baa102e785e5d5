"""What a tenant may use: as its namespace says, else as the lake says, else what the rooms' settings say.

A namespace says it by properties `firn.limits.<name>`, which Firn's catalog takes from keys that are bound to
no namespace, and only where they can be read. For the lake the catalog does, by its settings `limits.*`,
which it tells with its configuration under the same names. The value is a whole number, or `none`: what is
more general does not count.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from lake.retention import Level
from lake.tenant import SYSTEM_TENANT

PREFIX = "firn.limits."
NONE = "none"
DIGITS_MAX = 15
PERCENT_MAX = 100


class Limit(StrEnum):
    """What is limited, as properties and settings call it."""

    RECORDS_PER_S = "records_per_s"
    BYTES_PER_S = "bytes_per_s"
    STREAMS = "streams"
    COLUMNS = "columns"
    MEMORY_PERCENT = "memory_percent"
    SEARCHES_AT_ONCE = "searches_at_once"
    SEARCH_S_PER_DAY = "search_s_per_day"
    SEARCH_BYTES_PER_DAY = "search_bytes_per_day"
    EXPORTS = "exports"
    ALERT_RULES = "alert_rules"

    @property
    def property(self) -> str:
        """The name of its property."""
        return PREFIX + self.value


MEANING: Mapping[Limit, str] = {
    Limit.RECORDS_PER_S: "messages of one tenant a second, counted by the minute, that one worker takes",
    Limit.BYTES_PER_S: "bytes of these messages a second, counted by the minute, that one worker takes",
    Limit.STREAMS: "streams of one tenant, beyond which no new one begins",
    Limit.COLUMNS: "columns of each table of one tenant; further fields of its records are in _overflow",
    Limit.MEMORY_PERCENT: (
        "percent of flush.buffer_bytes_max that may wait for tables of one tenant; beyond, they are flushed"
    ),
    Limit.SEARCHES_AT_ONCE: "requests of one tenant to the search API, and statements, that run at once",
    Limit.SEARCH_S_PER_DAY: "seconds that the searches of one tenant may take together in a day (UTC)",
    Limit.SEARCH_BYTES_PER_DAY: "bytes of files that the searches of one tenant may read in a day (UTC)",
    Limit.EXPORTS: "exports that are kept of one tenant",
    Limit.ALERT_RULES: "rules of alerts that are kept of one tenant",
}


@dataclass(frozen=True, slots=True)
class Bound:
    """How much, and who says so. `most`: None is without a limit. `level`: None where nobody says
    anything."""

    most: int | None = None
    level: Level | None = None


UNBOUND = Bound()


def parse_limit(text: str) -> int | None:
    """Returns the number that a limit is, None of `none`. Raises ValueError."""
    spelled = text.strip().lower()
    if spelled == NONE:
        return None
    if not (spelled.isascii() and spelled.isdigit() and len(spelled) <= DIGITS_MAX and int(spelled) > 0):
        raise ValueError(f"{text[:40]!r} is none; write a whole number above 0, or {NONE}")
    return int(spelled)


def spell_limit(most: int | None) -> str:
    """Returns a limit as it is written into properties."""
    return NONE if most is None else str(most)


def check_limits(properties: Mapping[str, str]) -> None:
    """Raises ValueError, with the property, where one of them limits nothing that there is, or is none."""
    for name in filter(is_limit, properties):
        try:
            Limit(name.removeprefix(PREFIX))
        except ValueError:
            known = ", ".join(limit.property for limit in Limit)
            raise ValueError(f"{name!r:.80} limits nothing; there are {known}") from None
        try:
            most = parse_limit(properties[name])
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
        if name == Limit.MEMORY_PERCENT.property and most is not None and most > PERCENT_MAX:
            raise ValueError(f"{name}: {most} percent is more than there is; write {NONE} for no limit")


def is_limit(name: str) -> bool:
    """Whether a property is of a limit, be it one that there is or not."""
    return name.startswith(PREFIX)


def limits_of(namespace: str, of_tenant: Mapping[str, str], of_lake: Mapping[str, str]) -> dict[Limit, Bound]:
    """Returns what holds of all limits that a tenant, by its namespace, or the lake says anything about. What
    cannot be read, as in another catalog, says nothing; nor does the lake of Firn's own tenant, so that no
    event of the audit trail is over a limit that is meant for others."""
    found = {}
    said = [(Level.TENANT, of_tenant)]
    if namespace != SYSTEM_TENANT.namespace:
        said.append((Level.LAKE, of_lake))
    for limit in Limit:
        for level, properties in said:
            try:
                found[limit] = Bound(parse_limit(properties[limit.property]), level)
            except (KeyError, ValueError):
                continue
            break
    return found
