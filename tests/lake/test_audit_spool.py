"""Events on their way: a crash, an outage or a full disk loses none, and who may not wait does not."""

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import orjson
import pytest

from lake.audit import trail, trail_metrics
from lake.audit.event import GENESIS, Head, hash_of, make_event, parameters_text
from lake.audit.spool import Spool, TrailLostError
from lake.audit.trail import AuditTrail
from lake.errors import PrerequisiteError, UnavailableError
from tests.ingest.support.fake_clock import FakeClock
from tests.stack.support.waiting import wait_for

PLENTY = 1 << 20
AT = datetime(2026, 11, 26, 23, 59, 59, 123456, UTC)


class Topic:
    """What Kafka has; while `is_out` nobody answers."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.is_out = False

    def send(self, lines: Sequence[bytes]) -> None:
        if self.is_out:
            raise UnavailableError("Kafka does not answer")
        self.lines += lines

    @property
    def actions(self) -> list[str]:
        return [orjson.loads(line)["event.action"] for line in self.lines]


def _chain(lines: Sequence[bytes]) -> list[int]:
    """The sequences of a chain, of which each link was looked at."""
    before = GENESIS
    for line in lines:
        event = orjson.loads(line)
        assert orjson.loads(event["event.original"])["firn.previous"] == before
        assert hash_of(event["event.original"].encode()) == event["event.hash"]
        before = event["event.hash"]
    return [orjson.loads(line)["event.sequence"] for line in lines]


def test_events_are_one_chain_over_restarts_and_files(tmp_path: Path) -> None:
    """Files of a few events each; every restart goes on behind the last; acknowledged files go."""
    topic, sent = Topic(), 0
    for start in range(3):
        spool = Spool(tmp_path, PLENTY, segment_bytes=2_000)
        trail = AuditTrail(spool, topic.send, required=True)
        for at in range(7):
            trail.note({"event.action": f"{start}.{at}"})
        if start != 1:  # the second process ends before it sends
            while trail.send_batch():
                pass
            sent = spool.head.sequence
        assert spool.waiting == 7 * (start + 1) - sent
        spool.close()
    assert _chain(topic.lines) == list(range(1, 22))
    assert topic.actions == [f"{start}.{at}" for start in range(3) for at in range(7)]
    assert len({orjson.loads(line)["firn.writer"] for line in topic.lines}) == 1
    assert len(list(tmp_path.glob("*.ndjson"))) == 1


def test_a_line_that_a_crash_tore_is_no_event(tmp_path: Path) -> None:
    """Half a line, a line of zeros, a new file that is empty: the chain goes on behind the last whole one."""
    topic = Topic()
    for torn in (b'{"event.action":"half', b"\0" * 300 + b"\n", b""):
        spool = Spool(tmp_path, PLENTY)
        AuditTrail(spool, topic.send, required=True).note({"event.action": "whole"})
        spool.close()
        with max(tmp_path.glob("*.ndjson")).open("ab") as file:
            file.write(torn)
    (tmp_path / f"{4:020d}.ndjson").touch()
    spool = Spool(tmp_path, PLENTY)
    trail = AuditTrail(spool, topic.send, required=True)
    trail.note({"event.action": "after"})
    while trail.send_batch():
        pass
    assert _chain(topic.lines) == [1, 2, 3, 4]
    assert (tmp_path / f"{4:020d}.ndjson").stat().st_size > 0


def test_a_damaged_end_is_told_instead_of_forked(tmp_path: Path) -> None:
    """Where the newest file has lost its events no second chain of the same name begins."""
    spool = Spool(tmp_path, PLENTY, segment_bytes=1)
    for _ in range(3):
        spool.append({"event.action": "x"})
    spool.close()
    for each in sorted(tmp_path.glob("*.ndjson"))[1:]:
        each.write_bytes(b"")
    with pytest.raises(PrerequisiteError, match="a new chain begins"):
        Spool(tmp_path, PLENTY)


def test_an_outage_delays_nobody_and_loses_nothing(tmp_path: Path) -> None:
    """While Kafka is away events wait on the disk; a send whose answer was lost is repeated whole."""
    topic = Topic()
    spool = Spool(tmp_path, PLENTY, segment_bytes=1_500)
    trail = AuditTrail(spool, topic.send, required=True)
    topic.is_out = True
    trail.begin_act({"event.action": "act"})
    trail.note({"event.action": "search"})
    with pytest.raises(UnavailableError):
        trail.send_batch()
    assert spool.waiting == 2
    topic.is_out = False
    assert trail.send_batch() == 2
    assert (topic.actions, trail.send_batch()) == (["act", "search"], 0)


def test_a_full_trail_stops_acts_and_no_search(tmp_path: Path) -> None:
    """The sentence says why and what to do; what could not be told is counted; room comes with what Kafka
    acknowledges."""
    topic = Topic()
    spool = Spool(tmp_path, 3_000, segment_bytes=1_000)
    trail = AuditTrail(spool, topic.send, required=True)
    lost = {kind: trail_metrics.LOST.labels(kind)._value.get() for kind in ("act", "search")}
    while trail_metrics.LOST.labels("search")._value.get() == lost["search"]:
        trail.note({"event.action": "search"})
    with pytest.raises(TrailLostError, match=r"events wait .* audit\.required"):
        _act_until_refused(trail)
    assert trail_metrics.LOST.labels("act")._value.get() == lost["act"] + 1
    AuditTrail(spool, topic.send, required=False).begin_act({"event.action": "act"})
    while trail.send_batch():
        pass
    trail.begin_act({"event.action": "act"})
    while trail.send_batch():
        pass
    assert _chain(topic.lines) == list(range(1, len(topic.lines) + 1))
    assert topic.actions[-1] == "act"


def _act_until_refused(trail: AuditTrail) -> None:
    while True:
        trail.begin_act({"event.action": "act"})


def test_searches_leave_room_for_acts(tmp_path: Path) -> None:
    """Whoever may search fills the trail while Kafka is away, but for its last tenth."""
    spool = Spool(tmp_path, 100_000)
    trail = AuditTrail(spool, Topic().send, required=True)
    lost = trail_metrics.LOST.labels("search")._value.get()
    while trail_metrics.LOST.labels("search")._value.get() == lost:
        trail.note({"event.action": "search"})
    for _ in range(5):
        trail.begin_act({"event.action": "act"})


def test_a_disk_that_takes_nothing_stops_acts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An event that is half there is none: what is written after it is whole."""
    spool = Spool(tmp_path, PLENTY)
    trail = AuditTrail(spool, Topic().send, required=True)
    whole = os.write
    monkeypatch.setattr(os, "write", lambda file, data: whole(file, data[:10]))
    with pytest.raises(TrailLostError, match="cannot be written"):
        trail.begin_act({"event.action": "act"})
    monkeypatch.undo()
    trail.begin_act({"event.action": "act"})
    assert _chain(next(iter(tmp_path.glob("*.ndjson"))).read_bytes().splitlines()) == [1]


def test_an_act_is_on_the_disk_before_it_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches leave that to the system; a disk that fails to sync stops the act."""
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    trail = AuditTrail(Spool(tmp_path, PLENTY), Topic().send, required=True)
    synced.clear()
    trail.note({"event.action": "search"})
    assert synced == []
    trail.begin_act({"event.action": "act"})
    assert len(synced) == 1

    def fails(_: int) -> None:
        raise OSError(5, "input/output error")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(TrailLostError):
        trail.begin_act({"event.action": "act"})


def test_one_process_writes_and_nobody_else_reads(tmp_path: Path) -> None:
    """A second one is refused until the first has ended; files are for their owner alone."""
    folder = tmp_path / "audit"
    first = Spool(folder, PLENTY)
    first.append({"event.action": "x"})
    with pytest.raises(PrerequisiteError, match="another process"):
        Spool(folder, PLENTY)
    assert [each for each in (folder, *folder.iterdir()) if each.stat().st_mode & 0o077] == []
    first.close()
    Spool(folder, PLENTY).close()


def test_times_follow_the_chain(tmp_path: Path) -> None:
    """A clock that goes back stands still in the trail, so that an order by time is the chain's."""
    clock = FakeClock()
    clock.s = 86_399.123456
    spool = Spool(tmp_path, PLENTY, clock=clock)
    spool.append({})
    clock.s -= 60
    spool.append({})
    assert spool.head.at == "2026-01-01T23:59:59.123456Z"
    clock.s += 61
    spool.append({})
    assert spool.head.at == "2026-01-02T00:00:00.123456Z"


def test_no_secret_stands_in_an_event() -> None:
    """Keys wherever they are typed, passwords in addresses; what is too long is cut, and says so."""
    event = make_event(
        {
            "firn.query": "firn_0123456789ab_c2VjcmV0LXNlY3JldA here",
            "firn.parameters": '{"uri":"https://me:pass@host/x"}',
            "event.reason": "x" * 70_000,
            "odd": "\ud800",
            "asked": parameters_text({"b": ["\ud800", 1 << 70], "a": AT}),
        },
        "w",
        Head(),
        AT,
    )
    text = event.line.decode()
    assert "c2VjcmV0" not in text
    assert "firn_0123456789ab_... here" in text
    assert "pass@" not in text
    assert "(70,000 characters)" in text
    assert (
        orjson.loads(event.line)["asked"]
        == '{"a":"2026-11-26 23:59:59.123456+00:00","b":["?",1180591620717411303424]}'
    )


def test_nothing_is_sent_that_the_disk_has_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a machine that goes down forgets an event that the topic has, and another one takes its number."""
    topic = Topic()
    trail = AuditTrail(Spool(tmp_path, PLENTY), topic.send, required=True)
    trail.note({"event.action": "search"})

    def fails(_: int) -> None:
        raise OSError(5, "input/output error")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(TrailLostError):
        trail.send_batch()
    monkeypatch.undo()
    assert topic.lines == []
    assert trail.send_batch() == 1


@pytest.mark.long
def test_what_waits_shows_while_nobody_takes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The figure of an alert, which would else stay as it was before the outage."""
    monkeypatch.setattr(trail, "SEND_EVERY_S", 0.01)
    topic = Topic()
    topic.is_out = True
    told = AuditTrail(Spool(tmp_path, PLENTY), topic.send, required=True)
    told.start()
    try:
        for at in range(3):
            told.note({"event.action": str(at)})
        wait_for(lambda: trail_metrics.WAITING._value.get() == 3, 10.0, "the figure")
        topic.is_out = False
        wait_for(lambda: trail_metrics.WAITING._value.get() == 0, 10.0, "the figure")
    finally:
        told.stop()
