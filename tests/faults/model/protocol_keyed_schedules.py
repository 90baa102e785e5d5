"""Schedules of keyed tables, written by hand: rows are deleted by position while the files that they are in
are replaced."""

from __future__ import annotations

from tests.faults.model.protocol_script import Script, commits, merges


def resolve_on_the_head(s: Script) -> None:
    """A file is merged away between the look for its rows and the commit that deletes one."""
    s.begin()
    s.read(1)
    s.work()
    s.read(1)
    s.work(hold=commits)
    s.do("maintain")
    s.deliver_held(commits)
    s.work()


def resolve_for_the_flushes(s: Script) -> None:
    """A flush is given up because its table is parked, and the drain takes a part of what it held, on the
    same head."""
    s.begin()
    s.read(2)
    s.work(hold=commits)
    s.fail()
    s.deliver_held(commits)
    s.work()
    s.heal()
    s.do("probe")
    s.work()


def vectors_keep_what_was(s: Script) -> None:
    """Two commits delete rows of one file."""
    s.begin()
    for count in (2, 1, 1):
        s.read(count)
        s.work()


def merges_carry_deletes(s: Script) -> None:
    """A row is deleted after a merge has read it, and before that commits."""
    s.begin()
    s.read(2)
    s.work()
    s.do("merge")
    s.read(1)
    s.work()
    s.do("merge_commit", 0, 0, 1)
    s.work()


def merges_assert_head(s: Script) -> None:
    """A row is deleted while the merge that has read it is on its way to the catalog."""
    s.begin()
    s.read(2)
    s.work()
    s.do("merge")
    s.do("merge_commit")
    s.read(1)
    s.work(hold=merges)
    s.deliver_held(merges)
    s.work()


def merges_need_their_inputs(s: Script) -> None:
    """Two merges have read the same file: that of an optimizer that was paused, and that of its successor."""
    s.begin()
    s.read(2)
    s.work()
    for _ in range(2):
        s.do("merge")
    for _ in range(2):
        s.do("merge_commit")
        s.work()


def merges_need_their_deletes(s: Script) -> None:
    """A merge leaves out a row that was deleted; then the table is rolled back to before the delete."""
    s.begin()
    for _ in range(2):
        s.read(1)
        s.work()
    s.do("merge")
    s.do("set_back")
    s.do("merge_commit")
    s.work()


# With each its changes, of one partition.
KEYED_SCHEDULES = {
    resolve_on_the_head: ("put 1", "put 1"),
    resolve_for_the_flushes: ("put 1", "put 2"),
    vectors_keep_what_was: ("put 1", "put 2", "delete 1", "delete 2"),
    merges_carry_deletes: ("put 1", "put 2", "put 1"),
    merges_assert_head: ("put 1", "put 2", "put 1"),
    merges_need_their_inputs: ("put 1", "put 2"),
    merges_need_their_deletes: ("put 1", "put 1"),
}
