"""What happens to a table, and what follows: the states, events and commands of `TableLifecycle`."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from ingest.model.link import Outcome, WrittenFlush
from ingest.model.parked_record import ParkedRecord
from ingest.model.trouble import Trouble
from lake.catalog_client import CommitStatus
from lake.commit import Prepared, TableState
from lake.marks import Marks


class State(Enum):
    """Where a table is in its life."""

    UNKNOWN = "unknown"
    LOADING = "loading"
    POSTPONED = "postponed"
    LIVE = "live"
    COMMITTING = "committing"
    WRITING = "writing"
    PARKED = "parked"
    OPENING = "opening"
    DRAINING = "draining"
    HOLDING = "holding"
    FINISHING = "finishing"
    RELEASING = "releasing"


AT_WORK = frozenset({State.OPENING, State.DRAINING, State.HOLDING, State.FINISHING})
DRAINS = frozenset({State.DRAINING, State.FINISHING})


class RequestKind(Enum):
    """What is asked of the catalog about a table's parked record, until an answer is known."""

    PUT = "put"
    REMOVE = "remove"
    FIND = "find"


@dataclass(frozen=True, slots=True)
class Flushed:
    """A worker's written flush."""

    worker: int
    flush: WrittenFlush


# ---- events: loading


class Want(NamedTuple):
    """Somebody has to know the table; it is loaded again and again until it is known."""


class BeginLoad(NamedTuple):
    """It is time to load it."""


class Loaded(NamedTuple):
    """What was found, or has just been created. `number`: of the loading that it is the answer to."""

    number: int
    state: TableState


class Gone(NamedTuple):
    """There is no such table. `dropped`: the one that was known, if any, was dropped."""

    number: int
    dropped: bool


class LoadFailed(NamedTuple):
    """The table could not be loaded or created."""

    number: int
    trouble: Trouble


class BeginCheck(NamedTuple):
    """The lease and the parked records are asked for from here on."""


class NotChecked(NamedTuple):
    """They could not be."""

    number: int


class Checked(NamedTuple):
    """The lease was in force, and this was the table's parked record. `live`: whether live marks are moved
    here; what is known of parkings does not matter to others."""

    number: int
    record: ParkedRecord | None
    live: bool


class MayCreate(NamedTuple):
    """One more table may be created."""


class MayNotCreate(NamedTuple):
    """Nobody wants to know the table any more: it does not exist, and is not to."""


class Outdated(NamedTuple):
    """Somebody may have changed the table: it is to be loaded before it is used again."""


# ---- events: commits


class Submitted(NamedTuple):
    """A worker hands a written flush over."""

    flushed: Flushed


class Gather(NamedTuple):
    """The flushes that wait become one commit, where none is under way."""


class Compare(NamedTuple):
    """The commit's turn has come; these are the marks of the table's state, which is known."""

    marks: Marks


class Sent(NamedTuple):
    """The commit is on its way to the catalog."""

    prepared: Prepared


class Answered(NamedTuple):
    """What became of it, as far as anybody knows. `parks`, `dead_letters`: where records go whose table was
    dropped; neither: the table is created anew, or nobody can say yet."""

    prepared: Prepared
    status: CommitStatus
    message: str = ""
    trouble: Trouble | None = None
    parks: bool = True
    dead_letters: bool = False


# ---- events: parking


class ParkTable(NamedTuple):
    """It is certain that the table's trouble is its own."""

    trouble: Trouble


class Failed(NamedTuple):
    """What is drained of a parked table could not be written."""

    trouble: Trouble


class HeldBy(NamedTuple):
    """One of `workers` has all that it parked acknowledged, and lets the table's messages wait."""

    worker: int
    workers: int
    number: int


class DrainEnded(NamedTuple):
    """A worker has come to the end of what was parked, at `reached` in the parking topic; or, with `trouble`,
    could not go on."""

    number: int
    reached: int = 0
    trouble: Trouble | None = None


class Tick(NamedTuple):
    """Time goes on."""


class Probe(NamedTuple):
    """A parked table is to be tried again."""


class RecordRead(NamedTuple):
    """The parked record as the catalog has it; None: it has none. `read_s`: when reading it began."""

    record: ParkedRecord | None
    read_s: float


class RecordWritten(NamedTuple):
    """The answer to a PUT or REMOVE: the record as it was sent, and its version now; None where somebody else
    has changed it."""

    key: str
    record: ParkedRecord
    version: int | None


class RecordFound(NamedTuple):
    """The answer to a FIND."""

    key: str
    record: ParkedRecord | None


class NotAnswered(NamedTuple):
    """Nobody knows what became of a request; `record` as it was sent."""

    key: str
    record: ParkedRecord


Event = (
    Want
    | BeginLoad
    | Loaded
    | Gone
    | LoadFailed
    | BeginCheck
    | NotChecked
    | Checked
    | MayCreate
    | MayNotCreate
    | Outdated
    | Submitted
    | Gather
    | Compare
    | Sent
    | Answered
    | ParkTable
    | Failed
    | HeldBy
    | DrainEnded
    | Tick
    | Probe
    | RecordRead
    | RecordWritten
    | RecordFound
    | NotAnswered
)

# ---- commands: loading


class LoadTable(NamedTuple):
    """Load the table; Loaded, Gone or LoadFailed answers with the number. `known`: what was known of it."""

    number: int
    known: TableState | None


class CreateTable(NamedTuple):
    """Create the table, or prepare that; answered as LoadTable is."""

    number: int


class BecameKnown(NamedTuple):
    """Say to all who asked for it that the table may be written to."""

    state: TableState


class LoadTrouble(NamedTuple):
    """A live table, or one of which nothing is known, cannot be loaded: somebody has to judge that."""

    trouble: Trouble


# ---- commands: commits


class Commit(NamedTuple):
    """Send the commit, as soon as there is room: the one that is out already, or what its flushes make."""


class Settle(NamedTuple):
    """Tell the workers of flushes what became of them."""

    flushes: Sequence[Flushed]
    outcome: Outcome


class Took(NamedTuple):
    """The table has taken so many rows. `after`: its state, where this node's own commit was acknowledged."""

    rows: int
    after: TableState | None = None


class NoteAhead(NamedTuple):
    """Somebody else has moved the marks on."""

    state: TableState


class Discard(NamedTuple):
    """Delete the metadata files of an attempt that has certainly not been applied: the table is known without
    it. A copy of its request that comes late is refused even if the head was moved back to where the attempt
    stood: by then its sequence number was there (Iceberg's specification, "Sequence Numbers")."""

    prepared: Prepared


class CommitTrouble(NamedTuple):
    """A live table does not take a commit: somebody has to judge that."""

    trouble: Trouble


# ---- commands: parking


class Entered(NamedTuple):
    """Say how far a parked table is."""

    stage: State


class Ask(NamedTuple):
    """Ask the catalog about the parked record; an identical request keeps its key."""

    kind: RequestKind
    record: ParkedRecord
    key: str


class TellParked(NamedTuple):
    """All workers: send the table's messages to the parking topic, under this parking."""

    id: str


class TellHold(NamedTuple):
    """All workers: have what was parked acknowledged, and let what comes wait; HeldBy answers."""

    number: int


class StartDrain(NamedTuple):
    """One worker: write what is parked, from `start` in the parking topic on; DrainEnded answers."""

    number: int
    record: ParkedRecord
    start: int
    reread: bool


class GiveUp(NamedTuple):
    """Say that the table does not take its records yet."""

    state: State
    trouble: Trouble


class StopDrain(NamedTuple):
    """That worker: the table is not to be drained any further for now."""


class TellReleased(NamedTuple):
    """All workers: the table takes rows again."""

    record: ParkedRecord


Command = (
    LoadTable
    | CreateTable
    | BecameKnown
    | LoadTrouble
    | Commit
    | Settle
    | Took
    | NoteAhead
    | Discard
    | CommitTrouble
    | Entered
    | Ask
    | TellParked
    | TellHold
    | StartDrain
    | StopDrain
    | GiveUp
    | TellReleased
)
