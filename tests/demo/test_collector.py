"""The collector ships growing log files: every line once, stack traces whole, through rotation, truncation
and restarts."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.demo.collector import QUIET_S, Collector
from infra.demo.file_tail import LINE_BYTES_MAX, FileTail
from infra.demo.record import JSON_TOPIC, TEXT_TOPIC, DemoRecord
from lake.errors import ProtocolError

HEAD = "[2026-11-21 15:28:29,123] "


class HeldClock:
    """A clock that moves when told."""

    def __init__(self) -> None:
        self.elapsed_s = 0.0

    def now(self) -> datetime:
        return datetime(2026, 11, 21, 15, 0, tzinfo=UTC) + timedelta(seconds=self.elapsed_s)

    def monotonic_s(self) -> float:
        return self.elapsed_s


@pytest.fixture
def clock() -> HeldClock:
    return HeldClock()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "kafka.log"


@pytest.fixture
def collector(log: Path, clock: HeldClock) -> Collector:
    return Collector({"kafka": log}, clock)


def test_a_missing_file_is_waited_for(collector: Collector, log: Path) -> None:
    """A service that has not written yet gives no records; its first lines come as soon as they are there."""
    assert collector.poll() == []
    _append(log, f"{HEAD}INFO started\n{HEAD}INFO ready\n")
    assert _texts(collector.poll(at_end=True)) == [f"{HEAD}INFO started", f"{HEAD}INFO ready"]


def test_records_name_tenant_and_service(collector: Collector, log: Path, clock: HeldClock) -> None:
    """Text goes to the text topic as tenant `firn` with the service as stream, stamped with the present."""
    _append(log, f"{HEAD}INFO started\n")
    [record] = collector.poll(at_end=True)
    assert record.topic == TEXT_TOPIC
    assert record.headers == (("tenant", b"firn"), ("stream", b"kafka"))
    assert (record.tenant, record.expected, record.errors_expected) == ("firn", "row", False)
    assert record.timestamp_ms == int(clock.now().timestamp() * 1000)


def test_json_lines_go_to_the_json_topic_as_they_are(tmp_path: Path, clock: HeldClock) -> None:
    """A JSON object is shipped at once and byte for byte; what else stands in that file goes to the text
    topic."""
    log = tmp_path / "catalog.log"
    event = (
        '{"event": "table created", "room": "catalog", "level": "info", "timestamp": '
        '"2026-11-21T15:28:29.000000Z"}'
    )
    _append(
        log,
        f"{event}\n\nTraceback (most recent call last):\n  File x\nValueError: bad\n{event}\n"
        '{"cut": \n{"event": "no time"}\n',
    )
    records = Collector({"catalog": log}, clock).poll(at_end=True)
    assert [(record.topic, record.value.decode()) for record in records] == [
        (JSON_TOPIC, event),
        (TEXT_TOPIC, "Traceback (most recent call last):\n  File x\nValueError: bad"),
        (JSON_TOPIC, event),
        (TEXT_TOPIC, '{"cut":'),
        (JSON_TOPIC, '{"event": "no time"}'),
    ]
    assert [record.errors_expected for record in records] == [False, False, False, False, True]


def test_a_partial_line_waits_for_its_rest(collector: Collector, log: Path, clock: HeldClock) -> None:
    """A line without its line end is not shipped, however long it takes."""
    _append(log, f"{HEAD}INFO half")
    clock.elapsed_s += 100
    assert collector.poll() == []
    _append(log, " and half\n")
    collector.poll()
    clock.elapsed_s += QUIET_S
    assert _texts(collector.poll()) == [f"{HEAD}INFO half and half"]


@pytest.mark.parametrize(
    "head", [HEAD, "2026-11-21T15:28:29.123Z\t", "[main] "], ids=["log4j", "trino", "slf4j-simple"]
)
def test_a_stack_trace_stays_with_its_first_line(collector: Collector, log: Path, head: str) -> None:
    """Frames, causes and blank lines join the record before them, also when they come in several writes."""
    trace = (
        f"{head}ERROR failed\njava.io.IOException: disk\n\tat a.B.c(B.java:1)\nCaused by: x.Y: "
        "z\n\n\t... 3 more"
    )
    for part in (trace[:60], trace[60:100], trace[100:] + "\n"):
        _append(log, part)
        assert collector.poll() == []
    _append(log, f"{head}INFO next\n")
    assert _texts(collector.poll()) == [trace]
    assert _texts(collector.poll(at_end=True)) == [f"{head}INFO next"]


def test_a_quiet_file_gives_its_last_record(collector: Collector, log: Path, clock: HeldClock) -> None:
    """The last record is shipped once nothing was added to it for a second."""
    _append(log, f"{HEAD}INFO last\n")
    assert collector.poll() == []
    clock.elapsed_s += QUIET_S / 2
    assert collector.poll() == []
    clock.elapsed_s += QUIET_S / 2
    assert _texts(collector.poll()) == [f"{HEAD}INFO last"]


def test_lines_before_the_first_head_stand_alone(collector: Collector, log: Path) -> None:
    """What a JVM prints before its log begins is one record a line, with indented lines joined."""
    _append(log, "Picked up options\nWARNING: deprecated\n  in module x\n")
    assert _texts(collector.poll(at_end=True)) == ["Picked up options", "WARNING: deprecated\n  in module x"]


def test_a_rotated_file_is_read_to_its_end(collector: Collector, log: Path) -> None:
    """After a rename what was still written to the old file comes first, even without a line end, then the
    new file from its start."""
    _append(log, f"{HEAD}INFO one\n")
    collector.poll()
    old = log.with_suffix(".1")
    log.rename(old)
    _append(old, f"{HEAD}INFO two\n{HEAD}INFO three")
    _append(log, f"{HEAD}INFO four\n")
    assert _texts(collector.poll(at_end=True)) == [
        f"{HEAD}INFO {number}" for number in ("one", "two", "three", "four")
    ]


def test_an_old_file_is_followed_until_the_new_one_is_there(collector: Collector, log: Path) -> None:
    """Between a rename and the creation of the new file nothing written to the old one is missed."""
    _append(log, f"{HEAD}INFO one\n")
    assert _texts(collector.poll(at_end=True)) == [f"{HEAD}INFO one"]
    old = log.with_suffix(".1")
    log.rename(old)
    assert collector.poll() == []
    _append(old, f"{HEAD}INFO two\n")
    assert _texts(collector.poll(at_end=True)) == [f"{HEAD}INFO two"]


def test_a_truncated_file_is_read_from_its_start(collector: Collector, log: Path) -> None:
    """A file that became shorter is a new beginning."""
    _append(log, f"{HEAD}INFO a long first line\n")
    collector.poll(at_end=True)
    log.write_text(f"{HEAD}INFO b\n")
    assert _texts(collector.poll(at_end=True)) == [f"{HEAD}INFO b"]


def test_a_restart_goes_on_where_records_were_committed(tmp_path: Path, log: Path, clock: HeldClock) -> None:
    """Committed records do not come again after a restart; a record that was still open, or not committed,
    does."""
    positions = tmp_path / "state" / "positions.json"
    _append(log, f"{HEAD}INFO one\n{HEAD}INFO two\n")
    first = Collector({"kafka": log}, clock, positions)
    assert _texts(first.poll()) == [f"{HEAD}INFO one"]
    first.commit()
    _append(log, "\tmore of two\n")
    assert _texts(first.poll(at_end=True)) == [f"{HEAD}INFO two\n\tmore of two"]
    first.close()
    second = Collector({"kafka": log}, clock, positions)
    assert _texts(second.poll(at_end=True)) == [f"{HEAD}INFO two\n\tmore of two"]
    second.commit()
    assert Collector({"kafka": log}, clock, positions).poll(at_end=True) == []


def test_positions_of_another_file_do_not_count(tmp_path: Path, log: Path, clock: HeldClock) -> None:
    """A file that was replaced while the collector was away is read from its start."""
    positions = tmp_path / "positions.json"
    _append(log, f"{HEAD}INFO one\n")
    first = Collector({"kafka": log}, clock, positions)
    first.poll(at_end=True)
    first.commit()
    replacement = tmp_path / "new.log"
    _append(replacement, f"{HEAD}INFO other\n{HEAD}INFO more\n")
    replacement.replace(log)
    assert len(Collector({"kafka": log}, clock, positions).poll(at_end=True)) == 2


def test_unreadable_positions_are_refused_with_the_remedy(
    tmp_path: Path, log: Path, clock: HeldClock
) -> None:
    """A positions file that holds something else is one error that says what to do."""
    positions = tmp_path / "positions.json"
    positions.write_text("[]")
    with pytest.raises(ProtocolError, match="delete it"):
        Collector({"kafka": log}, clock, positions)


def test_bytes_that_are_not_utf8_are_expected_as_dead_letters(collector: Collector, log: Path) -> None:
    """A line in another encoding is shipped as it is, with the verdict it will get."""
    log.write_bytes(HEAD.encode() + b"INFO M\xfcnchen\n")
    [record] = collector.poll(at_end=True)
    assert (record.value, record.expected) == (HEAD.encode() + b"INFO M\xfcnchen", "dead_letter")


def test_an_endless_line_comes_in_pieces(log: Path) -> None:
    """A file without line ends is handed out in pieces that hold all its bytes."""
    content = b"x" * (2 * LINE_BYTES_MAX + 10)
    log.write_bytes(content)
    tail = FileTail(log)
    pieces = [line.content for line in tail.read_lines()]
    assert [len(piece) for piece in pieces] == [LINE_BYTES_MAX, LINE_BYTES_MAX]
    assert b"".join([*pieces, *(line.content for line in tail.read_lines(at_end=True))]) == content


@given(
    lines=st.lists(st.text(alphabet="ab \té", max_size=6), max_size=12),
    cuts=st.lists(st.integers(min_value=0, max_value=120), max_size=6),
)
def test_however_a_file_grows_its_lines_come_once_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], cuts: list[int]
) -> None:
    """Whatever the sizes of the writes, the tail gives each line exactly once, with the position it starts
    at."""
    path = tmp_path_factory.mktemp("tail") / "grown.log"
    content = "".join(f"{line}\n" for line in lines).encode()
    tail, read = FileTail(path), []
    bounds = [0, *sorted(min(cut, len(content)) for cut in cuts), len(content)]
    for start, end in pairwise(bounds):
        with path.open("ab") as file:
            file.write(content[start:end])
        read += tail.read_lines()
    tail.close()
    assert [line.content.decode() for line in read] == lines
    assert all(content[line.start.offset :].startswith(line.content) for line in read)


def _append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def _texts(records: list[DemoRecord]) -> list[str]:
    return [record.value.decode() for record in records]
