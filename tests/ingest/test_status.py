"""The status as people and machines see it, from what Kafka, the catalog and the node have said."""

import io
from datetime import UTC, datetime, timedelta
from typing import Any

from rich.console import Console

from ingest.group_lag import GroupLag, PartitionLag
from ingest.kafka_reader import KafkaPartition
from ingest.status import Status, to_renderable

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
LAG = GroupLag(
    [
        PartitionLag(KafkaPartition("logs", "id", 0), 40, 100, 60, NOW - timedelta(minutes=5), False),
        PartitionLag(KafkaPartition("logs", "id", 1), None, 7, 7, NOW - timedelta(minutes=1), True),
    ],
    ["absent"],
    NOW - timedelta(minutes=5),
)
NODE: dict[str, Any] = {
    "role": "active",
    "ready": True,
    "buffered_bytes": 2_000_000,
    "buffered_tables": 3,
    "breakers": [{"table": "acme.logs", "reason": "storage", "sentence": "no space"}],
    "second_writers": [{"writer": "host:1", "table": "acme.logs"}],
    "postponed_tables": 4,
    "parked": [{"table": "sick.logs", "reason": "storage", "since": "2026-11-21T11:00:00", "stage": "draining", "sentence": "cannot write"}],
    "partitions": [{"topic": "logs", "partition": 0, "routed": 90}],
}
COMMITS = {"acme": NOW - timedelta(seconds=3), "quiet": NOW - timedelta(minutes=50)}


def _text(status: Status) -> str:
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(to_renderable(status))
    return console.export_text()


def test_json_has_what_search_and_maintenance_ask_for() -> None:
    """Lag in records, completeness, parked tables by name, and how far the node has routed; where nobody knows, up to the group's offset."""
    told = Status(NOW, LAG, NODE, {"sick.logs": "storage"}, COMMITS).to_json()
    assert (told["lag_records"], told["complete_until"], told["parked"]) == (67, "2026-11-21T11:55:00.000Z", {"sick.logs": "storage"})
    assert [part["routed"] for part in told["partitions"]] == [90, 0]
    assert (told["recreated_topics"], told["missing_topics"], told["breakers"]) == (["logs"], ["absent"], NODE["breakers"])
    assert [(each["tenant"], each["age_s"]) for each in told["freshness"]["stalest"]] == [("quiet", 3000.0), ("acme", 3.0)]


def test_terminal_shows_what_needs_attention() -> None:
    """The most lagging partition first, what is re-created, failing, written by another, postponed, parked and why."""
    shown = _text(Status(NOW, LAG, NODE, {"sick.logs": "storage"}, COMMITS))
    for told in ("67 records", "300 s ago", "re-created: run reset-topic", "1 tables failing: acme.logs (storage)", "host:1 writes acme.logs too"):
        assert told in shown
    for told in ("4 new tables wait", "draining", "cannot write", "quiet", "absent", "2.0 MB of 3 tables"):
        assert told in shown


def test_silence_is_told_apart_from_good_news() -> None:
    """Without a node, without a catalog that keeps such lists, nothing is made up."""
    status = Status(NOW, LAG, None, None, None)
    told = status.to_json()
    assert (told["node"], told["parked"], told["freshness"]) == (None, None, None)
    assert "does not answer" in _text(status)
    assert "which tables are parked is not known" in _text(status)
