"""What a search asks of an engine."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pyroaring import BitMap64
from sqlglot import exp

from query.files.file_index import LiveFile
from query.files.filter_pack import RowGroup
from query.model.cancellation import Run
from query.model.table_view import TableView

SOURCE = "source"
# The number of a row's file among those of the source, by an engine that reads files, where all are read
# whole and the table has no column of that name.
FILE_NUMBER = "file_index"
# Deleted positions by the URI of a data file, read when they are asked for.
DeadRows = Callable[[], Mapping[str, BitMap64]]


@dataclass(frozen=True, slots=True)
class Source:
    """The rows to read: a table as of its view. An engine that reads files by itself reads exactly `files`,
    without their `dead_rows` (None: with all rows that lie in them).

    `groups`: by URI the row groups of a file outside of which no row matches; others may be left out.
    `is_narrow`: no file but these has a match, which nothing but token filters tells.
    """

    view: TableView
    files: Sequence[LiveFile]
    dead_rows: DeadRows | None = None
    groups: Mapping[str, Sequence[RowGroup]] = field(default_factory=dict)
    is_narrow: bool = False


@dataclass(frozen=True, slots=True)
class Fetched:
    """Rows in the order of the SELECT's columns. `scanned_bytes` None: the engine does not say. `cut`: there
    are more, too large to give at once."""

    rows: list[tuple[Any, ...]]
    scanned_bytes: int | None = None
    cut: bool = False


class Executor(Protocol):
    """Runs SELECTs whose only table is named `source`."""

    @property
    def name(self) -> str:
        """As requests call it."""

    @property
    def reads_files(self) -> bool:
        """True: it opens exactly the source's files. False: it reads the table by its name, and the files
        only tell how much that is."""

    def fetch(self, source: Source, select: exp.Select, run: Run, *, bytes_max: int | None = None) -> Fetched:
        """All rows; with `bytes_max` as many from the first on as have so many bytes together.

        Raises TimeOverError, CancelledError, UnavailableError, NotFoundError (a file or snapshot is gone:
        load the table again).
        """

    def stream(
        self, source: Source, select: exp.Select, run: Run, *, rows_at_once: int
    ) -> Iterator[list[tuple[Any, ...]]]:
        """The same in batches, holding one of them at a time."""


def from_source() -> exp.Expression:
    """The placeholder for the table."""
    return exp.to_table(SOURCE)


def with_source(select: exp.Select, table: exp.Expression) -> exp.Select:
    """The SELECT with its placeholder replaced, in place: a SELECT is made for one query. Where it is over
    another SELECT, the innermost one has it."""
    source = select.find(exp.From)
    while source is not None and isinstance(source.this, exp.Subquery):
        source = source.this.this.find(exp.From)
    assert source is not None, "a search reads from one place"
    source.set("this", exp.alias_(table, SOURCE, table=True))
    return select


def of_nothing(select: exp.Select) -> list[tuple[Any, ...]]:
    """What an aggregate without groups says of no rows."""
    if select.args.get("group") or not any(each.find(exp.AggFunc) for each in select.expressions):
        return []
    return [tuple(0 if isinstance(each.unalias(), exp.Count) else None for each in select.expressions)]
