"""The parts of a backfill that need no services: whose marks a commit moves, letters that are sent once, the
report."""

from pathlib import Path

import orjson
import pytest

from ingest.backfill.archive import ArchiveFile, UnusableFileError
from ingest.backfill.backfill_ledger import BackfillLedger
from ingest.backfill.backfill_report import FilesReport
from ingest.dead_letters.rejects import Identity, OnceLetters, RejectsFile
from ingest.decode.formats.rejected_record import RejectedRecord
from ingest.model.source import Source
from ingest.route.buffer import RawRecord
from lake.backfill_mark import backfill_property, committed_ranges, parse_backfill_mark
from lake.catalog_client import TableName
from lake.commit import TableState, new_table_state, prepare_append
from lake.errors import PrerequisiteError, Reason, Rejected, SettingsError
from lake.marks import MARKS_PROPERTY, Marks, Range, TopicPartition

FILE = ArchiveFile("file:///archive/a.gz", 100, "e1", 1_700_000_000_000)
PLACE = TopicPartition(FILE.source, 0)
LIVE = Marks({TopicPartition("topic-id", 0): 5})
REJECTED = Rejected(Reason.UNDECODABLE, "half")


def _state(**properties: str) -> TableState:
    state = new_table_state(TableName("acme", "logs"), "acme", "logs", "file:///warehouse")
    return TableState(
        **{name: getattr(state, name) for name in TableState.__slots__}
        | {"properties": properties, "marks": LIVE, "writer": "node"}
    )


def _ledger() -> BackfillLedger:
    ledger = BackfillLedger(lambda _: None)
    ledger.begin(FILE)
    return ledger


def test_commit_moves_the_marks_of_files_and_no_others() -> None:
    """The live marks and whoever moved them are repeated; the file's mark is a property, complete where its
    end is known; the next state has it."""
    ledger, state = _ledger(), _state()
    advance = ledger.advance(state, {PLACE: Range(0, 7)}, "backfill")
    assert (advance.marks, advance.writer) == (LIVE, "node")
    assert advance.properties[MARKS_PROPERTY] == LIVE.to_property()
    mark = parse_backfill_mark(advance.properties, FILE.source)
    assert mark is not None
    assert (mark.path, mark.size, mark.etag, mark.next, mark.complete) == (FILE.uri, 100, "e1", 7, False)
    prepared = prepare_append(
        state, [], state.schema, advance.marks, 1, writer=advance.writer, properties=advance.properties
    )
    assert prepared.request["updates"][-1] == {
        "action": "set-properties",
        "updates": dict(advance.properties),
    }
    assert ledger.marks(prepared.after) == Marks({PLACE: 7})
    assert committed_ranges(prepared.after.properties) == {
        TopicPartition("topic-id", 0): (Range(0, 5),),
        PLACE: (Range(0, 7),),
    }
    ledger.ends[FILE.source] = 9
    last = ledger.advance(prepared.after, {PLACE: Range(7, 9)}, "backfill").properties
    assert list(last) == [backfill_property(FILE.source)]
    assert '"complete":true' in last[backfill_property(FILE.source)]


def test_nobody_is_named_a_second_writer() -> None:
    """Marks of files are moved by nobody that a node would have to know of."""
    assert _ledger().moved_by(_state()) == ""


@pytest.mark.parametrize(("size", "etag"), [(101, "e1"), (100, "e2")])
def test_other_content_is_refused(size: int, etag: str) -> None:
    """A file of another size or etag than the one that was committed is named, with what to do."""
    properties = _ledger().advance(_state(), {PLACE: Range(0, 7)}, "").properties
    ledger = BackfillLedger(lambda _: None)
    ledger.begin(ArchiveFile(FILE.uri, size, etag, 0))
    with pytest.raises(UnusableFileError, match="has changed since 7 records of it went into table"):
        ledger.mark(_state(**properties), FILE.source)
    assert ledger.mark(_state(), FILE.source) is None


def _letters(path: Path) -> tuple[OnceLetters, RejectsFile]:
    file = RejectsFile(path)
    return OnceLetters(file, file.known, [FILE.source]), file


def _send(letters: OnceLetters, offset: int, index: int | None = None, value: bytes | None = b"x") -> None:
    record = RawRecord(0, offset, FILE.modified_ms, None, (), b"whole" if index is not None else value)
    rejected = (
        REJECTED if index is None else RejectedRecord(REJECTED.reason, REJECTED.detail, index, value or b"")
    )
    letters.send(Source(FILE.uri, FILE.source, 0, "auto"), record, rejected, "acme.logs")


def test_letter_is_written_once(tmp_path: Path) -> None:
    """Letters of an earlier run are not written again; one record of a message is another letter than the
    whole of it; half a line is taken away."""
    path = tmp_path / "new" / "rejects"
    first, _ = _letters(path)
    _send(first, 3)
    _send(first, 4, 0, b"\xff")
    first.flush()
    with path.open("ab") as file:
        file.write(b'{"reason":"unde')
    second, _ = _letters(path)
    _send(second, 3)
    _send(second, 4, 0)
    _send(second, 4)
    _send(second, 5, None, None)
    second.flush()
    assert (second.sent, second.there_already) == (2, 2)
    letters = [orjson.loads(line) for line in path.read_bytes().splitlines()]
    assert [(letter["offset"], letter["index"]) for letter in letters] == [
        (3, None),
        (4, 0),
        (4, None),
        (5, None),
    ]
    assert [(letter["value"], letter["value_base64"]) for letter in letters] == [
        ("x", "eA=="),
        (None, "/w=="),
        ("x", "eA=="),
        (None, None),
    ]
    assert {letter["topic"] for letter in letters} == {FILE.uri}


def test_letters_are_not_looked_for_without_need() -> None:
    """Where nothing is rejected, nobody reads the dead-letter topic."""

    def known() -> list[Identity]:
        raise AssertionError("read")

    OnceLetters(_Nothing(), known, [FILE.source]).flush()


class _Nothing:
    def send(self, *_: object) -> None:
        """Takes it."""

    def flush(self, *_: object) -> None:
        """All are there."""

    def mark(self) -> int:
        """Of nothing."""
        return 0

    def reached(self, *_: object) -> bool:
        """All are there."""
        return True


def test_file_of_another_kind_is_left_alone(tmp_path: Path) -> None:
    """Rejects are never added to a file that holds something else, nor is that cut."""
    path = tmp_path / "log"
    path.write_bytes(b"a line without end")
    with pytest.raises(SettingsError, match="holds something else"):
        RejectsFile(path)
    assert path.read_bytes() == b"a line without end"
    with pytest.raises(PrerequisiteError, match="cannot be written"):
        RejectsFile(path / "below")


def test_report_speaks_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress is a line every few seconds, and the end a count of everything."""
    said: list[str] = []
    report = FilesReport(said.append, files_total=3)
    report.show("a")
    assert said == []
    report.records, report.rows, report.files = 2_000, 1_500, 1
    monkeypatch.setattr("ingest.backfill.backfill_report.SHOW_EVERY_S", 0.0)
    report.show("file:///b")
    (line,) = said
    assert line.startswith("1 of 3 files, 2,000 records (")
    assert line.endswith("1,500 rows; now file:///b")
    assert report.to_json()["records"] == 2_000
