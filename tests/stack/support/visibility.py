"""How long records take until a reader sees them: watched at the catalog's database, computed from the marks
that every snapshot repeats."""

import sqlite3
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from infra.local.supervisor import Stack
from lake.catalog_client import CatalogClient, TableName
from lake.marks import MARKS_PROPERTY, TopicPartition, parse_marks
from tests.stack.support.kafka_topics import Delivered
from tests.stack.support.waiting import pause

WATCH_EVERY_S = 0.1


def catalog_database(stack: Stack) -> Path:
    """The SQLite file of a stack's catalog."""
    return Path(stack.environment()["FIRN_CATALOG_DATABASE_URL"].removeprefix("sqlite:///"))


@dataclass
class Watcher:
    """As a context manager: notes, by its own clock, when each version of each table was first there."""

    database: Path
    seen_s: dict[tuple[TableName, int], float] = field(
        default_factory=dict
    )  # table and version -> seconds since the epoch
    _ended: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> "Watcher":
        self._thread = threading.Thread(target=self._watch, name="watching", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        last: dict[TableName, int] = {}
        with closing(sqlite3.connect(f"file:{self.database}?mode=ro", uri=True)) as connection:
            while not self._ended.is_set():
                found = connection.execute("SELECT namespace, name, metadata_location FROM tables").fetchall()
                now_s = time.time()
                for namespace, name, location in found:
                    table, version = (
                        TableName(namespace, name),
                        int(location.rpartition("/")[2].split("-")[0]),
                    )
                    for new in range(last.get(table, -1) + 1, version + 1):
                        self.seen_s[table, new] = now_s
                    last[table] = version
                pause(WATCH_EVERY_S)


def visibility_s(
    watcher: Watcher, catalog: CatalogClient, table: TableName, records: Iterable[Delivered], topic_id: str
) -> list[float]:
    """Seconds from a record's Kafka timestamp to the version that first held it; records that no version
    holds yet are left out.

    Nobody but the ingester may have committed to the table: then its versions and its snapshots are the same
    sequence.
    """
    snapshots = sorted(
        catalog.load_table(table)["metadata"]["snapshots"], key=lambda snapshot: snapshot["sequence-number"]
    )
    marks = [(int(s["sequence-number"]) - 1, parse_marks(s["summary"][MARKS_PROPERTY])) for s in snapshots]
    found = []
    for record in records:
        topic_partition = TopicPartition(topic_id, record.partition)
        version = next((version for version, at in marks if at.of(topic_partition) > record.offset), None)
        if version is not None and (table, version) in watcher.seen_s:
            found.append(watcher.seen_s[table, version] - record.timestamp_ms / 1000)
    return found


def percentile(values: Iterable[float], share: float) -> float:
    """The value that this share of all do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def p99_s(
    watcher: Watcher, catalog: CatalogClient, records: Mapping[TableName, Iterable[Delivered]], topic_id: str
) -> float:
    """The 99th percentile over the records of all tables."""
    return percentile(
        [
            s
            for table, delivered in records.items()
            for s in visibility_s(watcher, catalog, table, delivered, topic_id)
        ],
        0.99,
    )
