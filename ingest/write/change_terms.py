"""What a flush of changes is written by, and the columns that it asks for on the way."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ingest.changes.column_type import from_iceberg
from ingest.convert.read_changes import ReadingTerms
from ingest.decode.formats.registry import REPLAY
from ingest.decode.replay import origin_of
from ingest.model.link import KeyedRows, NewColumn, TableView, new_columns
from ingest.model.source import Source
from ingest.route.buffer import TableBuffer
from lake.data_file import DataFile
from lake.errors import Rejected
from lake.log_schema import Column, LogSchema, WantedColumn, shared_schema
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
    """What was written of a flush: files, rows in them, new columns, columns that became wider, and what it
    does to keys."""

    files: Sequence[DataFile]
    rows: int
    new: Mapping[str, NewColumn]
    widened: Mapping[str, Any]
    keyed: KeyedRows | None = None


def has_columns(schema: LogSchema, wanted: Mapping[str, WantedColumn]) -> bool:
    """Whether a schema has columns as they were asked for. One that changes have asked for is of one field
    alone; any field of that name may fill what is a record's."""
    return all(_is(schema.by_name[name], column) for name, column in wanted.items())


def _is(column: Column, wanted: WantedColumn) -> bool:
    if isinstance(wanted, str):
        return bool(column.kind == "string")
    is_of_field = not wanted.path or column.doc in (None, wanted.path)
    return is_of_field and from_iceberg(column.kind) == from_iceberg(wanted.kind)


@dataclass(slots=True)
class GrowingSchema:
    """The schema of a table, with what has been promised since the flush began. `table`: as it was then."""

    table: LogSchema
    schema: LogSchema = field(init=False)

    def __post_init__(self) -> None:
        self.schema = self.table

    def take(self, wanted: Mapping[str, WantedColumn], grow: Grow) -> bool:
        """Asks for what a part needs of columns. False where one does not become that, since another writer
        of the table was faster: the part is to be converted by the schema as it is now."""
        if not wanted:
            return True
        self.schema = shared_schema(grow(wanted))
        return has_columns(self.schema, wanted)

    @property
    def new(self) -> Mapping[str, NewColumn]:
        """The columns that the table did not have: what a part asked for may be in all that follow, and so
        may be what others asked for."""
        return new_columns(self.table, self.schema)

    @property
    def widened(self) -> dict[str, Any]:
        """Folded names of the table's columns that have become wider, with their types."""
        before, after = self.table.by_name, self.schema.by_name
        return {name: after[name].kind for name in before if after[name].kind != before[name].kind}


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
