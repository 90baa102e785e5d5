"""A row of the table `system.usage`: what one tenant used of one stream on one day, as one source tells it.

Two kinds of sources: `tables` tells what the tables themselves say of what came into them and what is stored;
each process of the search API, by its name, what searches it ran. Whoever wants a day's figures of a stream
adds the rows up. A row is told as often as there is something new; the last one counts.
"""

from dataclasses import dataclass

STREAM = "usage"
TABLES = "tables"  # no process is called so: their names have a hyphen
KEY = ("day", "tenant", "stream", "source")


@dataclass(frozen=True, slots=True)
class UsageRow:
    """`day`: UTC, like 2026-11-01. Empty `stream`: statements in SQL. None: not this source's to tell.

    `records`: rows that were committed on the day; `bytes_in`: of the values of the messages that came for
    them; `bytes_stored`: of the table's files when it was looked at last on the day.
    """

    day: str
    tenant: str
    stream: str
    source: str
    records: int | None = None
    bytes_in: int | None = None
    bytes_stored: int | None = None
    searches: int | None = None
    search_seconds: float | None = None
    search_bytes: int | None = None
