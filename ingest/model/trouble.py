"""Why a table takes no rows for now, and whether it is alone with that: a table that keeps failing alone is
parked, an outage parks nobody.

verdict     what a working catalog says of this one table (moved back, dropped, columns that cannot hold our
            rows): parked at once
suspicion   anything that an outage may look like too: parked when it has lasted `tables.park_after_s`, few
            tables have it at the same time while others take rows, the probe (`health_probe.py`) shows that
            catalog and storage work, and the table fails once more after that
never       the disk is full, the schema registry does not answer: whom it concerns waits
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum

from lake.catalog_client import MetadataMissingError, NoAnswerError
from lake.errors import FatalError, FirnError, PrerequisiteError, UnavailableError
from lake.marks import NO_MARKS, Marks
from lake.tenant import TableId

ATTEMPTS_MIN = 3
# So many tables may fail at the same time, or this share of those that got rows lately, and each still counts
# as failing alone.
FEW_TABLES = 5
FEW_SHARE = 0.1
LATELY_S = 600.0


class RegistryUnavailableError(UnavailableError):
    """The schema registry does not answer: whoever needs it waits."""


class Cause(StrEnum):
    """Why a table takes no rows; the reason of its parked record, and what operators count by."""

    ROLLED_BACK = "rolled_back"  # moved back to an earlier state; waits for a person
    RESOLVED = "resolved"  # a person has said what to do about that
    PARKING_LOST = "parking_lost"  # what was parked is gone from the parking topic; waits for a person
    DELETED = "deleted"  # dropped, and its name kept for a while
    COLUMNS = "columns"  # its columns or partitioning cannot hold our rows
    METADATA = "metadata"  # a metadata file of it is gone or cannot be read
    REFUSED = "refused"  # the catalog refuses the commit
    STORAGE = "storage"  # its files cannot be written
    SLOW = "slow"  # the catalog does not answer for it in time
    FAILING = "failing"  # anything else that does not pass
    DISK_FULL = "disk_full"
    REGISTRY = "registry"  # the schema registry does not answer


VERDICTS = frozenset({Cause.ROLLED_BACK, Cause.PARKING_LOST, Cause.DELETED, Cause.COLUMNS})
FOR_A_PERSON = frozenset({Cause.ROLLED_BACK, Cause.PARKING_LOST})
NEVER_PARKED = frozenset({Cause.DISK_FULL, Cause.REGISTRY})


@dataclass(frozen=True, slots=True)
class Trouble:
    """One failure of one table; the sentence is for a person. `expected`: marks this node knows of and the
    table has lost."""

    cause: Cause
    sentence: str
    expected: Marks = NO_MARKS


def trouble_of(error: FirnError, otherwise: Cause = Cause.FAILING) -> Trouble:
    """What an error of the catalog or the storage means for the table it was met at."""
    if isinstance(error, PrerequisiteError):
        return Trouble(Cause.DISK_FULL, str(error))
    if isinstance(error, RegistryUnavailableError):
        return Trouble(Cause.REGISTRY, str(error))
    if isinstance(error, MetadataMissingError):
        return Trouble(Cause.METADATA, str(error))
    if isinstance(error, NoAnswerError):
        return Trouble(Cause.SLOW, str(error))
    if isinstance(error, FatalError) and otherwise is Cause.FAILING:
        return Trouble(Cause.METADATA, str(error))
    return Trouble(otherwise, str(error))


class Where(Enum):
    """What failed; doing the same with success takes the failure back."""

    LOAD = "load"
    WRITE = "write"
    COMMIT = "commit"


@dataclass(slots=True)
class _Failing:
    since_s: float
    last: Trouble
    where: Where
    attempts: int = 0
    last_s: float = 0.0


@dataclass
class Troubles:
    """Which tables fail now, and who of them is to be parked. Times are monotonic seconds."""

    park_after_s: float
    _failing: dict[TableId, _Failing] = field(default_factory=dict)
    _well: dict[TableId, float] = field(default_factory=dict)  # last success

    def failed(self, table: TableId, where: Where, trouble: Trouble, now_s: float) -> None:
        """Notes a failure."""
        failing = self._failing.setdefault(table, _Failing(now_s, trouble, where))
        failing.last, failing.where, failing.last_s = trouble, where, now_s
        failing.attempts += 1

    def passed(self, table: TableId, where: Where) -> None:
        """Notes that what failed last works again."""
        failing = self._failing.get(table)
        if failing is not None and failing.where is where:
            del self._failing[table]

    def succeeded(self, table: TableId, now_s: float) -> None:
        """Notes that a table took rows."""
        self._failing.pop(table, None)
        self._well[table] = now_s

    def forget(self, table: TableId) -> None:
        """A table that is parked, or of which nothing is wanted any more, counts no more."""
        self._failing.pop(table, None)
        self._well.pop(table, None)

    @property
    def now(self) -> Mapping[TableId, Trouble]:
        """Tables that fail at present."""
        return {
            table: failing.last for table, failing in list(self._failing.items())
        }  # asked for by another thread, too

    def verdicts(self) -> dict[TableId, Trouble]:
        """Tables to be parked whatever else goes on."""
        return {
            table: failing.last for table, failing in self._failing.items() if failing.last.cause in VERDICTS
        }

    def suspects(self, now_s: float) -> dict[TableId, Trouble]:
        """Tables to be parked if a health probe passes; none while it looks like an outage."""
        doubtful = {t: f for t, f in self._failing.items() if f.last.cause not in VERDICTS}
        lasting = {
            t: f.last
            for t, f in doubtful.items()
            if f.last.cause not in NEVER_PARKED
            and f.attempts >= ATTEMPTS_MIN
            and now_s - f.since_s >= self.park_after_s
        }
        return lasting if lasting and not self._is_outage(doubtful, now_s) else {}

    def failed_after(self, table: TableId, moment_s: float) -> bool:
        """Whether the table failed later than this: at the end of an outage all have failed before, and are
        only not tried again yet."""
        failing = self._failing.get(table)
        return failing is not None and failing.last_s > moment_s

    def _is_outage(self, doubtful: Mapping[TableId, _Failing], now_s: float) -> bool:
        """Many fail, or all of several do and none took rows since the first of them began to."""
        self._well = {table: at_s for table, at_s in self._well.items() if now_s - at_s < LATELY_S}
        if len(doubtful) > max(FEW_TABLES, FEW_SHARE * len(self._well.keys() | doubtful.keys())):
            return True
        began_s = min(failing.since_s for failing in doubtful.values())
        return len(doubtful) > 1 and not any(
            at_s >= began_s for table, at_s in self._well.items() if table not in doubtful
        )
