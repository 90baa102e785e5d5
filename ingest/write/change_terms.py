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


def takes_changes(buffer: TableBuffer, sources: Sequence[Source], view: TableView) -> bool:
    """Whether the messages are changes of rows, not records to be appended."""
    if view.key is not None:
        return True
    settings = changes_of(buffer, sources)
    if settings is None or settings.mode == "append":
        return False
    # Somebody may replay a change to a table of records: there it is one.
    return settings.mode == "history" or view.is_new or _of_sources(buffer, sources) is not None


def changes_of(buffer: TableBuffer, sources: Sequence[Source]) -> ChangeSettings | None:
    """What the settings say of the changes in a buffer: those of its first source that has any, else those
    that a dead letter has with it which was replayed."""
    return _of_sources(buffer, sources) or _of_replayed(buffer, sources)


def _of_sources(buffer: TableBuffer, sources: Sequence[Source]) -> ChangeSettings | None:
    found = (sources[number].changes for number in buffer.first_offsets)
    return next((settings for settings in found if settings is not None), None)


def _of_replayed(buffer: TableBuffer, sources: Sequence[Source]) -> ChangeSettings | None:
    if not any(sources[number].form == REPLAY for number in buffer.first_offsets):
        return None
    for part in buffer.parts():
        for at, number in enumerate(part.sources):
            replayed = origin_of(part.headers[at]) if sources[number].form == REPLAY else None
            if replayed is not None and replayed[0].changes is not None:
                return replayed[0].changes
    return None
