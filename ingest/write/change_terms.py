"""What a flush of changes is written by, and the columns that it asks for on the way."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ingest.convert.change_columns import ChangeColumns
from ingest.convert.read_changes import ReadingTerms
from ingest.decode.formats.registry import REPLAY
from ingest.decode.replay import origin_of
from ingest.model.link import KeyedRows, TableView
from ingest.model.source import Source
from ingest.route.buffer import TableBuffer
from lake.data_file import DataFile
from lake.errors import Rejected
from lake.log_schema import LogSchema, WantedColumn, shared_schema
from lake.settings import ChangeSettings
from lake.storage import Storage
from lake.table_layout import HISTORY

Grow = Callable[[Mapping[str, WantedColumn]], bytes]


@dataclass(frozen=True, slots=True)
class PartFate:
    """What became of the messages of a part beside its rows: ordinals that are rejected and why, how many the
    table has already, how many rows have errors."""

    rejected: Sequence[tuple[int, Rejected]]
    committed: int = 0
    rows_with_errors: int = 0


@dataclass(frozen=True, slots=True)
class ChangeTerms:
    """How one flush is written: for the table as `view` shows it, what is below the `marks` (one per source)
    left out. `grow` gets columns for the table; `note` is told of each part. `settings`: of the topic."""

    storage: Storage
    view: TableView
    sources: Sequence[Source]
    marks: Sequence[int]
    reading: ReadingTerms
    grow: Grow
    note: Callable[[TableBuffer, PartFate], None]
    settings: ChangeSettings | None


@dataclass(frozen=True, slots=True)
class WrittenChanges:
    """What was written of a flush: files, rows in them, new columns with their ids, columns that became
    wider, and what it does to keys."""

    files: Sequence[DataFile]
    rows: int
    new: Mapping[str, int]
    widened: Mapping[str, Any]
    keyed: KeyedRows | None = None


@dataclass(slots=True)
class GrowingSchema:
    """The schema of a table, with what the parts of a flush have added to it."""

    schema: LogSchema
    new: dict[str, int] = field(default_factory=dict)
    widened: dict[str, Any] = field(default_factory=dict)

    def take(self, columns: ChangeColumns, grow: Grow) -> None:
        """Asks for what is new in a part's columns."""
        if not columns.new and not columns.widened:
            return
        wanted: dict[str, WantedColumn] = {**columns.new, **columns.wider()}
        self.schema = shared_schema(grow(wanted))
        self.new |= {name: self.schema.by_name[name].id for name in columns.new}
        self.widened |= {name: self.schema.by_name[name].kind for name in columns.widened}

    def take_strings(self, new: Mapping[str, str], grow: Grow) -> None:
        """The same for new columns of records: name -> original path."""
        self.schema = shared_schema(grow(dict(new)))
        self.new |= {name: self.schema.by_name[name].id for name in new}


@dataclass(frozen=True, slots=True)
class SourceKinds:
    """The sources of a flush by what their messages are: records, changes each of which is a row, changes of
    rows that have a key."""

    records: frozenset[int]
    histories: frozenset[int]
    keyed: frozenset[int]

    @classmethod
    def of(cls, buffer: TableBuffer, sources: Sequence[Source]) -> "SourceKinds":
        """Those that a buffer has messages of."""
        found = _as_read(buffer, sources)
        modes = {number: source.mode_for(buffer.table) for number, source in found.items()}
        histories = frozenset(number for number, mode in modes.items() if mode == HISTORY)
        records = frozenset(number for number, mode in modes.items() if mode == "append")
        return cls(records, histories, frozenset(modes) - records - histories)


def takes_changes(buffer: TableBuffer, sources: Sequence[Source], view: TableView) -> bool:
    """Whether there are messages that are not records to be appended."""
    kinds = SourceKinds.of(buffer, sources)
    return view.key is not None or bool(kinds.histories or kinds.keyed)


def changes_of(buffer: TableBuffer, sources: Sequence[Source]) -> ChangeSettings | None:
    """What the settings say of the changes in a buffer that a key is for: those of its first such source."""
    of_keys = (
        source.changes
        for source in _as_read(buffer, sources).values()
        if source.mode_for(buffer.table) not in ("append", HISTORY)
    )
    return next(of_keys, None)


def _as_read(buffer: TableBuffer, sources: Sequence[Source]) -> dict[int, Source]:
    """The sources that a buffer has messages of; that of dead letters which were replayed as if it were a
    topic of the first change among them."""
    found = {number: sources[number] for number in buffer.first_offsets}
    for number, source in found.items():
        if source.form == REPLAY:
            found[number] = source._replace(changes=_of_replayed(buffer, number))
    return found


def _of_replayed(buffer: TableBuffer, source: int) -> ChangeSettings | None:
    for part in buffer.parts():
        for at, number in enumerate(part.sources):
            replayed = origin_of(part.envelopes[at].headers or ()) if number == source else None
            if replayed is not None and replayed[0].changes is not None:
                return replayed[0].changes
    return None
