"""The loading of a table: the way to its being known."""

from ingest.commit.table_events import (
    BecameKnown,
    BeginCheck,
    BeginLoad,
    Checked,
    CreateTable,
    Event,
    Gone,
    Loaded,
    LoadFailed,
    LoadTable,
    LoadTrouble,
    MayCreate,
    MayNotCreate,
    NotChecked,
    Outdated,
    State,
    Want,
)
from ingest.commit.table_parking import TableParking
from ingest.commit.table_work import Loading, LoadStep, moved_back
from ingest.model.parked_record import ParkedRecord
from ingest.model.trouble import Cause, Trouble
from lake.backoff import Backoff
from lake.commit import TableState

LOAD_RETRIES = Backoff(0.4, 5.0)


class TableLoading(TableParking):
    """How a table becomes known. A parked one is loaded, too, when it is tried again."""

    def _on_loading(self, event: Event) -> None:
        match event:
            case Want():
                self._want()
            case Outdated():
                self.is_fresh = False
            case _:
                if self.loading is not None:  # else nobody wants to know any more
                    self._on_way(self.loading, event)

    def _on_way(self, loading: Loading, event: Event) -> None:
        match event:
            case BeginLoad() if loading.step is LoadStep.DUE:
                loading.step = LoadStep.ASKED
                self._commands.append(LoadTable(loading.number, self.known))
            case MayCreate() if loading.step is LoadStep.POSTPONED:
                loading.step = LoadStep.ASKED
                self._commands.append(CreateTable(loading.number))
            case MayNotCreate() if loading.step is LoadStep.POSTPONED:
                self.loading = None
            case BeginCheck() if loading.step is LoadStep.LOADED:
                loading.step = LoadStep.CHECKING
            case Loaded(number, state) if number == loading.number:
                self._loaded(loading, state)
            case Gone(number, dropped) if number == loading.number:
                self._gone(loading, dropped)
            case LoadFailed(number, trouble) if number == loading.number:
                self._load_failed(loading, trouble)
            case NotChecked(number) if number == loading.number:
                loading.step = LoadStep.LOADED
            case Checked(number, record, live) if number == loading.number:
                self._checked(loading, record, live)

    def _loaded(self, loading: Loading, state: TableState) -> None:
        if self._is_moved_back(state):
            self._load_failed(loading, moved_back(state))
        else:
            loading.step, loading.found = LoadStep.LOADED, state

    def _gone(self, loading: Loading, dropped: bool) -> None:
        if not dropped and self._has_vanished():
            sentence = (
                f"table {self.table} is gone without having been dropped: the catalog's database went back, "
                "or somebody renamed the table"
            )
            self._load_failed(loading, Trouble(Cause.ROLLED_BACK, sentence))
        else:
            loading.step, loading.found = LoadStep.LOADED, None

    def _checked(self, loading: Loading, record: ParkedRecord | None, live: bool) -> None:
        """The two questions about what was loaded before they were asked."""
        if record is not None and self._awaits_person(record):
            sentence = f"table {self.table} was moved back to an earlier state"
            self._load_failed(loading, Trouble(Cause.ROLLED_BACK, sentence))
        elif live and record is not None and self._is_news(record):
            self._load_later(loading)
        elif live and (lost := self._lost(loading.found)) is not None:
            self._load_failed(loading, lost)
        else:
            self._take(loading)

    def _take(self, loading: Loading) -> None:
        state, before = loading.found, self.known
        if state is None and before is not None and not before.exists:
            state = before  # keeps the uuid and location that its files were written for
        if state is None:
            loading.step = LoadStep.POSTPONED
            return
        self.loading, self.known, self.is_fresh = None, state, True
        self.columns.loaded(state)
        self._commands.append(BecameKnown(state))
        if self._parked is not None and self._parked.stage is State.OPENING:
            self._drain(self._parked, State.DRAINING)

    def _load_failed(self, loading: Loading, trouble: Trouble) -> None:
        self._load_later(loading)
        if self._parked is None:
            self._commands.append(LoadTrouble(trouble))
        else:
            self._failed(self._parked, trouble)

    def _load_later(self, loading: Loading) -> None:
        loading.step, loading.found = LoadStep.DUE, None
        loading.tries += 1
        loading.not_before_s = self._now_s + LOAD_RETRIES.delay_s(loading.tries)

    # ---- rules

    def _is_moved_back(self, state: TableState) -> bool:
        """Marks beyond those of the head mean that the table was moved back."""
        return state.moved_back

    def _has_vanished(self) -> bool:
        """A table that is gone without having been dropped went back, too."""
        return self.known is not None and self.known.exists

    def _is_news(self, record: ParkedRecord) -> bool:
        """Whether somebody has changed the parked record since the node read it: a person, perhaps, who has
        rows read again that others must not overtake.

        Where the node knows of none, one with an id is its own and on its way out, or was when the question
        was asked.
        """
        return not record.id if self.record is None else record.version != self.record.version

    def _lost(self, state: TableState | None) -> Trouble | None:
        """What is wrong where the marks are not as far any more as this node knows that they were."""
        before = self.known
        if (
            state is None
            or before is None
            or before.uuid != state.uuid
            or not before.marks.exceeds(state.marks)
        ):
            return None
        knew = before.marks.to_property()
        sentence = f"{moved_back(state).sentence}; this node knew of rows up to {knew}"
        return Trouble(Cause.ROLLED_BACK, sentence, before.marks)
