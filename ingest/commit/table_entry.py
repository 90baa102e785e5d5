"""What the main process of a node knows of a table, and what others ask about it."""

from ingest.commit.promised_columns import PromisedColumns
from ingest.commit.table_events import Command, Flushed, State
from ingest.commit.table_work import Job, Loading, LoadStep, Parked
from ingest.model.parked_record import ParkedRecord
from lake.commit import TableState
from lake.tenant import TableId


class TableEntry:
    """The one entry of a table. Times are monotonic seconds.

    `known`: its state, as it was when it was last known; `is_fresh`: nobody is known to have changed it
    since. `asked_by`: workers that are told when it is known. `told_postponed`: all were told that it waits
    for its creation.
    """

    def __init__(self, table: TableId) -> None:
        self.table = table
        self.known: TableState | None = None
        self.is_fresh = False
        self.columns = PromisedColumns()
        self.loading: Loading | None = None
        self.waiting: list[Flushed] = []
        self.job: Job | None = None
        self.asked_by: set[int] = set()
        self.told_postponed = False
        self._parked: Parked | None = None
        self._loads = self._orders = 0  # an answer to what was given up is told by its number
        # When the table was released last, and after how long it was to be tried again then.
        self._released_s, self._relapse_after_s = 0.0, 0.0
        self._commands: list[Command] = []
        self._now_s = 0.0

    @property
    def state(self) -> State:
        """Where the table is now."""
        if self._parked is not None:
            return self._parked.stage
        if self.has_flushes:
            return State.COMMITTING
        if self.is_fresh:
            return State.LIVE
        if self.loading is None:
            return State.UNKNOWN
        return State.POSTPONED if self.loading.step is LoadStep.POSTPONED else State.LOADING

    @property
    def current(self) -> TableState | None:
        """The state to commit to; None where it has to be loaded first."""
        return self.known if self.is_fresh else None

    @property
    def has_flushes(self) -> bool:
        """Whether flushes of it are between a worker's `Submit` and their settlement."""
        return self.job is not None or bool(self.waiting)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way with it, and nobody waits to be told of it."""
        return not (self.loading is not None or self.has_flushes or self.is_parked or self.asked_by)

    @property
    def uuid(self) -> str:
        """Of the table as it was last known; empty where nothing is."""
        return "" if self.known is None else self.known.uuid

    @property
    def is_parked(self) -> bool:
        """Whether its messages go another way than into the table."""
        return self._parked is not None

    @property
    def parked(self) -> Parked:
        """What is known of its parking; only where it is parked."""
        assert self._parked is not None
        return self._parked

    @property
    def record(self) -> ParkedRecord | None:
        """Its parked record, as it was read or written last; None where it is not parked."""
        parked = self._parked
        return None if parked is None else parked.record

    def is_at(self, step: LoadStep) -> bool:
        """Whether it is so far on its way to being known."""
        return self.loading is not None and self.loading.step is step

    @property
    def loads_from_s(self) -> float | None:
        """From when on it may be loaded; None where it is not to be."""
        loading = self.loading
        return None if loading is None or loading.step is not LoadStep.DUE else loading.not_before_s

    @property
    def compares_from_s(self) -> float | None:
        """From when on an attempt to commit may be made; None where there is nothing to commit, or it is in
        the air."""
        job = self.job
        return None if job is None or job.in_air else job.not_before_s

    def may_probe(self, now_s: float) -> bool:
        """Whether it is time to try a parked table again."""
        parked = self._parked
        return (
            parked is not None
            and parked.stage is State.PARKED
            and parked.not_before_s <= now_s
            and not self._awaits_person(parked.record)
        )

    def _want(self) -> None:
        if self.loading is None:
            self._loads += 1
            self.loading = Loading(self._loads)

    def _awaits_person(self, record: ParkedRecord) -> bool:
        return record.awaits_person
