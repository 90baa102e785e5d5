"""What goes on with a table: the way to being known, the commit of its flushes, its parking."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from ingest.commit.table_events import Flushed, RequestKind, State
from ingest.model.parked_record import ParkedRecord
from ingest.model.trouble import Cause, Trouble
from lake.commit import Prepared, TableState
from lake.marks import Range, TopicPartition

PROBE_FIRST_S = 2.0


class LoadStep(Enum):
    """How far a table is that is to be known."""

    DUE = "due"  # to be loaded, once it is time
    ASKED = "asked"  # being loaded, or created
    LOADED = "loaded"  # the lease and the parked records are to be asked
    CHECKING = "checking"  # and are
    POSTPONED = "postponed"  # it does not exist, and may not be created yet


@dataclass(slots=True)
class Loading:
    """The way of a table to being known. `number`: what comes of a way that was given up does not count."""

    number: int
    step: LoadStep = LoadStep.DUE
    found: TableState | None = None
    not_before_s: float = 0.0
    tries: int = 0


@dataclass(slots=True)
class Job:
    """The flushes of all workers for one table, merged into one commit; `sent` is out or of unknown
    outcome. `was_unknown`: that was once so. `refused`: an attempt that was not applied, whose files are
    there yet."""

    flushes: list[Flushed]
    sent: Prepared | None = None
    sent_on: TableState | None = None
    was_unknown: bool = False
    refused: Prepared | None = None
    in_air: bool = False
    not_before_s: float = 0.0
    tries: int = 0

    @property
    def ranges(self) -> Mapping[TopicPartition, Range]:
        """The offsets it covers."""
        return {p: r for flushed in self.flushes for p, r in flushed.flush.ranges.items()}

    @property
    def rows(self) -> int:
        """How many rows it brings."""
        return sum(flushed.flush.rows for flushed in self.flushes)


@dataclass(slots=True)
class Parked:
    """What there is to know of a table that is parked.

    `told`: the id of the parking under which workers send its messages to the topic; empty where they do not.
    `request` is to be asked, and `asked` says that it is on its way; `key` stays the same while an identical
    change is repeated. `changed_s`: when the version of the record became known, so that older listings are
    told apart. `number`: of the hold or drain that goes on. `reached`: offset of the parking topic below
    which all is drained, once it is held.
    """

    record: ParkedRecord
    probe_after_s: float = PROBE_FIRST_S
    stage: State = State.WRITING
    told: str = ""
    request: RequestKind | None = None
    asked: bool = False
    key: str = ""
    not_before_s: float = 0.0
    held: set[int] = field(default_factory=set)
    number: int = 0
    since_s: float = 0.0
    changed_s: float = 0.0
    tries: int = 0
    reached: int = 0

    def awaits(self, key: str) -> bool:
        """Whether the answer to this request is still to come."""
        return self.asked and self.key == key


def moved_back(state: TableState) -> Trouble:
    """What is said of a table whose head is older than its marks."""
    head = state.head_marks.to_property() if state.head_marks is not None else "none"
    return Trouble(
        Cause.ROLLED_BACK,
        f"table {state.name} was moved back: its marks are {state.marks.to_property()}, those of its "
        f"snapshot {head}",
    )
