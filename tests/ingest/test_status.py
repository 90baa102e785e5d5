"""The status as people and machines see it, from what Kafka, the catalog and the node have said."""

import io
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from prometheus_client import REGISTRY
from rich.console import Console

from infra.local.jvm_parts import REPOSITORY
from ingest.cli.parked import ADVICE
from ingest.kafka.group_lag import GroupLag, LagMeter, PartitionLag
from ingest.kafka.kafka_reader import KafkaPartition
from ingest.model.trouble import FOR_A_PERSON, NEVER_PARKED, Cause
from ingest.serve import app
from ingest.serve.status import Status, StatusSource, to_renderable
from lake import metrics
from lake.catalog_client import CatalogClient
from lake.clock import SYSTEM_CLOCK
from lake.settings import ChangeSettings, IngestSettings
from lake.settings.ingest import FlushSettings

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
    "parked": [
        {
            "table": "sick.logs",
            "reason": "storage",
            "since": "2026-11-21T11:00:00",
            "stage": "draining",
            "sentence": "cannot write",
        }
    ],
    "partitions": [{"topic": "logs", "partition": 0, "routed": 90}],
}
COMMITS = {"acme": NOW - timedelta(seconds=3), "quiet": NOW - timedelta(minutes=50)}


def _text(status: Status) -> str:
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(to_renderable(status))
    return console.export_text()


class Away(httpx.BaseTransport):
    """A catalog that nobody reaches."""

    def __init__(self) -> None:
        self.asked = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.asked += 1
        raise httpx.ConnectError("refused")


def test_a_catalog_that_is_away_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks for metrics is not kept waiting: Kafka's lag is told all the same."""
    monkeypatch.setenv("FIRN_CONFIG", "")
    monkeypatch.setattr(LagMeter, "measure", lambda _: LAG)
    away = Away()
    catalog = CatalogClient("http://catalog", transport=away)
    source = StatusSource(IngestSettings.load(node__uri=""), catalog, lambda: catalog, SYSTEM_CLOCK)
    told = source.read()
    assert (told.lag, told.parked, told.last_commits) == (LAG, None, None)
    assert away.asked == 1


def test_json_has_what_search_and_maintenance_ask_for() -> None:
    """Lag in records, completeness, parked tables by name, and how far the node has routed; where nobody
    knows, up to the group's offset."""
    told = Status(NOW, LAG, NODE, {"sick.logs": "storage"}, COMMITS, flush_interval_s=9.0).to_json()
    assert (told["lag_records"], told["complete_until"], told["flush_interval_s"], told["parked"]) == (
        67,
        "2026-11-21T11:55:00.000Z",
        9.0,
        {"sick.logs": "storage"},
    )
    assert [part["routed"] for part in told["partitions"]] == [90, 0]
    assert (told["recreated_topics"], told["missing_topics"], told["breakers"]) == (
        ["logs"],
        ["absent"],
        NODE["breakers"],
    )
    assert [(each["tenant"], each["age_s"]) for each in told["freshness"]["stalest"]] == [
        ("quiet", 3000.0),
        ("acme", 3.0),
    ]


def test_terminal_shows_what_needs_attention() -> None:
    """The most lagging partition first, what is re-created, failing, written by another, postponed, parked
    and why."""
    shown = _text(Status(NOW, LAG, NODE, {"sick.logs": "storage"}, COMMITS))
    for told in (
        "67 records",
        "300 s ago",
        "re-created: run reset-topic",
        "1 tables failing: acme.logs (storage)",
        "host:1 writes acme.logs too",
    ):
        assert told in shown
    for told in ("4 new tables wait", "draining", "cannot write", "quiet", "absent", "2.0 MB of 3 tables"):
        assert told in shown


def test_a_table_with_little_traffic_may_wait_longer_than_the_others() -> None:
    """The interval within which everything is flushed is the longer one of the two settings; without the
    second, three times the first."""
    assert FlushSettings(interval_s=5).within_s == 15
    assert FlushSettings(interval_s=5, visibility_max_s=60).within_s == 60
    assert FlushSettings(interval_s=5, visibility_max_s=1).within_s == 5


def test_silence_is_told_apart_from_good_news() -> None:
    """Without a node, without a catalog that keeps such lists, nothing is made up."""
    status = Status(NOW, LAG, None, None, None)
    told = status.to_json()
    assert (told["node"], told["parked"], told["freshness"]) == (None, None, None)
    assert "does not answer" in _text(status)
    assert "which tables are parked is not known" in _text(status)


def _metric(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(f"firn_ingest_{name}", labels)


def test_metrics_of_serve_are_its_own() -> None:
    """A node tells what it holds, under other names; where nobody says what is parked, the last figures
    stand."""
    both = {"sick.logs": "storage", "ill.logs": "storage"}
    node = _metric("lag_records", topic="logs", partition="0"), _metric("tables_parked", reason="storage")
    for parked, told in ((both, 2), (None, 2), ({"sick.logs": "columns"}, None)):
        app._measure(Status(NOW, LAG, None, parked, COMMITS))
        assert _metric("group_tables_parked", reason="storage") == told
    assert _metric("group_tables_parked", reason="columns") == 1
    assert _metric("group_lag_records", topic="logs", partition="0") == 60
    assert _metric("complete_until_timestamp_seconds") == (NOW - timedelta(minutes=5)).timestamp()
    assert (
        _metric("lag_records", topic="logs", partition="0"),
        _metric("tables_parked", reason="storage"),
    ) == node


def test_every_reason_of_a_parked_table_comes_with_what_to_do() -> None:
    """In the list and on the operators' page; a person is asked for a decision only where one is waited
    for."""
    page = [
        line.split("|")[1]
        for line in (REPOSITORY / "docs" / "ingest.md").read_text().splitlines()
        if line.startswith("|")
    ]
    for cause in Cause:
        assert ("ingest resolve t.logs" in ADVICE[cause].format(table="t.logs")) == (cause in FOR_A_PERSON)
        assert cause in NEVER_PARKED or any(f"`{cause.value}`" in cell for cell in page), cause


def test_the_operators_page_names_metrics_that_exist() -> None:
    """An alert on a metric that was renamed never fires."""
    known = {
        f"{metric._name}_total" if metric._type == "counter" else metric._name
        for name, metric in vars(metrics).items()
        if name.isupper() and name[0] != "_"
    }
    page = (REPOSITORY / "docs" / "ingest.md").read_text()
    named = set(re.findall(r"`(firn_ingest_\w+)", page))
    assert named
    assert named <= known


def test_topics_of_changes_are_told_with_their_mode_and_key() -> None:
    changes = {
        "orders": ChangeSettings(order_by="position"),
        "ids": ChangeSettings(mode="first_wins", key=("event",)),
    }
    status = Status(NOW, LAG, None, {}, {}, changes)
    told = status.to_json()["changes"]
    assert (told["orders"]["mode"], told["orders"]["order_by"]) == ("upsert", "position")
    assert (told["ids"]["mode"], told["ids"]["key"]) == ("first_wins", ["event"])
    shown = _text(status)
    assert re.search(r"orders +.*upsert +.*debezium +.*the message key +.*position", shown)
    assert "topics of changes" not in _text(Status(NOW, LAG, None, {}, {}))
