"""How schedules of the protocol's model are written by hand: a world with one table, and one step after the
other."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ingest.model.link import TableKey
from tests.faults.model.protocol_check import check_rows
from tests.faults.model.protocol_model import ACTIONS, FAULTS, KEYED_FAULTS, come_to_rest
from tests.faults.model.protocol_rules import Rules
from tests.faults.model.protocol_table import Record
from tests.faults.model.protocol_world import Commit, GroupWrite, MergeCommit, Message, ParkedWrite, World

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
    "merge_commit",
    *FAULTS,
    *KEYED_FAULTS,
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


def merges(message: Message) -> bool:
    """Messages that replace files."""
    return isinstance(message.body, MergeCommit)


def group_writes(message: Message) -> bool:
    return isinstance(message.body, GroupWrite)


def nothing(_: Message) -> bool:
    return False


class Script:
    """A world with one table `a`, and one worker per partition. The newest node is the one that acts where
    nothing else is said."""

    def __init__(self, rules: Rules, records: Iterable[int]) -> None:
        """A table that appends. `records`: how many there are, by partition."""
        log = [
            [Record(p, offset, "a", bad=False) for offset in range(count)] for p, count in enumerate(records)
        ]
        self.w = World(rules, log, len(log), own=True)

    @classmethod
    def keyed(cls, rules: Rules, changes: Iterable[str], *, part: int = 100, vectors: bool = False) -> Script:
        """The table has a key. `changes` of one partition: an operation, and a key where it has one."""
        script = cls(rules, (0,))
        for offset, (op, *keys) in enumerate(change.split() for change in changes):
            record = Record(0, offset, "a", bad=False, op=op, key=int(keys[0]) if keys else 0)
            script.w.log[0].append(record)
        script.w.keyed["a"] = TableKey(("id",), "upsert", "offset")
        script.w.part, script.w.vectors = part, vectors
        return script

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
