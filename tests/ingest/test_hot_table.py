"""Files of a hot table that grow while its messages come: every message is in them once, whatever goes wrong
on the way."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pyarrow.parquet as pq
import pytest

from ingest.dead_letters.dead_letter import DeadLetters
from ingest.model.link import Counts, NewColumn, TableView, WrittenFlush
from ingest.model.source import Source
from ingest.model.trouble import Cause
from ingest.route.buffer import RawRecord, TableBuffer
from ingest.write import flush_writer
from ingest.write.flush_writer import Flush, FlushWriter
from lake.errors import PrerequisiteError
from lake.log_schema import WantedColumn, new_log_schema
from lake.marks import NO_MARKS, TopicPartition
from lake.settings import IngestSettings
from lake.storage import LocalStorage, local_path, open_storage
from lake.tenant import TableId, TenantId
from tests.ingest.support.fake_kafka import FakeBroker

TABLE = TableId(TenantId("hot"), "logs")
SOURCES = [Source("topic", "id", 0, "auto", "UTC")]
PLACE = TopicPartition("id", 0)
BAD = b'{"half'


class Columns:
    """Hands out ids of columns as the committer does: the same name, the same id."""

    def __init__(self) -> None:
        self.schema = new_log_schema()

    def grow(self, names: Mapping[TableId, Mapping[str, WantedColumn]]) -> Mapping[TableId, bytes]:
        new = {name: path for name, path in names[TABLE].items() if name not in self.schema.by_name}
        first = max(column.id for column in self.schema.columns) + 1_000
        self.schema = self.schema.with_strings(
            {name: (first + at, str(path)) for at, (name, path) in enumerate(new.items())}, 1
        )
        return {TABLE: orjson.dumps(self.schema.json)}


class HotTable:
    """A worker's writer and the buffer of one table."""

    def __init__(self, folder: Path, broker: FakeBroker) -> None:
        self.columns, self._broker, self._topic = (
            Columns(),
            broker,
            IngestSettings().internal_topics.dead_letters,
        )
        broker.create_topic(self._topic)
        self.letters = DeadLetters(IngestSettings(), open_storage(), f"file://{folder}")
        self.writer = FlushWriter(IngestSettings(), self.columns, self.letters, open_storage())
        self.view = TableView("uuid", f"file://{folder}/table", orjson.dumps(new_log_schema().json), NO_MARKS)
        self.buffer = TableBuffer(TABLE, 0.0)
        self.offset = 0

    def dead(self) -> list[int]:
        """Offsets of the dead letters that were sent."""
        headers = [dict(message.headers()) for message in self._broker.messages(self._topic)]
        return [int(each["firn.offset"]) for each in headers]

    def add(self, *bodies: bytes) -> None:
        for body in bodies:
            self.buffer.add(*RawRecord(0, self.offset, 1_795_210_000_000, None, (), body))
            self.offset += 1

    def append(self) -> None:
        """As the pipeline does it."""
        self.writer.append(self.buffer, SOURCES, self.view)
        self.buffer.close_part()
        self.buffer.pack()

    def flush(self) -> Flush:
        return Flush(TABLE, self.buffer, {PLACE: self.offset}, hot=self.writer.take_hot(TABLE))

    def write(self, flush: Flush) -> WrittenFlush:
        written = self.writer.write([flush], SOURCES, {TABLE: self.view})
        assert written.stuck == []
        return written.flushes[0]

    def rows(self, flush: WrittenFlush) -> list[tuple[int, str | None]]:
        """Offset and column `late` of all rows, by the field id that the columns were promised."""
        late = self.columns.schema.by_name.get("late")
        found: list[tuple[int, str | None]] = []
        for file in flush.files:
            table = pq.read_table(local_path(file.uri))
            ids = {int(field.metadata[b"PARQUET:field_id"]): field.name for field in table.schema}
            values = (
                table.column(ids[late.id]).to_pylist()
                if late is not None and late.id in ids
                else [None] * table.num_rows
            )
            found += zip(table.column("_offset").to_pylist(), values, strict=True)
        return sorted(found)


def messages(first: int, count: int, **more: str) -> Sequence[bytes]:
    return [orjson.dumps({"message": f"m {at}", **more}) for at in range(first, first + count)]


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> FakeBroker:
    made = FakeBroker()
    made.install(monkeypatch)
    return made


@pytest.fixture
def hot(tmp_path: Path, broker: FakeBroker) -> HotTable:
    return HotTable(tmp_path, broker)


def test_a_column_that_comes_and_goes_is_in_the_files_by_its_promised_id(hot: HotTable) -> None:
    """Parts with and without a new column, and a part that has none, become rows of one flush."""
    hot.add(*messages(0, 3))
    hot.append()
    hot.add(*messages(3, 3, late="a"))
    hot.append()
    hot.add(*messages(6, 3))
    hot.append()
    hot.add(*messages(9, 3))
    flush = hot.write(hot.flush())
    assert hot.rows(flush) == [(at, "a" if 3 <= at < 6 else None) for at in range(12)]
    assert flush.new == {"late": NewColumn(hot.columns.schema.by_name["late"].id, "string")}


@pytest.mark.parametrize("spooled", [True, False], ids=["in open files", "not spooled"])
@pytest.mark.parametrize("times", [1, 3], ids=["written once", "written again"])
def test_bad_messages_become_dead_letters_once(hot: HotTable, spooled: bool, times: int) -> None:
    """Whether their part was in an open file or could not be, and however often the flush is written."""
    hot.add(*messages(0, 2), BAD)
    hot.append()
    if not spooled:
        hot.writer.abort(TABLE)
    hot.add(BAD, *messages(4, 2))
    hot.append()
    hot.add(BAD, *messages(7, 2))
    flush = hot.flush()
    for _ in range(times):
        written = hot.write(flush)
    assert hot.dead() == [2, 3, 6]
    assert [offset for offset, _ in hot.rows(written)] == [0, 1, 4, 5, 7, 8]
    assert [record.offset for record in flush.buffer.alive()] == [0, 1, 4, 5, 7, 8]


def _fails(*_: Any, **__: Any) -> Any:
    raise ZeroDivisionError("a fault of ours")


def test_faults_of_ours_are_counted_and_lose_nothing(
    hot: HotTable, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where files cannot be spooled or tables not converted together the flush has every row; where it cannot
    be written it is stuck, and told."""
    with monkeypatch.context() as broken:
        broken.setattr(FlushWriter, "_append", _fails)
        hot.add(*messages(0, 3))
        hot.append()
    assert hot.writer.take_counts().unforeseen == {"append": 1}
    hot.add(*messages(3, 3))
    assert [offset for offset, _ in hot.rows(hot.write(hot.flush()))] == list(range(6))
    plain = HotTable(Path(local_path(hot.view.location)).parent / "plain", broker)
    plain.add(*messages(0, 3))
    with monkeypatch.context() as broken:
        broken.setattr(flush_writer, "convert_batched", _fails)
        assert [offset for offset, _ in plain.rows(plain.write(plain.flush()))] == [0, 1, 2]
        assert plain.writer.take_counts().unforeseen == {"convert": 1}
        broken.setattr(plain.writer, "_write_files", _fails)
        written = plain.writer.write([plain.flush()], SOURCES, {TABLE: plain.view})
    assert [trouble.cause for _, trouble in written.stuck] == [Cause.FAILING]
    assert plain.writer.take_counts().unforeseen == {"convert": 1, "flush": 1}
    assert plain.writer.take_counts().unforeseen == {}


def test_counts_of_several_add_up() -> None:
    """By what they count, each."""
    one, other = Counts(parked=1), Counts(parked=2, committed=3)
    one.dead["undecodable"] += 1
    other.dead.update({"undecodable": 2, "too_late": 1})
    one.add(other)
    assert (one.parked, one.committed, one.dead) == (3, 3, {"undecodable": 3, "too_late": 1})


class FullDisk(LocalStorage):
    """Takes the beginning of a file and not its end."""

    @contextmanager
    def create(self, uri: str) -> Iterator[Any]:
        with super().create(uri) as file:
            try:
                yield file
            finally:
                raise PrerequisiteError("the disk is full")


def _of_hours(hours: int) -> Sequence[bytes]:
    return [orjson.dumps({"time": 1_795_209_000_000 - at * 3_600_000, "message": "m"}) for at in range(hours)]


def test_a_full_disk_is_the_flushes_to_tell(hot: HotTable, tmp_path: Path) -> None:
    """Open files that cannot be closed are given up without another word: the node waits for space, and must
    not end."""
    hot.writer = FlushWriter(IngestSettings(), hot.columns, hot.letters, FullDisk())
    hot.add(*_of_hours(3))
    hot.append()
    hot.writer.abort(TABLE)
    assert hot.writer.take_counts().unforeseen == {}
    assert not list(tmp_path.rglob("*.parquet"))


def test_so_many_hours_have_a_file_open_at_once(hot: HotTable) -> None:
    """A late backlog has hundreds: open files are bounded, and every row is in one."""
    settings = IngestSettings.load(limits__late="accept", flush__hours_max=4)
    hot.writer = FlushWriter(settings, hot.columns, hot.letters, open_storage())
    for _ in range(2):
        hot.add(*_of_hours(10))
        hot.append()
        assert len(hot.writer._hot[TABLE]._open) <= 4
    flush = hot.write(hot.flush())
    assert [offset for offset, _ in hot.rows(flush)] == list(range(20))
    assert len(flush.files) >= 10
