"""Schedules of the protocol's model written by hand: for rules that need so much to happen in one order that
chance does not bring it about."""

from collections.abc import Callable, Iterable

from tests.faults.model.protocol_model import ACTIONS, FAULTS, come_to_rest
from tests.faults.model.protocol_world import (
    Commit,
    GroupWrite,
    Message,
    ParkedWrite,
    Record,
    Rules,
    Violation,
    World,
    check_rows,
)

# What would go on for ever, or has to be said.
_ON_DEMAND = {
    "deliver",
    "poll",
    "route",
    "probe",
    "list",
    "time_out",
    "write_again",
    "start",
    "decide",
    *FAULTS,
}
_BY_WORKER = {"acknowledge", "cut", "hand_over", "obey", "drain", "say_durable", "hear", "open"}
FATES = ("", "", "", "answer lost", "copy stays", "lost")
Held = Callable[[Message], bool]


def removals(message: Message) -> bool:
    """Messages that take a parked record away."""
    return isinstance(message.body, ParkedWrite) and message.body.record is None


def parkings(message: Message) -> bool:
    """Messages that write a parked record."""
    return isinstance(message.body, ParkedWrite) and message.body.record is not None


def commits(message: Message) -> bool:
    """Messages that change a table."""
    return isinstance(message.body, Commit)


def group_writes(message: Message) -> bool:
    return isinstance(message.body, GroupWrite)


def nothing(_: Message) -> bool:
    return False


class Script:
    """A world with one table `a`, and one worker per partition. The newest node is the one that acts where
    nothing else is said."""

    def __init__(self, rules: Rules, records: Iterable[int]) -> None:
        """`records`: how many there are, by partition."""
        log = [
            [Record(p, offset, "a", bad=False) for offset in range(count)] for p, count in enumerate(records)
        ]
        self.w = World(rules, log, len(log), own=True)

    def do(self, action: str, *picks: int) -> None:
        """One step, if it can be taken; picks that are not given are 0."""
        left = iter(picks)
        ACTIONS[action](self.w, lambda n: next(left, 0) % n)
        check_rows(self.w)

    def begin(self) -> None:
        """A node starts, and begins to read."""
        self.do("start" if not self.w.nodes else "take_over")
        self.do("start")

    def read(self, count: int, worker: int = 0) -> None:
        """The newest node routes records of a worker's partition."""
        for _ in range(count):
            self.do("poll", 0, worker)
            self.do("route", 0, worker)

    def work(
        self,
        *without: str,
        hold: Held = nothing,
        obeying: Iterable[int] = range(9),
        hearing: Iterable[int] = range(9),
    ) -> None:
        """The newest node does all that it can but these actions, and what is in the air arrives but what is
        held.

        `obeying`, `hearing`: the workers that take orders, and those that are heard.
        """
        moved = True
        while moved:
            steps = sum(
                self._one(name, obeying, hearing) for name in ACTIONS if name not in {*_ON_DEMAND, *without}
            )
            moved = (
                steps + sum(self.deliver(message) for message in list(self.w.air) if not hold(message)) > 0
            )

    def _one(self, name: str, obeying: Iterable[int], hearing: Iterable[int]) -> int:
        workers = (
            {"obey": obeying, "hear": hearing}.get(name, range(len(self.w.log)))
            if name in _BY_WORKER
            else (0,)
        )
        return sum(self._try(name, worker) for worker in workers if worker < len(self.w.log))

    def _try(self, name: str, worker: int) -> bool:
        picks = iter((0, worker) if name in _BY_WORKER else ())
        done = ACTIONS[name](self.w, lambda n: next(picks, 0) % n) is not None
        check_rows(self.w)
        return done

    def deliver(self, message: Message, fate: str = "") -> bool:
        """One message arrives."""
        self.do("deliver", self.w.air.index(message), FATES.index(fate))
        return True

    def deliver_held(self, held: Held, fate: str = "") -> None:
        """Those that were held arrive."""
        for message in [message for message in self.w.air if held(message)]:
            self.deliver(message, fate)

    def fail(self) -> None:
        """The table takes nothing from here on."""
        self.w.failing.add("a")

    def heal(self) -> None:
        self.w.failing.clear()

    def end(self) -> None:
        """All is healed, and comes to rest."""
        come_to_rest(self.w, [])


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
    person's look and decision."""
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


SCRIPTS = {
    script.__name__: script
    for script in (
        parking_has_an_id,
        release_when_known,
        numbered_orders,
        everybody_holds,
        record_under_lease,
        record_once,
        resolve_in_a_commit,
        dead_letters_first,
        offsets_wait_for_the_lease,
        record_before_parking,
        refuse_live_while_parked,
        take_up_before_known,
        known_under_the_lease,
        marks_never_go_back,
        forget_what_was,
        notice_vanished,
        keep_newer_checkpoint,
    )
}
PARTITIONS = {"numbered_orders": (1, 2), "everybody_holds": (1, 2), "refuse_live_while_parked": (1, 1)}


def play(name: str, rules: Rules) -> None:
    """Raises Violation where something is lost or doubled."""
    script = Script(rules, PARTITIONS.get(name, (4,)))
    SCRIPTS[name](script)
    script.end()
