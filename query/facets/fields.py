"""The fields of a stream: their types and how many rows have them (from manifests alone), and their most
frequent values."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlglot import exp

from lake.log_schema import ERRORS, SYSTEM_COLUMNS, Column
from query.executors.executor import from_source
from query.files.file_index import LiveFile
from query.language.search_sql import column, columns_of, similar_field
from query.model.cancellation import Run, TimeOverError
from query.model.problem import refuse
from query.search.file_planner import Effort, slices
from query.search.results import plain_row
from query.search.search import Prepared, Progress, Searcher, SearchRequest, SearchStats

# Where rows are deleted, files bound how many of the others have a value: told where the bounds are so close.
COVERAGE_ERROR_MAX = 0.01
# Top values are counted over the newest rows only, from this many on: enough to choose a filter by.
SAMPLE_ROWS = 1_000_000


@dataclass(frozen=True, slots=True)
class FieldSummary:
    """One field. `coverage`: the part of rows that have a value, 0 to 1; None where files do not say. `path`:
    where records carry it."""

    name: str
    kind: str
    coverage: float | None
    path: str | None
    is_system: bool


@dataclass(frozen=True, slots=True)
class TopValues:
    """The most frequent values, most frequent first. `counted_rows`: rows with a value among those looked at;
    `sampled`: not all were."""

    values: list[tuple[Any, int]]
    counted_rows: int
    sampled: bool
    basis: SearchStats


class FilledRows(NamedTuple):
    """How many rows have a value, by the id of a primitive column, among those of which files say it: `rows`,
    and of some columns so many more (of wide files that count them) or less (of files that do not)."""

    by_column: Mapping[int, int]
    rows: int
    more_rows: Mapping[int, int]

    def coverage_of(self, target: Column) -> float | None:
        """The part of the rows that have a value; None without rows, and for what is no primitive."""
        rows = self.rows + self.more_rows.get(target.id, 0)
        if not rows or not isinstance(target.kind, str):
            return None
        return round(self.by_column.get(target.id, 0) / rows, 4)


def list_fields(searcher: Searcher, search_request: SearchRequest) -> tuple[list[FieldSummary], SearchStats]:
    """All fields with the coverage in the files of the time range; nothing is opened."""
    prepared = searcher.prepare(search_request)
    files = _counted(prepared)
    filled = filled_of_all(files)
    summaries = [_summary(each, files, filled) for each in prepared.view.schema.columns]
    ordered = sorted(summaries, key=lambda f: (f.is_system, -(f.coverage or 0.0), f.name))
    return ordered, searcher.basis(prepared, Progress())


def _counted(prepared: Prepared) -> list[tuple[LiveFile, int | None]]:
    """The planned files, each with how many of its rows are deleted; None where nobody can tell."""
    if not prepared.live.has_deletes:
        return [(file, 0) for file in prepared.plan.files]
    deletes = prepared.live.deletes
    return [(file, deletes.dead_rows_of(file.uri, file.sequence_number)) for file in prepared.plan.files]


def _summary(
    target: Column, files: Sequence[tuple[LiveFile, int | None]], filled: FilledRows | None
) -> FieldSummary:
    kind = target.kind if isinstance(target.kind, str) else str(target.kind["type"])
    is_system = target.name in SYSTEM_COLUMNS
    coverage = coverage_of(target, files) if filled is None else filled.coverage_of(target)
    return FieldSummary(target.name, kind, coverage, None if is_system else target.doc, is_system)


def filled_of_all(files: Sequence[tuple[LiveFile, int | None]]) -> FilledRows | None:
    """What files say, each with how many of its rows are deleted; None where one says nothing, or has deleted
    rows. It takes one look at each file, `coverage_of` one for each column."""
    by_column, rows, more_rows = defaultdict[int, int](int), 0, defaultdict[int, int](int)
    for file, dead in files:
        values, nulls, counts_all = file.value_counts, file.null_counts, file.counts_all
        if dead != 0 or values is None or nulls is None:
            return None
        rows += file.rows if counts_all else 0
        nulls_of = dict(nulls.items())
        for column_id, count in values.items():
            nulls_there = nulls_of.get(column_id)
            if nulls_there is not None:
                by_column[column_id] += max(0, count - nulls_there)
            if counts_all != (nulls_there is not None):
                more_rows[column_id] += -file.rows if counts_all else file.rows
    return FilledRows(by_column, rows, more_rows)


def coverage_of(target: Column, files: Sequence[tuple[LiveFile, int | None]]) -> float | None:
    """The part of the rows that have a value. Any of a file's rows may be the deleted ones, which leaves a
    least and a most."""
    if not isinstance(target.kind, str):
        return None
    rows = least = most = 0
    for file, dead in files:
        if (filled := file.filled_rows(target.id)) is None:
            continue
        if dead is None:
            return None
        alive = max(0, file.rows - dead)
        rows += alive
        least += max(0, filled - dead)
        most += min(filled, alive)
    if not rows or most - least > COVERAGE_ERROR_MAX * rows:
        return None
    return round((least + most) / 2 / rows, 4)


def top_values(
    searcher: Searcher,
    search_request: SearchRequest,
    field: str,
    run: Run,
    *,
    limit: int,
    sample_rows: int = SAMPLE_ROWS,
) -> TopValues:
    """Counts the values of a field over the newest matching files. Raises BadRequestError for a field that
    is not there."""
    prepared = searcher.prepare(search_request)
    target = _target(prepared, field)
    files, looked_at = _newest(prepared, sample_rows)
    progress = Progress()
    rows: list[tuple[Any, ...]] = []
    try:
        start = (
            prepared.plan.start
            if looked_at.files == prepared.plan.planned.files
            else max(prepared.plan.start, files[1])
        )
        select = _select_values(prepared, target, start, limit)
        fetched = prepared.executor.fetch(
            prepared.source(files[0]), select, run, bytes_max=searcher.settings.search.page_bytes_max
        )
        rows = fetched.rows
        progress.add(looked_at, fetched, run)
        if fetched.cut:
            progress.stopped = (
                f"the values have more than {searcher.settings.search.page_bytes_max:,} bytes "
                "together, of which the most frequent are given"
            )
    except TimeOverError as error:
        progress.stopped = str(error)
    sampled = looked_at.files < prepared.plan.planned.files
    total = int(rows[0][2]) if rows else 0
    return TopValues(
        [(plain_row([value])[0], int(count)) for value, count, _ in rows],
        total,
        sampled,
        searcher.basis(prepared, progress),
    )


def _target(prepared: Prepared, field: str) -> Column:
    found = columns_of(field, prepared.view.schema)
    if not found:
        near = similar_field(field, prepared.view.schema)
        raise refuse(
            f"there is no field {field!r} in this stream",
            suggestion=f"did you mean {near}?" if near else "the list of fields shows what there is",
        )
    if found[0].name == ERRORS or not isinstance(found[0].kind, str):
        raise refuse(
            f"the field {found[0].name!r} holds lists, whose values are not counted",
            suggestion=f"{found[0].name}:* finds rows that have one",
        )
    return found[0]


def _newest(prepared: Prepared, sample_rows: int) -> tuple[tuple[tuple[LiveFile, ...], Any], Effort]:
    """The newest slices up to the sample, and the time from which on they hold everything."""
    files: list[LiveFile] = []
    start = prepared.plan.start
    for piece in slices(prepared.plan):
        files += piece.files
        start = piece.start
        if sum(map(prepared.plan.rows_of, files)) >= sample_rows:
            break
    return (tuple(files), start), prepared.plan.effort_of(files)


def _select_values(prepared: Prepared, target: Column, start: Any, limit: int) -> exp.Select:
    present = exp.Not(this=exp.Is(this=column(target.name), expression=exp.null()))
    condition = prepared.condition_in(start, prepared.plan.end, present)
    count = exp.Count(this=exp.Star())
    every = exp.Window(this=exp.Sum(this=count.copy()))
    select = exp.select(column(target.name), exp.alias_(count, "rows_of_value", quoted=True), every).from_(
        from_source()
    )
    by_count = exp.Ordered(this=column("rows_of_value"), desc=True, nulls_first=False)
    by_value = exp.Ordered(this=column(target.name), desc=False, nulls_first=False)
    return select.where(condition).group_by(exp.Literal.number(1)).order_by(by_count, by_value).limit(limit)
