"""Histograms from counts that are kept per file: the same numbers as by searching, and no file opened
twice."""

import random
import sqlite3
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from lake.severity import Level, level_of
from query.facets.file_counts import Counts, FileCounts
from query.files.file_index import LiveFile
from tests.query.support.log_table import LogTable

START = datetime(2026, 4, 5, 6, 0, tzinfo=UTC)
FILE = LiveFile("file:///a", 3, 10, 0, 1, None, None, None, None)


def test_counts_survive_a_restart(tmp_path: Path) -> None:
    """By minute and by hour, as they were kept; a damaged file is begun anew."""
    path = tmp_path / "counts.db"
    counts = FileCounts(path)
    counts.keep({FILE.uri: Counts(((59, Level.ERROR, 1), (60, Level.ERROR, 1), (61, Level.INFO, 1)))})
    counts.close()
    again = FileCounts(path)
    assert again.known([FILE], 60) == {
        FILE.uri: ((59, Level.ERROR, 1), (60, Level.ERROR, 1), (61, Level.INFO, 1))
    }
    assert dict(Counter(again.known([FILE], 3_600)[FILE.uri])) == {
        (0, Level.ERROR, 1): 1,
        (1, Level.ERROR, 1): 1,
        (1, Level.INFO, 1): 1,
    }
    again.close()
    path.write_bytes(b"no database" * 1000)
    assert FileCounts(path).known([FILE], 60) == {}


def test_the_oldest_counts_go_when_there_are_too_many(tmp_path: Path) -> None:
    """The file stays bounded."""
    counts = FileCounts(tmp_path / "counts.db", files_max=10)
    for at in range(30):
        counts.keep({f"file:///{at}": Counts(((at, Level.INFO, 1),))})
    with sqlite3.connect(tmp_path / "counts.db") as database:
        assert database.execute(
            "SELECT count(*), min(CAST(substr(uri, 9) AS INTEGER)) FROM counts"
        ).fetchone() == (10, 20)


@pytest.fixture(scope="module")
def noisy(catalog_client: Any) -> tuple[LogTable, list[dict[str, Any]]]:
    """Five hours in several files an hour, severities in every spelling."""
    table, r = LogTable(catalog_client, "noisy-of-count-tests"), random.Random(3)
    spellings = [
        "ERROR",
        "error",
        " Err ",
        '"warn"',
        "WARNING",
        "info",
        "INFO ",
        "6",
        "D",
        "fatal",
        "whatever",
        "",
        None,
        "İNFO",
    ]
    records = [
        {
            "timestamp": START
            + timedelta(seconds=r.randint(0, 5 * 3600 - 1), microseconds=r.randint(0, 999_999)),
            "severity": r.choice(spellings),
        }
        for _ in range(2_000)
    ]
    return table, table.append(records, rows_per_file=150)


def expected(
    rows: list[dict[str, Any]], start: datetime, end: datetime, width_s: int
) -> dict[str, dict[str, int]]:
    """Counted in plain Python."""
    buckets: dict[str, dict[str, int]] = {}
    for row in rows:
        if start <= row["timestamp"] < end:
            at = (
                datetime.fromtimestamp(int(row["timestamp"].timestamp()) // width_s * width_s, UTC)
                .isoformat()
                .replace("+00:00", "Z")
            )
            level = level_of(row["severity"]).value
            buckets.setdefault(at, {})[level] = buckets.setdefault(at, {}).get(level, 0) + 1
    return buckets


@pytest.mark.stack
@pytest.mark.parametrize(
    ("shift", "length", "width_s"),
    [
        (timedelta(), timedelta(hours=5), 3_600),
        (timedelta(), timedelta(hours=5), 300),
        (timedelta(minutes=17, seconds=3), timedelta(hours=3), 60),
        (timedelta(minutes=17, seconds=3, microseconds=7), timedelta(hours=3, minutes=8), 7_200),
        (timedelta(minutes=50), timedelta(minutes=20), 10),
        (timedelta(days=-2), timedelta(days=9), 86_400),
    ],
)
def test_the_counts_are_those_of_searching(
    api: httpx.Client,
    noisy: tuple[LogTable, list[dict[str, Any]]],
    shift: timedelta,
    length: timedelta,
    width_s: int,
) -> None:
    """By level, asked first and again, by both engines, with and without a filter that every row passes."""
    table, rows = noisy
    start, end = START + shift, START + shift + length
    body = {
        "tenant": table.tenant,
        "from": start.isoformat(),
        "to": end.isoformat(),
        "width_s": width_s,
        "by": "level",
    }
    wanted = expected(rows, start, end, width_s)
    for more in ({}, {}, {"engine": "trino"}, {"query": "_offset:>=0"}):
        answer = api.post("/v1/histogram", json={**body, **more}).json()
        assert {bucket["start"]: bucket["levels"] for bucket in answer["buckets"]} == wanted, more
        assert answer["rows"] == sum(sum(levels.values()) for levels in wanted.values())


@pytest.mark.stack
def test_no_file_is_opened_for_its_counts_twice(
    api: httpx.Client, log_table: Callable[..., LogTable]
) -> None:
    """The first histogram by level opens the files, the second none; a new file is the only one opened after
    it came."""
    table = log_table()
    records = [{"timestamp": START + timedelta(seconds=at), "severity": "info"} for at in range(600)]
    table.append(records, rows_per_file=100)
    body = {
        "tenant": table.tenant,
        "from": START.isoformat(),
        "to": (START + timedelta(hours=1)).isoformat(),
        "by": "level",
    }
    opened = [api.post("/v1/histogram", json=body).json()["scanned"]["files"] for _ in range(2)]
    table.append(records[:50])
    last = api.post("/v1/histogram", json=body).json()
    assert [*opened, last["scanned"]["files"]] == [6, 0, 1]
    assert (last["rows"], last["rows_counted_from_metadata"]) == (650, 600)
