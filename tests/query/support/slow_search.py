"""A table whose searches take as long as a test wants: many texts, and patterns that every text nearly
matches, so that no index and no test for a part of them helps."""

import itertools
import secrets
from datetime import UTC, datetime, timedelta

from lake.catalog_client import CatalogClient
from tests.query.support.log_table import LogTable, fresh_tenant

HOURS, ROWS_PER_HOUR = 60, 40
QUICK_HOURS = 30  # the newest hours have short texts: their rows come soon
# How often the words stand in the texts of the others: for searches that are ended, and for those that run to
# their end.
MANY_WORDS, SOME_WORDS = 2_400, 400
START = datetime(2026, 6, 1, tzinfo=UTC)
RANGE = {"from": START.isoformat(), "to": (START + timedelta(hours=HOURS)).isoformat()}
WORDS = ("lorem", "ipsum", "dolor", "sitam", "conse", "adipi", "sedeu", "temor", "incid", "labor", "magna")
RARE = "needle"
PATTERNS = {"duckdb": 7, "trino": 0}  # over texts of some words: seconds
ENDLESS = 50  # over texts of many: 20 s with DuckDB on two quiet cores, minutes with Trino


def slow_table(catalog: CatalogClient, words: int = MANY_WORDS) -> LogTable:
    """A file for each hour; the last row of each holds the rare word. `words`: how often all of them stand in
    a long text."""
    table = LogTable(catalog, fresh_tenant("slow"))
    short = f"{' '.join(WORDS)} "
    table.append(
        [
            {
                "timestamp": START + timedelta(hours=hour, seconds=at),
                "message": f"{RARE if at == ROWS_PER_HOUR - 1 else 'hay'} {hour} {at} "
                + short * (1 if hour >= HOURS - QUICK_HOURS else words),
            }
            for hour, at in itertools.product(range(HOURS), range(ROWS_PER_HOUR))
        ]
    )
    return table


def fresh_mark() -> str:
    """A word that nobody else searches. Of digits, because SQL spells letters in both cases."""
    return str(10**15 + secrets.randbelow(10**15))


def slow_query(patterns: int, mark: str = "nowhere") -> str:
    """Finds the rows with the rare word, after so many patterns over each text (`PATTERNS` has how many take
    some seconds). `mark`: a word that makes the query known (`fresh_mark`)."""
    words = itertools.islice(itertools.permutations(WORDS, 3), patterns)
    sought = [f"*{'*'.join(each)}*" for each in words]
    return f"message:({' OR '.join([*sought, RARE, mark])})"
