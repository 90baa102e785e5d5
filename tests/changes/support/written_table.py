"""A worker's writer over one table and any topics: what became of messages, as the files hold it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from ingest.commit.promised_columns import PromisedColumns
from ingest.dead_letters.dead_letter import DeadLetters
from ingest.model.link import TableKey, TableView, WrittenFlush
from ingest.model.source import Source
from ingest.route.buffer import TableBuffer
from ingest.write.flush_writer import Flush, FlushWriter
from lake.catalog_client import TableName
from lake.commit import TableState, new_table_state
from lake.log_schema import WantedColumn
from lake.marks import NO_MARKS, TopicPartition
from lake.settings import ChangeSettings, IngestSettings
from lake.storage import local_path, open_storage
from lake.tenant import TableId, TenantId
from tests.ingest.support.fake_kafka import FakeBroker

TENANT = TenantId("shop")
Message = tuple[int, bytes | None, bytes | None]  # number of its source, key, value


def source(name: str, changes: ChangeSettings | None = None) -> Source:
    """The one partition of a topic."""
    return Source(name, f"id-{name}", 0, "auto", changes=changes)


class WrittenTable:
    """The table, and the one flush of it that is written again and again. `faster`: columns that another
    writer of the table is promised just before this one asks."""

    def __init__(
        self,
        folder: Path,
        broker: FakeBroker,
        sources: Sequence[Source],
        *,
        is_new: bool = False,
        key: TableKey | None = None,
        stream: str = "orders",
    ) -> None:
        self._broker, self.sources, self.id = broker, sources, TableId(TENANT, stream)
        self._topic = IngestSettings().internal_topics.dead_letters
        if self._topic not in broker.ids:
            broker.create_topic(self._topic)
        warehouse = f"file://{folder}"
        self.state: TableState = new_table_state(
            TableName(TENANT.name, stream), TENANT.name, stream, warehouse
        )
        self._columns = PromisedColumns()
        self.faster: dict[str, WantedColumn] = {}
        letters = DeadLetters(IngestSettings(), open_storage(), warehouse)
        self._writer = FlushWriter(IngestSettings(), self, letters, open_storage())
        self._is_new, self._key = is_new, key
        self._buffer = TableBuffer(self.id, 0.0)
        self._next = [0] * len(sources)

    def grow(self, names: Mapping[TableId, Mapping[str, WantedColumn]]) -> Mapping[TableId, bytes]:
        """Hands out columns as the committer does."""
        self._columns.promise(self.state, self.faster)
        self._columns.promise(self.state, names[self.id])
        return {self.id: orjson.dumps(self._columns.schema(self.state).json)}

    def add(self, *messages: Message) -> None:
        for number, key, value in messages:
            self._buffer.add(number, self._next[number], 1_795_210_000_000, key, (), value)
            self._next[number] += 1

    def pack(self) -> None:
        """As the pipeline does with what waits for a hot table: records go to files that stay open."""
        self._writer.append(self._buffer, self.sources, self._view())
        self._buffer.close_part()
        self._buffer.pack()

    def write(self) -> WrittenFlush | None:
        """Writes the flush; None where there is nothing to commit."""
        ends = {
            TopicPartition(each.topic_id, 0): end for each, end in zip(self.sources, self._next, strict=True)
        }
        flush = Flush(self.id, self._buffer, ends, hot=self._writer.take_hot(self.id))
        written = self._writer.write([flush], self.sources, {self.id: self._view()})
        assert written.stuck == []
        return written.flushes[0] if written.flushes else None

    def _view(self) -> TableView:
        return TableView(
            self.state.uuid,
            self.state.location,
            orjson.dumps(self.state.schema.json),
            NO_MARKS,
            key=self._key,
            buckets=int(self._key is not None),
            is_new=self._is_new,
        )

    def files(self) -> set[str]:
        """All that lies in the table's folder."""
        folder = local_path(self.state.location)
        return {str(path) for path in folder.rglob("*") if path.is_file()}

    def dead(self) -> list[tuple[str, int, str]]:
        """Topic, offset and reason of each dead letter that was sent."""
        headers = [dict(message.headers()) for message in self._broker.messages(self._topic)]
        names = ("firn.topic", "firn.offset", "firn.reason")
        found = [tuple(each[name].decode() for name in names) for each in headers]
        return sorted((topic, int(offset), reason) for topic, offset, reason in found)


def rows_of(flush: WrittenFlush | None) -> list[dict[str, Any]]:
    """All rows of a flush's files, without what is NULL."""
    assert flush is not None
    rows: list[dict[str, Any]] = []
    for file in flush.files:
        table: pa.Table = pq.read_table(local_path(file.uri))
        rows += [
            {name: value for name, value in row.items() if value is not None} for row in table.to_pylist()
        ]
    return sorted(rows, key=lambda row: (row["_topic"], row["_offset"]))


def _there(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value is not None}
