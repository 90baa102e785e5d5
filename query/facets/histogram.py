"""Matching rows over time. Without a filter what files say of themselves is not searched again:

- a file whose rows all count for one bucket is counted from its manifest entry,
- one that lies in the range from its counts by minute and level, which merged files carry and others get
  when first needed; they are kept (`file_counts`),
- and only those that the range cuts through are searched.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from lake.log_schema import SEVERITY, TIMESTAMP
from lake.severity import LEVELS, Level
from query.executors.executor import FILE_NUMBER, Fetched, from_source
from query.facets.buckets import (
    BUCKETS_MAX,
    Bucket,
    bucket_of,
    bucket_width_s,
    fits_one_bucket,
    to_buckets,
)
from query.facets.file_counts import HOUR_S, MINUTE_S, Count, FileCounts, count_files, counts_of
from query.files.file_index import LiveFile
from query.language.search_sql import column
from query.language.severity import level_number
from query.model.cancellation import Run, TimeOverError
from query.model.problem import refuse
from query.search.file_planner import effort_of, lies_inside
from query.search.search import Prepared, Progress, Searcher, SearchRequest, SearchStats

# So many files are counted at once; what is counted stays, also where the time is over before the end.
COUNTED_AT_ONCE = 200


@dataclass(frozen=True, slots=True)
class Histogram:
    """Buckets of `width_s` seconds; empty ones are left out. `rows` is their sum: the matching rows.
    `kept_rows`: those counted without opening a file."""

    buckets: list[Bucket]
    width_s: int
    rows: int
    kept_rows: int
    basis: SearchStats


@dataclass(frozen=True, slots=True)
class _Shares:
    """The files of a plan without a filter, by how they are counted. `known`: counts kept of files in
    `between`, by hour or minute (`unit_s`)."""

    of_one_bucket: tuple[LiveFile, ...]
    between: tuple[LiveFile, ...]
    cut: tuple[LiveFile, ...]
    known: Mapping[str, tuple[Count, ...]]
    unit_s: int

    @property
    def uncounted(self) -> tuple[LiveFile, ...]:
        return tuple(file for file in self.between if file.uri not in self.known)

    @property
    def known_files(self) -> tuple[LiveFile, ...]:
        return (*self.of_one_bucket, *(file for file in self.between if file.uri in self.known))

    @property
    def to_open_bytes(self) -> int:
        return effort_of((*self.uncounted, *self.cut)).size_bytes


def histogram(
    searcher: Searcher,
    kept: FileCounts,
    search_request: SearchRequest,
    run: Run,
    *,
    width_s: int | None = None,
    by_level: bool = False,
    progress: Progress | None = None,
) -> Histogram:
    """Counts a search over time; who looks on gives the `progress`. Raises BadRequestError, NotFoundError,
    UnavailableError."""
    width, progress = _checked_width(search_request, width_s), progress or Progress()

    def count() -> Histogram:
        prepared = searcher.prepare(search_request)
        progress.begin(prepared)
        reader, shares = searcher.file_reader(search_request.engine), None
        if reader is not None and prepared.condition is None and not prepared.plan.has_deletes:
            shares = _shares(searcher, prepared, kept, run, width, by_level=by_level)
        if (
            reader is not None
            and shares is not None
            and shares.to_open_bytes <= searcher.settings.embedded.scan_bytes_max
        ):
            prepared = replace(prepared, executor=reader)
            kept_rows, counts = _from_files(shares, width)
            progress.passed(effort_of(shares.known_files))
            left = _count_new(prepared, kept, shares, counts, run, progress, width)
        else:
            kept_rows, counts, left = 0, [], prepared.plan.files
        counts += _searched(searcher, prepared, left, run, progress, width, by_level=by_level)
        buckets = to_buckets(counts, width, by_level=by_level)
        rows = sum(bucket.rows for bucket in buckets)
        return Histogram(
            buckets,
            width,
            rows,
            kept_rows,
            searcher.basis(prepared, progress, counted_rows=rows if progress.stopped is None else None),
        )

    return searcher.retried(count)


def _shares(
    searcher: Searcher, prepared: Prepared, kept: FileCounts, run: Run, width_s: int, *, by_level: bool
) -> _Shares:
    search_request = prepared.search_request
    unit_s = HOUR_S if width_s % HOUR_S == 0 else MINUTE_S
    of_one_bucket, between, cut = list[LiveFile](), list[LiveFile](), list[LiveFile]()
    for file in prepared.plan.files:
        if not lies_inside(file, search_request.start, search_request.end):
            cut.append(file)
        elif not by_level and fits_one_bucket(file, width_s):
            of_one_bucket.append(file)
        else:
            (between if width_s % unit_s == 0 else cut).append(file)
    known = kept.known(between, unit_s)
    new = [file for file in between if file.uri not in known and file.filter_bytes]
    for at in range(0, len(new), COUNTED_AT_ONCE):
        if run.is_over:
            break
        files = new[at : at + COUNTED_AT_ONCE]
        counted = counts_of(searcher.minute_counts(prepared.view, files))
        kept.keep(counted)
        known |= {uri: counts.by_unit(unit_s) for uri, counts in counted.items()}
    return _Shares(tuple(of_one_bucket), tuple(between), tuple(cut), known, unit_s)


def _from_files(shares: _Shares, width_s: int) -> tuple[int, list[Count]]:
    """The rows that are known already, and their counts by bucket."""
    counts = [(bucket_of(file.first_us, width_s), Level.OTHER, file.rows) for file in shares.of_one_bucket]
    for known in shares.known.values():
        counts += _by_bucket(known, shares.unit_s, width_s)
    return sum(rows for _, _, rows in counts), counts


def _by_bucket(counts: Sequence[Count], unit_s: int, width_s: int) -> list[Count]:
    return [(at * unit_s // width_s, level, rows) for at, level, rows in counts]


def _count_new(
    prepared: Prepared,
    kept: FileCounts,
    shares: _Shares,
    counts: list[Count],
    run: Run,
    progress: Progress,
    width_s: int,
) -> tuple[LiveFile, ...]:
    """Counts the files that were not counted before into `counts`; gives those that are left to be
    searched."""
    odd: list[LiveFile] = []
    new = shares.uncounted
    for at in range(0, len(new), COUNTED_AT_ONCE):
        files = new[at : at + COUNTED_AT_ONCE]
        try:
            progress.reading(effort_of(files))
            counted = count_files(prepared.executor, prepared.view, files, run)
        except TimeOverError as error:
            progress.stopped = str(error)
            return ()
        kept.keep(counted)
        progress.add(effort_of(files), Fetched([], None), run)
        for file in files:
            if file.uri in counted:
                counts += _by_bucket(counted[file.uri].by_unit(shares.unit_s), shares.unit_s, width_s)
            else:
                odd.append(file)
    return (*odd, *shares.cut)


def _searched(
    searcher: Searcher,
    prepared: Prepared,
    files: Sequence[LiveFile],
    run: Run,
    progress: Progress,
    width_s: int,
    *,
    by_level: bool,
) -> list[Count]:
    if not files or progress.stopped is not None:
        return []
    condition = prepared.condition_in(prepared.plan.start, prepared.plan.end, files=files)
    by_file = not by_level and _tells_buckets(prepared, files, width_s)
    select = _select_by_file(condition) if by_file else _select_counts(condition, width_s, by_level=by_level)
    fetched = searcher.fetch(prepared, files, select, run, progress)
    found = fetched.rows if fetched else []
    if by_file:
        return [(bucket_of(files[at].first_us, width_s), Level.OTHER, int(rows)) for at, rows in found]
    return [(int(at), LEVELS[int(level)], int(rows)) for at, level, rows in found]


def _tells_buckets(prepared: Prepared, files: Sequence[LiveFile], width_s: int) -> bool:
    """Whether each row's file tells its bucket, so that no time has to be read."""
    plan, names = prepared.plan, prepared.view.schema.by_name
    is_read_whole = not plan.groups and not plan.has_deletes and not plan.unread and FILE_NUMBER not in names
    return (
        prepared.executor.reads_files
        and is_read_whole
        and all(fits_one_bucket(file, width_s) for file in files)
    )


def _select_by_file(condition: exp.Expression | None) -> exp.Select:
    select = exp.select(exp.column(FILE_NUMBER), exp.Count(this=exp.Star())).from_(from_source())
    return (select.where(condition) if condition is not None else select).group_by(exp.Literal.number(1))


def _select_counts(condition: exp.Expression | None, width_s: int, *, by_level: bool) -> exp.Select:
    seconds = exp.TimeToUnix(this=column(TIMESTAMP))
    bucket = exp.cast(
        exp.Floor(this=exp.Div(this=seconds, expression=exp.Literal.number(f"{width_s}.0"), typed=True)),
        exp.DataType.Type.BIGINT,
    )
    level = (
        level_number(column(SEVERITY))
        if by_level
        else exp.cast(exp.Literal.number(LEVELS.index(Level.OTHER)), exp.DataType.Type.BIGINT)
    )
    select = exp.select(bucket, level, exp.Count(this=exp.Star())).from_(from_source())
    return (select.where(condition) if condition is not None else select).group_by(
        exp.Literal.number(1), exp.Literal.number(2)
    )


def _checked_width(search_request: SearchRequest, width_s: int | None) -> int:
    width = width_s or bucket_width_s(search_request.start, search_request.end)
    if (search_request.end - search_request.start).total_seconds() / width > BUCKETS_MAX:
        raise refuse(
            f"buckets of {width} s would be more than {BUCKETS_MAX:,}; choose wider ones or a shorter range"
        )
    return width
