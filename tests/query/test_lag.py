"""What a search says of the lag, whoever answers or not."""

from datetime import UTC, datetime, timedelta
from typing import Any

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
FLUSH_S = 10.0
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


def _assess(source: IngestLag, end: datetime, stopped: str | None = None) -> Completeness:
    view = view_of(TABLE, TableName("acme", "logs"), METADATA)
    freshness = Freshness(None, None, None, source.of(TABLE))
    return assess(end, NOW, freshness, stopped=stopped, view=view, pin=None, rows=None)


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


def behind_by(age_s: float, **more: Any) -> httpx.Response:
    """Ingest whose oldest waiting record is so old."""
    until = NOW - timedelta(seconds=age_s)
    told = {"lag_records": 5, "complete_until": until.isoformat(), "now": NOW.isoformat(), **more}
    return httpx.Response(200, json={"flush_interval_s": FLUSH_S, **told})


@pytest.mark.parametrize(("age_s", "usual"), [(0.5, True), (2 * FLUSH_S, True), (2 * FLUSH_S + 0.001, False)])
def test_records_that_wait_for_their_flush_are_as_usual(
    answers: list[httpx.Response], age_s: float, usual: bool
) -> None:
    """Until twice the flush interval nothing is wrong; the answer says all the same that it is not complete,
    and up to where it is."""
    answers.append(behind_by(age_s))
    found = _assess(IngestLag("http://127.0.0.1:1"), NOW)
    assert (found.complete, found.as_usual) == (False, usual)
    assert "ingestion is 5 records behind (everything up to" in found.reasons[0]
    over = _assess(IngestLag("http://127.0.0.1:1"), NOW - timedelta(minutes=1))
    assert (over.complete, over.as_usual, over.reasons) == (True, True, ())


@pytest.mark.parametrize(
    "ill",
    [
        behind_by(1.0, parked={"acme.logs": "storage"}),
        behind_by(1.0, flush_interval_s=None),
        behind_by(1.0, now=None),
        behind_by(1.0, lag_records=None),
        httpx.Response(503),
    ],
    ids=["parked", "an ingest that says no interval", "nor its time", "nor the lag", "no answer"],
)
def test_what_is_wrong_or_not_known_is_never_as_usual(
    answers: list[httpx.Response], ill: httpx.Response
) -> None:
    """Also just after everything was well."""
    answers += [behind_by(1.0), ill]
    source = IngestLag("http://127.0.0.1:1")
    assert _assess(source, NOW).as_usual
    found = _assess(source, NOW)
    assert (found.complete, found.as_usual) == (False, False)


def test_an_early_end_is_not_as_usual_however_fresh_the_table_is(answers: list[httpx.Response]) -> None:
    """A limit takes rows away that are there."""
    answers.append(behind_by(1.0))
    found = _assess(IngestLag("http://127.0.0.1:1"), NOW, stopped="a limit")
    assert (len(found.reasons), found.as_usual) == (2, False)


def test_an_ingest_that_never_answered_leaves_all_in_doubt(answers: list[httpx.Response]) -> None:
    """Also where it speaks of something else."""
    answers += [httpx.Response(200, json={"error": "no"})]
    assert not _assess(IngestLag("http://127.0.0.1:1"), NOW - timedelta(days=1)).complete
