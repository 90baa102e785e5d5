"""The line at a glance: lag, freshness per tenant, parked tables, and what the running node says of its
buffers and breakers.

Kafka and the catalog are asked themselves, so that all but the last is told also while no ingester runs.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import httpx
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ingest.kafka.group_lag import GroupLag, LagMeter, PartitionLag
from ingest.kafka.kafka_reader import KafkaReader
from ingest.serve.freshness import Freshness
from ingest.serve.node_token import bearer
from lake.catalog_client import CatalogClient
from lake.clock import Clock
from lake.errors import FirnError
from lake.extras_client import ExtrasClient
from lake.settings import ChangeSettings, IngestSettings
from lake.tls import tls_context

NODE_TIMEOUT_S, CATALOG_TIMEOUT_S = 2.0, 2.0
KEPT_S = 1.0
STALEST = 20
SHOWN_PARTITIONS = 40
SHOWN_NAMES = 5
# What the status repeats of the node's own, so that one address is enough to ask.
_OF_NODE = (
    *("role", "ready", "restarts", "buffered_bytes", "in_flight_bytes", "buffered_tables"),
    *("breakers", "second_writers", "postponed_tables"),
)


@dataclass(frozen=True, slots=True)
class Status:
    """All that is known now. `node`, `parked`, `last_commits` None: whoever knows did not answer, or does not
    keep it. `changes`: topics whose messages are changes of rows, and how they are read and applied.
    `flush_interval_s`: within which every table is flushed while nothing is wrong."""

    now: datetime
    lag: GroupLag
    node: Mapping[str, Any] | None
    parked: Mapping[str, str] | None
    last_commits: Mapping[str, datetime] | None
    changes: Mapping[str, ChangeSettings] = field(default_factory=dict)
    flush_interval_s: float | None = None

    def stalest(self, limit: int) -> list[tuple[str, datetime]]:
        """Tenants by their last commit, the oldest first."""
        return sorted((self.last_commits or {}).items(), key=lambda pair: pair[1])[:limit]

    def to_json(self) -> dict[str, Any]:
        """The body of /v1/status. Times are RFC 3339, UTC."""
        node = self.node or {}
        commits = self.last_commits
        return {
            **{name: node[name] for name in _OF_NODE if name in node},
            "now": _text(self.now),
            "lag_records": self.lag.lag_records,
            "complete_until": _text(self.lag.complete_until),
            "flush_interval_s": self.flush_interval_s,
            "missing_topics": list(self.lag.missing_topics),
            "recreated_topics": sorted(
                {each.partition.topic for each in self.lag.partitions if each.recreated}
            ),
            "partitions": [_partition(each, node) for each in self.lag.partitions],
            "parked": None if self.parked is None else dict(self.parked),
            "changes": {topic: each.model_dump(mode="json") for topic, each in self.changes.items()},
            "freshness": None
            if commits is None
            else {
                "tenants": len(commits),
                "stalest": [_freshness(self.now, *pair) for pair in self.stalest(STALEST)],
            },
            "node": self.node,
        }

    def tenants(self) -> list[dict[str, Any]]:
        """The freshness of every tenant, the stalest first."""
        return [_freshness(self.now, *pair) for pair in self.stalest(len(self.last_commits or ()))]


class StatusSource:
    """Asks everybody, at most once a second. Thread-safe. `control`: gives who keeps the parked records, and
    may raise while the catalog is away."""

    def __init__(
        self,
        settings: IngestSettings,
        catalog: CatalogClient,
        control: Callable[[], CatalogClient],
        clock: Clock,
    ) -> None:
        self._catalog, self._control = catalog, control
        self._clock = clock
        topics = (topic for topic in settings.topics if topic.has_changes)
        self._changes = {topic.name: topic.changes for topic in topics if topic.changes is not None}
        flush = settings.flush
        # On Spark none waits longer than others.
        self._flush_interval_s = flush.interval_s if settings.engine == "spark" else flush.within_s
        self._meter = LagMeter(settings, KafkaReader(settings), clock)
        self._freshness = Freshness(catalog, clock)
        options: dict[str, Any] = {
            "timeout": NODE_TIMEOUT_S,
            "verify": tls_context(),
            "trust_env": False,
            "headers": bearer(settings),
        }
        self._node = (
            httpx.Client(base_url=settings.node.uri.rstrip("/"), **options) if settings.node.uri else None
        )
        self._lock = threading.Lock()
        self._kept: tuple[float, Status] | None = None

    def read(self) -> Status:
        """The status, not older than a second. Raises UnavailableError where Kafka does not answer."""
        with self._lock:
            now_s = self._clock.monotonic_s()
            if self._kept is None or now_s - self._kept[0] >= KEPT_S:
                lag = self._meter.measure()
                found = (self._ask_node(), *self._of_catalog())
                status = Status(self._clock.now(), lag, *found, self._changes, self._flush_interval_s)
                self._kept = self._clock.monotonic_s(), status
            return self._kept[1]

    def _ask_node(self) -> Mapping[str, Any] | None:
        if self._node is None:
            return None
        try:
            answer = self._node.get("/v1/status")
            return dict(answer.json()) if answer.is_success else None
        except (httpx.HTTPError, ValueError):
            return None

    def _of_catalog(self) -> tuple[Mapping[str, str] | None, Mapping[str, datetime] | None]:
        """Parked tables and last commits. A catalog that is away is asked once: Prometheus gives up on who
        asks it patiently, and then misses the lag as well."""
        try:
            self._catalog.ping(timeout_s=CATALOG_TIMEOUT_S)
        except FirnError:
            return None, None
        return self._parked(), self._last_commits()

    def _parked(self) -> Mapping[str, str] | None:
        try:
            control = self._control()
            if not control.has_extras:
                return None
            return {entry.table.dotted: entry.reason for entry in ExtrasClient(control).parked()}
        except FirnError:
            return None

    def _last_commits(self) -> Mapping[str, datetime] | None:
        try:
            return self._freshness.last_commits()
        except FirnError:
            return None


def _partition(each: PartitionLag, node: Mapping[str, Any]) -> dict[str, Any]:
    topic, topic_id, partition = each.partition
    routed = next(
        (
            p.get("routed")
            for p in node.get("partitions", ())
            if (p.get("topic"), p.get("partition")) == (topic, partition)
        ),
        None,
    )
    return {
        "topic": topic,
        "topic_id": topic_id,
        "partition": partition,
        "stored": each.stored,
        "routed": each.end - each.lag_records if routed is None else routed,
        "end": each.end,
        "lag": each.lag_records,
        "oldest": None if each.oldest is None else _text(each.oldest),
        "recreated": each.recreated,
    }


def _freshness(now: datetime, tenant: str, last_commit: datetime) -> dict[str, Any]:
    return {
        "tenant": tenant,
        "last_commit": _text(last_commit),
        "age_s": max(0.0, round((now - last_commit).total_seconds(), 3)),
    }


def _text(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


# ---- for a terminal


def to_renderable(status: Status) -> RenderableType:
    """The status as tables."""
    return Group(
        _summary(status),
        _partitions(status.lag.partitions),
        *_changes_table(status),
        *_stalest(status),
        *_parked_table(status),
    )


def _summary(status: Status) -> Table:
    facts = Table(show_header=False, box=None)
    node = status.node or {}
    for name, value in (
        ("lag", f"{status.lag.lag_records:,} records"),
        (
            "complete until",
            (
                f"{_text(status.lag.complete_until)} "
                f"({(status.now - status.lag.complete_until).total_seconds():,.0f} s ago)"
            ),
        ),
        (
            "node",
            "does not answer, or there is none"
            if status.node is None
            else f"{node.get('role')}, {'ready' if node.get('ready') else 'not ready'}",
        ),
        *((("buffers", _buffers(node)),) if node else ()),
        *((("breakers", _breakers(node.get("breakers") or ())),) if node else ()),
        *(
            (("second writers", _second_writers(node["second_writers"])),)
            if node.get("second_writers")
            else ()
        ),
        *(
            (("postponed", f"{node['postponed_tables']:,} new tables wait for their turn"),)
            if node.get("postponed_tables")
            else ()
        ),
        *((("missing topics", ", ".join(status.lag.missing_topics)),) if status.lag.missing_topics else ()),
    ):
        facts.add_row(Text(name, style="bold"), Text(value))
    return facts


def _buffers(node: Mapping[str, Any]) -> str:
    mb = {name: node.get(name, 0) / 1e6 for name in ("buffered_bytes", "in_flight_bytes")}
    return (
        f"{mb['buffered_bytes']:,.1f} MB of {node.get('buffered_tables', 0):,} tables, "
        f"{mb['in_flight_bytes']:,.1f} MB in flight"
    )


def _breakers(failing: Sequence[Mapping[str, str]]) -> str:
    """Tables whose last attempt failed, before anything is parked."""
    told = [f"{each['table']} ({each['reason']})" for each in failing[:SHOWN_NAMES]]
    return f"{len(failing):,} tables failing: {', '.join(told)}" if failing else "none is open"


def _second_writers(seen: Sequence[Mapping[str, str]]) -> str:
    return ", ".join(f"{each['writer']} writes {each['table']} too" for each in seen[:SHOWN_NAMES])


def _partitions(partitions: Sequence[PartitionLag]) -> Table:
    table = Table(title="partitions, those most behind first", title_justify="left")
    for heading in ("topic", "partition", "stored", "end", "lag", "oldest waiting"):
        table.add_column(heading, justify="left" if heading in ("topic", "oldest waiting") else "right")
    for each in sorted(partitions, key=lambda one: (-one.lag_records, one.partition))[:SHOWN_PARTITIONS]:
        oldest = (
            "re-created: run reset-topic"
            if each.recreated
            else ""
            if each.oldest is None
            else _text(each.oldest)
        )
        stored = "-" if each.stored is None else str(each.stored)
        table.add_row(
            Text(each.partition.topic),
            str(each.partition.partition),
            stored,
            str(each.end),
            f"{each.lag_records:,}",
            oldest,
        )
    if len(partitions) > SHOWN_PARTITIONS:
        table.add_row(f"and {len(partitions) - SHOWN_PARTITIONS} more", "", "", "", "", "")
    return table


def _changes_table(status: Status) -> Iterator[Table]:
    if not status.changes:
        return
    table = Table(title="topics of changes", title_justify="left")
    for heading in ("topic", "mode", "format", "key", "ordered by"):
        table.add_column(heading, overflow="fold")
    for topic, each in status.changes.items():
        key = ", ".join(each.key) or "the message key"
        table.add_row(Text(topic), each.mode, each.format, Text(key), each.order_by)
    yield table


def _stalest(status: Status) -> Iterator[Table]:
    if not status.last_commits:
        return
    table = Table(
        title=f"{len(status.last_commits):,} tenants had a commit within the hour; the stalest",
        title_justify="left",
    )
    for heading in ("tenant", "last commit", "age"):
        table.add_column(heading)
    for entry in (_freshness(status.now, *pair) for pair in status.stalest(STALEST)):
        table.add_row(Text(entry["tenant"]), entry["last_commit"], f"{entry['age_s']:,.0f} s")
    yield table


def _parked_table(status: Status) -> Iterator[RenderableType]:
    if status.parked is None:
        yield Text("which tables are parked is not known: the catalog does not answer, or keeps no such list")
    elif status.parked:
        told = {each["table"]: each for each in (status.node or {}).get("parked") or ()}
        table = Table("table", "why", "stage", "since", "told", title="parked tables", title_justify="left")
        for name, reason in sorted(status.parked.items()):
            table.add_row(
                Text(name),
                Text(reason),
                *(Text(str(told.get(name, {}).get(key, ""))) for key in ("stage", "since", "sentence")),
            )
        yield table
