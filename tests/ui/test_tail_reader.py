"""The thread that reads a live tail for a page: what it keeps, and when it ends."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import orjson
import pytest

from tests.stack.support.waiting import wait_for
from tests.ui.support.tail_server import ALIVE, TailServer, event, record, tail_server
from ui import tail_reader
from ui.api_client import ApiClient
from ui.event_stream import Event
from ui.tail_reader import LINES_MAX, NOBODY_LOOKS_S, RATE_OVER_S, TailReader

pytestmark = pytest.mark.long
WAIT_S = 20.0
FULL = "2 live tails of tenant 'acme' are open already; close one"


class Hands:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Hands:
    return Hands()


@pytest.fixture
def server() -> Iterator[TailServer]:
    with tail_server() as running:
        yield running


@pytest.fixture
def reader(server: TailServer, clock: Hands) -> Iterator[TailReader]:
    """Of a tail that is not started."""
    made = TailReader(ApiClient(server.address), "acme", "web", "timeout db", clock)
    yield made
    made.stop()


def records(count: int, first: int = 0, size: int = 1) -> list[Event]:
    whole: dict[str, Any] = {
        "timestamp": "2026-11-27T04:00:00Z",
        "severity": None,
        "message": None,
        "stream": "logs",
        "fields": {},
    }
    return [
        Event("record", orjson.dumps({**whole, "n": at, "": "x" * size}))
        for at in range(first, first + count)
    ]


def numbers(reader: TailReader) -> list[int]:
    return [orjson.loads(line.data)["n"] for line in reader.look().lines]


def _has_ended(reader: TailReader) -> bool:
    return reader.look().has_ended


def test_the_newest_lines_are_kept_and_all_are_counted(reader: TailReader) -> None:
    """Newest first; the oldest ones go, by number and by bytes."""
    reader.take(records(LINES_MAX + 7))
    assert numbers(reader) == [*range(LINES_MAX + 6, 6, -1)]
    assert reader.look().records == LINES_MAX + 7
    reader.take(records(3, first=1_000, size=tail_reader.BYTES_MAX // 2 - 200))
    assert numbers(reader) == [1_002, 1_001]
    reader.take(records(1, first=2_000, size=tail_reader.BYTES_MAX))
    assert numbers(reader) == [2_000]


def test_what_the_api_left_out_is_counted_and_stays_in_its_place(reader: TailReader) -> None:
    """A gap is a line between those before and after it."""
    for total, left_out in ((5, 5), (12, 7)):
        reader.take([*records(1), Event("dropped", b'{"records":%d,"total":%d}' % (left_out, total))])
    view = reader.look()
    assert [line.kind for line in view.lines] == ["dropped", "record"] * 2
    assert (view.left_out, view.records) == (12, 2)


def test_the_rate_is_of_the_last_whole_seconds(reader: TailReader, clock: Hands) -> None:
    """Also within the first seconds; what came long ago does not count."""
    for second in range(RATE_OVER_S + 3):
        reader.take(records(10 * (second + 1)))
        clock.now_s += 1
        last = [10 * (at + 1) for at in range(second + 1)][-RATE_OVER_S:]
        assert reader.look().per_s == sum(last) / len(last)
    clock.now_s += 60
    assert reader.look().per_s == 0


def test_events_are_read_wherever_the_network_cuts_them(server: TailServer, reader: TailReader) -> None:
    """In the middle of a name or of a character; a sign of life is no event."""
    reader.start()
    wait_for(lambda: reader.look().is_open, WAIT_S, "the first event")
    assert server.asked == [{"tenant": "acme", "stream": "web", "words": "timeout db"}]
    whole = record("größer") + ALIVE + record("second")
    for at in range(0, len(whole), 7):
        server.say(whole[at : at + 7])
    wait_for(lambda: reader.look().records == 2, WAIT_S, "both records")
    assert [orjson.loads(line.data)["message"] for line in reader.look().lines] == ["second", "größer"]


def test_who_stops_hangs_up_at_once(server: TailServer, reader: TailReader) -> None:
    """Though no event comes that would wake the thread; the end is no error."""
    reader.start()
    wait_for(lambda: reader.look().is_open, WAIT_S, "the first event")
    reader.stop()
    assert not reader.is_running
    wait_for(lambda: server.tails == 0, WAIT_S, "the hanging up")
    reader._thread.join(WAIT_S)
    assert not reader._thread.is_alive()
    assert reader.look().error is None


def test_a_tail_ends_when_nobody_has_looked_for_long(
    server: TailServer, reader: TailReader, clock: Hands
) -> None:
    """It is asked at each sign of life."""
    reader.start()
    wait_for(lambda: reader.look().is_open, WAIT_S, "the first event")
    clock.now_s += NOBODY_LOOKS_S - 1
    server.say(record("still there"))
    wait_for(lambda: reader.look().records, WAIT_S, "a record while somebody looks")
    clock.now_s += NOBODY_LOOKS_S
    server.say(ALIVE)
    wait_for(lambda: server.tails == 0, WAIT_S, "the hanging up")
    reader._thread.join(WAIT_S)
    error = reader.look().error
    assert error is not None
    assert "nobody looked" in error.message


def test_a_tail_that_fails_says_why(server: TailServer, reader: TailReader) -> None:
    """In the words of whoever noticed it."""
    reader.start()
    wait_for(lambda: reader.look().is_open, WAIT_S, "the first event")
    server.say(event("failed", message="ingest does not answer"))
    wait_for(lambda: reader.look().has_ended, WAIT_S, "the end")
    error = reader.look().error
    assert error is not None
    assert error.message == "ingest does not answer"


UNREADABLE = [
    event("record", message="of no time"),
    event("record", timestamp="yesterday", severity=None, message="", stream="logs", fields={}),
    event("dropped", records="many"),
    event("failed"),
    b"event: record\ndata: <html>no JSON</html>\n\n",
    b"event: rejected\ndata: [1, 2]\n\n",
    b"event: dropped\n\n",
    b"event: \xff\xfe\ndata: \xff\n\n",
]


def test_an_event_that_cannot_be_read_keeps_its_place_and_the_tail_goes_on(
    server: TailServer, reader: TailReader
) -> None:
    """No JSON, no object, or not what its kind needs: each is counted, and its beginning is kept."""
    reader.start()
    wait_for(lambda: reader.look().is_open, WAIT_S, "the first event")
    server.say(record("before"), *UNREADABLE, record("after"))
    wait_for(lambda: reader.look().records == 2, WAIT_S, "the record behind them")
    view = reader.look()
    assert (view.unreadable, view.left_out, view.error, view.has_ended) == (len(UNREADABLE), 0, None, False)
    assert [line.kind for line in view.lines] == ["record", *["unreadable"] * len(UNREADABLE), "record"]
    assert view.lines[4].data == b"<html>no JSON</html>"


def test_whatever_ends_the_thread_is_told(
    reader: TailReader, server: TailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault of ours, too; and an answer that is no stream of events."""

    def fails(_: object) -> None:
        raise ZeroDivisionError("a fault of ours")

    monkeypatch.setattr(reader, "take", fails)
    monkeypatch.setattr("threading.excepthook", lambda _: None)
    reader.start()
    wait_for(lambda: reader.look().has_ended, WAIT_S, "the end")
    error = reader.look().error
    assert error is not None
    assert "nobody foresaw" in error.message
    server.kind = "text/html"
    other = TailReader(ApiClient(server.address), "acme", "", "")
    other.start()
    wait_for(partial(_has_ended, other), WAIT_S, "the end of the other")
    error = other.look().error
    assert error is not None
    assert "no stream of events (text/html)" in error.message


def test_a_refusal_is_told_when_it_stands(
    server: TailServer, reader: TailReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked once more, as the tail before may have ended just now; another refusal is told at once."""
    monkeypatch.setattr(tail_reader, "ONCE_MORE_AFTER_S", 0.01)
    server.refusals = [(429, FULL)]
    reader.start()
    wait_for(lambda: reader.look().is_open, WAIT_S, "the second attempt")
    reader.stop()
    for refusals, sentence in (([(429, FULL)] * 2, FULL), ([(403, "not yours")], "not yours")):
        server.refusals = [*refusals]
        other = TailReader(ApiClient(server.address), "acme", "", "")
        other.start()
        wait_for(partial(_has_ended, other), WAIT_S, "the refusal")
        error = other.look().error
        assert error is not None
        assert (error.status, error.message, server.refusals) == (refusals[0][0], sentence, [])
