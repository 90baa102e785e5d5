"""Schedules of the protocol's model written by hand: for rules that need so much to happen in one order that
chance does not bring it about."""

from __future__ import annotations

from dataclasses import replace

from tests.faults.model.protocol_keyed_schedules import KEYED_SCHEDULES
from tests.faults.model.protocol_rules import Rules, Violation
from tests.faults.model.protocol_script import Script, commits, group_writes, parkings, removals
from tests.faults.model.protocol_shared_schedules import SHARED_SCHEDULES


def parking_has_an_id(s: Script) -> None:
    """A node that was paused goes on sending to the topic, under a parking that its successor has ended,
    while another of the same table goes on."""
    s.begin()
    s.fail()
    s.read(1)
    s.work()
    s.read(3)  # they are on their way to the topic
    s.begin()
    s.heal()
    s.do("probe")
    s.work()
    for _ in range(2):
        s.do("acknowledge", 1)
    s.read(1)
    s.fail()
    s.work("acknowledge")
    s.do("acknowledge", 1)  # the third one, before the first one of the new parking
    s.work()
    s.heal()
    s.do("probe")
    s.work()


def release_when_known(s: Script) -> None:
    """The record that a node believes gone is still there when it reads all of them: it takes the parking up
    again, and then the record goes."""
    s.begin()
    s.fail()
    s.read(1)
    s.work()
    s.heal()
    s.do("probe")
    s.work(hold=removals)
    s.do("list")
    s.work(hold=removals)
    s.read(1)
    s.work(hold=removals)
    s.deliver_held(removals)
    s.do("crash")


def numbered_orders(s: Script) -> None:
    """A worker has held once, that was given up, and it parks again: its old answer must not count for the
    new order."""
    s.begin()
    s.fail()
    s.read(1)
    s.read(1, worker=1)
    s.work()
    s.heal()
    s.do("probe")
    s.work(hearing=[0])
    s.do("give_up")
    s.work(hearing=[0])
    s.do("probe")
    s.work(obeying=[0], hearing=[0])
    s.work(obeying=[0])
    s.read(1, worker=1)
    s.work()


def everybody_holds(s: Script) -> None:
    """One worker holds, and the rest is drained, while another still parks."""
    s.begin()
    s.fail()
    s.read(1)
    s.read(1, worker=1)
    s.work()
    s.heal()
    s.do("probe")
    s.work(obeying=[0])
    s.read(1, worker=1)
    s.work()


def record_under_lease(s: Script) -> None:
    """A node that was paused while it released a table goes on when its successor has parked more of it."""
    s.begin()
    s.fail()
    s.read(1)
    s.work()
    s.heal()
    s.do("probe")
    s.work(hold=removals)
    s.begin()
    s.read(1)
    s.work(hold=removals)
    s.deliver_held(removals)
    s.do("crash")


def record_once(s: Script) -> None:
    """A table is released and parked again; then the request that released it arrives a second time."""
    s.begin()
    s.fail()
    s.read(1)
    s.work()
    s.heal()
    s.do("probe")
    s.work(hold=removals)
    s.deliver_held(removals, "copy stays")
    s.work(hold=removals)
    s.fail()
    s.read(1)
    s.work(hold=removals)
    s.deliver_held(removals)
    s.do("crash")


def resolve_in_a_commit(s: Script) -> None:
    """A commit prepared before compaction and rollback finds the head that it asserts again, between a
    person's look and decision, in a catalog that does not compare sequence numbers."""
    s.w.rules = replace(s.w.rules, assert_sequence=False)
    s.begin()
    s.read(1)
    s.work()
    s.read(1)
    s.work(hold=commits)
    s.do("maintain")
    s.do("set_back")
    s.do("decide")
    s.deliver_held(commits)
    s.do("decide")


def assert_sequence(s: Script) -> None:
    """A copy of a commit that was refused comes when its files are deleted, and the head has been moved back
    to where the commit was prepared."""
    s.begin()
    s.read(1)
    s.work()
    s.read(1)
    s.work(hold=commits)
    s.do("maintain")
    s.deliver_held(commits, "copy stays")
    s.work(hold=commits)
    s.do("set_back")
    s.deliver_held(commits)


def dead_letters_first(s: Script) -> None:
    """A table takes what stands before and behind a bad record, whose dead letter then does not arrive."""
    s.w.log[0][1] = s.w.log[0][1]._replace(bad=True)
    s.begin()
    s.read(2)
    s.work("acknowledge")
    s.do("crash")


def offsets_wait_for_the_lease(s: Script) -> None:
    """A node that was paused has parked a record under a parking that its successor has ended, and stores the
    offset behind it."""
    s.begin()
    s.fail()
    s.read(1)
    s.work()
    s.read(1)
    s.begin()
    s.heal()
    s.do("probe")
    s.work()
    for action in ("acknowledge", "say_durable", "hear", "confirm", "obey"):
        s.do(action, 1)
    s.deliver_held(group_writes)
    s.do("crash")


def record_before_parking(s: Script) -> None:
    """The topic has the records, and nobody ever hears that the table was parked."""
    s.begin()
    s.fail()
    s.read(1)
    s.work(hold=parkings)
    s.deliver_held(parkings, "lost")
    s.do("crash")


def refuse_live_while_parked(s: Script) -> None:
    """A flush of one worker is heard late, when another one drains the same records from the topic: one
    commit would take both."""
    s.begin()
    s.read(1)
    s.read(1, worker=1)
    s.work(hearing=[])
    s.fail()
    s.work(obeying=[1], hearing=[0])
    s.work(hearing=[0])
    s.heal()
    s.do("probe")
    s.work("begin_job", hearing=[0])
    s.work("begin_job")
    s.work()


def take_up_before_known(s: Script) -> None:
    """A person has decided about a rollback before a node hears of it; the node, which has not met the table
    yet, has newer records."""
    s.begin()
    for _ in range(2):
        s.read(1)
        s.work()
    s.do("crash")
    s.begin()
    s.do("set_back")
    s.do("decide")
    s.do("decide")
    s.read(1)
    for action in ("load", "check", "open", "obey", "cut", "hand_over", "hear", "begin_job", "attempt"):
        s.do(action)
    s.deliver_held(commits)


def known_under_the_lease(s: Script) -> None:
    """A restored database takes a commit and the lease away from a node that has not met the table yet."""
    s.begin()
    s.read(1)
    s.work()
    s.do("set_back", 0, 1)
    s.read(1)
    s.work()
    s.do("crash")
    s.begin()
    s.do("set_back", 0, 1)
    s.read(1)
    s.work()


def marks_never_go_back(s: Script) -> None:
    """A restored database takes a commit away, while node and lease go on."""
    s.begin()
    s.read(1)
    s.work()
    s.do("set_back", 0, 1)
    s.read(1)
    s.work()
    s.do("set_back", 0, 1)
    s.read(1)
    s.work()


def forget_what_was(s: Script) -> None:
    """A running node takes up what a person has decided about a rollback; it must not measure the table by
    what it knew."""
    s.begin()
    for _ in range(2):
        s.read(1)
        s.work()
    s.do("set_back")
    s.do("list")
    s.work()
    s.do("decide")
    s.do("decide")
    s.do("list")
    s.do("probe")
    s.work()
    if s.w.parked:
        raise Violation("a table that a person has decided about is parked again")


def notice_vanished(s: Script) -> None:
    """The same with a table that the copy does not have."""
    s.begin()
    s.do("set_back", 0, 1)
    s.read(1)
    s.work()
    s.do("set_back", 0, 1)
    s.read(1)
    s.work()


def reread_what_is_parked(s: Script) -> None:
    """A restored database takes a commit away, while node and lease go on, and the next record is parked;
    then all topics are read again, and what was taken away would come behind it."""
    s.begin()
    s.do("set_back", 0, 1)
    s.read(1)
    s.work()
    s.do("set_back", 0, 1)
    s.fail()
    s.read(1)
    s.work()
    s.do("crash")
    s.heal()
    for _ in range(2):
        s.begin()
    s.read(4)
    s.work()
    s.do("probe")
    s.work()


def keep_newer_checkpoint(s: Script) -> None:
    """A node that has met no table stores an offset; then a database is restored that lacks what a node
    before it has committed."""
    s.w.log[0][1] = s.w.log[0][1]._replace(table=None, bad=True)
    s.begin()
    s.do("set_back", 0, 1)
    s.read(1)
    s.work()
    s.do("crash")
    s.begin()
    s.read(1)
    s.work()
    s.do("crash")
    s.do("set_back", 0, 1)
    s.begin()


SCHEDULES = {
    schedule.__name__: schedule
    for schedule in (
        parking_has_an_id,
        release_when_known,
        numbered_orders,
        everybody_holds,
        record_under_lease,
        record_once,
        resolve_in_a_commit,
        assert_sequence,
        dead_letters_first,
        offsets_wait_for_the_lease,
        record_before_parking,
        refuse_live_while_parked,
        take_up_before_known,
        known_under_the_lease,
        marks_never_go_back,
        forget_what_was,
        notice_vanished,
        reread_what_is_parked,
        keep_newer_checkpoint,
        *SHARED_SCHEDULES,
        *KEYED_SCHEDULES,
    )
}
PARTITIONS = {
    "numbered_orders": (1, 2),
    "everybody_holds": (1, 2),
    "refuse_live_while_parked": (1, 1),
    "nothing_parked_is_shared": (2, 2),
    "one_node_parks": (2, 2),
}


def play(name: str, rules: Rules) -> None:
    """Raises Violation where something is lost or doubled."""
    schedule = SCHEDULES[name]
    changes = KEYED_SCHEDULES.get(schedule)
    if changes is None:
        script = Script(rules, PARTITIONS.get(name, (4,)))
        script.w.shares = 2 if schedule in SHARED_SCHEDULES else 1
    else:
        script = Script.keyed(rules, changes, vectors=name == "vectors_keep_what_was")
    schedule(script)
    script.end()
