"""Which files a search has to open, and in which order: outside the time range none, none of which bounds,
counts or token filters say that no row matches; newest first, in growing slices."""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from lake.clock import epoch_us
from lake.log_schema import ERRORS, TIMESTAMP, Column, LogSchema
from lake.token_filter.alphabet import Alphabet
from query.files.file_index import LiveFile, LiveFiles, numbered
from query.files.filter_pack import RowGroup
from query.files.token_filters import NO_FILTERS, FilterEffort, Narrowed
from query.language.search_language import All, Between, Either, Everything, Exists, Match, Node
from query.language.search_sql import columns_of
from query.model.instant import parse_period
from query.model.table_view import EPOCH

# A slice holds at least these rows; each later one four times as many. Opening a file costs about as much as
# reading some thousand rows.
FIRST_SLICE_ROWS = 50_000
FILE_COSTS_ROWS = 2_000
SLICE_GROWTH = 4
# Deleted positions that are joined in this process, eight bytes each and as much again for the join.
DEAD_ROWS_MAX = 5_000_000
# Each delete file that may name several data files is compared with each planned one.
COMPARED_MAX = 1_000_000
_STRUCTS = {
    "int": struct.Struct("<i"),
    "long": struct.Struct("<q"),
    "float": struct.Struct("<f"),
    "double": struct.Struct("<d"),
}


@dataclass(frozen=True, slots=True)
class Effort:
    """Files, their rows and bytes."""

    files: int = 0
    rows: int = 0
    size_bytes: int = 0

    def __add__(self, other: "Effort") -> "Effort":
        return Effort(self.files + other.files, self.rows + other.rows, self.size_bytes + other.size_bytes)

    def __sub__(self, other: "Effort") -> "Effort":
        return Effort(self.files - other.files, self.rows - other.rows, self.size_bytes - other.size_bytes)


@dataclass(frozen=True, slots=True)
class Slice:
    """Files whose rows lie in `[start, end)`; no file of another slice has rows in it."""

    files: tuple[LiveFile, ...]
    start: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class Plan:
    """The files that may hold a matching row, and what was left out. `only_trino`: it alone applies their
    deletes.

    `groups`: by URI the row groups that may hold one, where not all of the file's do; `filters`: what token
    filters left; `unread`: files whose filters are left to be read; `columns`: of each word that they were
    asked for the columns that may have it, with their characters there; None: any.
    """

    files: tuple[LiveFile, ...]
    start: datetime
    end: datetime
    planned: Effort
    skipped: Effort
    has_deletes: bool
    only_trino: bool = False
    groups: Mapping[str, Sequence[RowGroup]] = field(default_factory=dict)
    filters: FilterEffort = NO_FILTERS
    unread: frozenset[str] = frozenset()
    columns: tuple[Mapping[int, Alphabet | None], ...] = ()

    def rows_of(self, file: LiveFile) -> int:
        """How many rows of a file may match."""
        groups = self.groups.get(file.uri)
        return file.rows if groups is None else sum(group.rows for group in groups)

    def effort_of(self, files: Sequence[LiveFile]) -> Effort:
        """The sum over some of the files, of what has to be read of them."""
        return _effort_of(files, self.groups)


def lies_inside(file: LiveFile, start: datetime, end: datetime) -> bool:
    """Whether all rows of a file are in `[start, end)`."""
    return epoch_us(start) <= file.first_us and file.last_us < epoch_us(end)


# Which of some files token filters leave.
Narrow = Callable[[Sequence[LiveFile]], Narrowed]


def effort_of(files: Sequence[LiveFile]) -> Effort:
    """The sum over whole files."""
    return Effort(len(files), sum(file.rows for file in files), sum(file.size_bytes for file in files))


def _effort_of(files: Sequence[LiveFile], groups: Mapping[str, Sequence[RowGroup]]) -> Effort:
    effort = effort_of(files)
    for file in files if groups else ():
        if (left := groups.get(file.uri)) is not None:
            rows = file.rows - sum(group.rows for group in left)
            effort -= Effort(0, rows, file.size_bytes * rows // max(1, file.rows))
    return effort


def plan_files(
    live: LiveFiles,
    start: datetime,
    end: datetime,
    node: Node,
    schema: LogSchema,
    narrow: Narrow | None = None,
) -> Plan:
    """Keeps the files that overlap `[start, end)` and whose bounds and null counts leave room for a match; of
    these, what `narrow` leaves."""
    start_us, end_us = epoch_us(start), epoch_us(end)
    wanted = [
        file
        for file in live.files
        if file.last_us >= start_us and file.first_us < end_us and may_match(node, file, schema)
    ]
    left = Narrowed(tuple(wanted)) if narrow is None else narrow(wanted)
    planned = _effort_of(left.files, left.groups)
    return Plan(
        left.files,
        start,
        end,
        planned,
        effort_of(live.files) - planned,
        live.has_deletes,
        live.has_deletes and _needs_trino(live, left.files),
        left.groups,
        left.effort,
        left.unread,
        left.columns,
    )


def _needs_trino(live: LiveFiles, wanted: Sequence[LiveFile]) -> bool:
    """Whether there are deletes by values, or more deletes than are looked through in this process."""
    deletes = live.deletes
    if deletes.has_equality_deletes or len(deletes.of_many) * len(wanted) > COMPARED_MAX:
        return True
    return deletes.rows_of(numbered(wanted)) > DEAD_ROWS_MAX


def slices(
    plan: Plan, *, newest_first: bool = True, first_rows: int = FIRST_SLICE_ROWS, growth: int = SLICE_GROWTH
) -> Iterator[Slice]:
    """Cuts the plan into disjoint stretches of time, the first ones small, each with all the files that have
    rows in it."""
    left = sorted(plan.files, key=(lambda f: -f.last_us) if newest_first else (lambda f: f.first_us))
    edge = epoch_us(plan.end if newest_first else plan.start)
    wanted_rows, at = first_rows, 0
    while at < len(left):
        rows, files = 0, []
        reach = left[at].first_us if newest_first else left[at].last_us
        # A file that begins before the reach ends belongs here too: else a row of it would be newer than rows
        # already shown.
        while at < len(left) and (
            rows < wanted_rows or (left[at].last_us >= reach if newest_first else left[at].first_us <= reach)
        ):
            file = left[at]
            files.append(file)
            rows += plan.rows_of(file) + FILE_COSTS_ROWS
            reach = min(reach, file.first_us) if newest_first else max(reach, file.last_us)
            at += 1
        last = at >= len(left)
        if newest_first:
            low = epoch_us(plan.start) if last else max(reach, epoch_us(plan.start))
            yield Slice(tuple(files), _moment(low), _moment(edge))
            edge = low
        else:
            high = epoch_us(plan.end) if last else min(reach + 1, epoch_us(plan.end))
            yield Slice(tuple(files), _moment(edge), _moment(high))
            edge = high
        wanted_rows *= growth


def may_match(node: Node, file: LiveFile, schema: LogSchema) -> bool:
    """False only where the file's counts and bounds prove that no row of it matches."""
    if isinstance(node, All):
        return all(may_match(child, file, schema) for child in node.children)
    if isinstance(node, Either):
        return any(may_match(child, file, schema) for child in node.children)
    if isinstance(node, Everything) or not isinstance(node, Match | Exists | Between) or node.field is None:
        return True
    return any(_may_hold(node, column, file) for column in columns_of(node.field, schema))


def _may_hold(node: Match | Exists | Between, column: Column, file: LiveFile) -> bool:
    if not isinstance(column.kind, str):
        return column.name != ERRORS or _may_have_errors(column, file)
    if file.filled_rows(column.id) == 0:
        return False
    if isinstance(node, Exists) or (column.kind not in _STRUCTS and column.name != TIMESTAMP):
        return True
    low, high = (node.text, node.text) if isinstance(node, Match) else (node.low, node.high)
    if column.name == TIMESTAMP:
        return _may_be_of_time(low, high, file)
    lower, upper = (file.lower_bounds or {}).get(column.id), (file.upper_bounds or {}).get(column.id)
    unpack = _STRUCTS[column.kind].unpack
    try:
        if low is not None and upper is not None and float(low) > float(unpack(upper)[0]):
            return False
        return not (high is not None and lower is not None and float(high) < float(unpack(lower)[0]))
    except (ValueError, struct.error):
        return True


def _may_be_of_time(low: str | None, high: str | None, file: LiveFile) -> bool:
    """Bounds are periods (a day, an hour, ...); whether they count to their beginnings or ends does not
    matter here."""
    first, last = parse_period(low or ""), parse_period(high or "")
    return (first is None or file.last_us >= epoch_us(first.start)) and (
        last is None or file.first_us < epoch_us(last.end)
    )


def _may_have_errors(column: Column, file: LiveFile) -> bool:
    """Every entry has a reason, so a file without reasons has no entries. Not every writer counts what lies
    inside lists."""
    reason = next(field["id"] for field in column.kind["element"]["fields"] if field["name"] == "reason")
    return (file.value_counts or {}).get(reason) is None or file.filled_rows(reason) != 0


def _moment(micros: int) -> datetime:
    return EPOCH + timedelta(microseconds=micros)
