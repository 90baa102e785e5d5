"""What a search says of the lag, whoever answers or not."""

from datetime import UTC, datetime, timedelta

import httpx
import pytest

from lake.catalog_client import TableName
from query.model.table_view import table_id, view_of
from query.search import lag as lags
from query.search.completeness import Completeness, Freshness, assess
from query.search.lag import IngestLag

NOW = datetime(2026, 9, 1, 12, tzinfo=UTC)
TABLE = table_id("acme", "logs")
EVERYTHING = {"lag_records": 0, "complete_until": NOW.isoformat()}
# A table with one snapshot.
METADATA = {
    "table-uuid": "6b1e6b1e-0000-4000-8000-000000000001",
    "location": "file:///w/acme/logs",
    "current-schema-id": 0,
    "schemas": [{"schema-id": 0, "type": "struct", "fields": []}],
    "partition-specs": [],
    "current-snapshot-id": 1,
    "snapshots": [
        {"snapshot-id": 1, "timestamp-ms": 1, "manifest-list": "file:///w/acme/logs/1.avro", "summary": {}}
    ],
}


def _assess(source: IngestLag, end: datetime) -> Completeness:
    view = view_of(TABLE, TableName("acme", "logs"), METADATA)
    return assess(
        end, NOW, Freshness(None, None, None, source.of(TABLE)), stopped=None, view=view, pin=None, rows=None
    )


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[httpx.Response]:
    """What ingest answers next, the last one again and again."""
    given: list[httpx.Response] = []

    def get(_client: httpx.Client, _path: str) -> httpx.Response:
        return given.pop(0) if len(given) > 1 else given[0]

    monkeypatch.setattr(httpx.Client, "get", get)
    monkeypatch.setattr(lags, "KEPT_S", 0.0)
    return given


def test_an_ingest_that_does_not_answer_leaves_what_is_newer_in_doubt(answers: list[httpx.Response]) -> None:
    """An answer is called complete up to where ingestion was known to be, and no further."""
    answers += [httpx.Response(200, json=EVERYTHING), httpx.Response(503)]
    source = IngestLag("http://127.0.0.1:1")
    assert _assess(source, NOW + timedelta(milliseconds=1)).complete
    doubtful = _assess(source, NOW + timedelta(milliseconds=1))
    assert not doubtful.complete
    assert "ingest does not answer" in doubtful.reasons[0]
    assert "everything up to 2026-09-01T12:00:00Z is in" in doubtful.reasons[0]
    assert _assess(source, NOW).complete


def test_an_ingest_that_never_answered_leaves_all_in_doubt(answers: list[httpx.Response]) -> None:
    """Also where it speaks of something else."""
    answers += [httpx.Response(200, json={"error": "no"})]
    assert not _assess(IngestLag("http://127.0.0.1:1"), NOW - timedelta(days=1)).complete
