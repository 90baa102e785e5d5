"""Schedules of the protocol's model written by hand: two nodes that share the input, one partition each."""

from __future__ import annotations

from tests.faults.model.protocol_script import Script


def _begin_two(s: Script, first: int) -> None:
    """A node starts with this share, and then one with the other, which is the newest; where one has to have
    all, the first does."""
    s.do("start", 0, first)
    s.do("start", 0)
    s.do("start")
    s.do("start")


def nothing_parked_is_shared(s: Script) -> None:
    """One node has parked a record of the second partition and dies; whoever reads that partition from where
    the group is, and commits, leaves the record behind."""
    s.do("start", 1)  # all shares
    s.do("start")
    s.fail()
    s.read(1, worker=1)
    s.work()
    s.heal()
    s.do("crash")
    _begin_two(s, 0)
    s.read(1)
    s.work()


def one_node_parks(s: Script) -> None:
    """One of two nodes releases the table, as all of its own workers hold; what the other parks behind that
    nobody looks for."""
    _begin_two(s, 1)
    s.fail()
    s.read(1)
    s.work()
    s.do("list", 1)
    s.do("obey", 1)
    s.do("poll", 1)
    s.do("route", 1)
    s.heal()
    s.do("probe")
    s.work()
    for action in ("acknowledge", "say_durable", "hear", "confirm", "obey"):
        s.do(action, 1)
    s.work()
    s.do("crash", 1)


SHARED_SCHEDULES = (nothing_parked_is_shared, one_node_parks)
