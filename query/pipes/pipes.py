"""A search with pipes behind it, from its text to its rows: one statement on the engine that the search would
take. Patterns are made here of the rows that it gives."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from query.language.search_sql import columns_of
from query.model.cancellation import Run
from query.pipes.patterns import Grouped, group, search_of
from query.pipes.pipe_language import ROWS_MAX, parse_pipeline
from query.pipes.relation import TEXT_CHARACTERS_MAX, Relation, after, rows_of_search
from query.pipes.stages import Patterns, Pipeline
from query.search.search import Prepared, Progress, Searcher, SearchRequest, SearchStats
from query.stats.groups import ByTime, Group

GROUPED_ROWS_MAX = 50_000
_OF_PATTERNS = [
    ("pattern", "string"),
    ("count", "long"),
    ("share", "double"),
    ("example", "string"),
    ("search", "string"),
]


@dataclass(frozen=True, slots=True)
class Sample:
    """The rows that patterns were made of. `is_all`: there were no more of them."""

    grouped: Grouped
    is_all: bool


@dataclass(frozen=True, slots=True)
class PipedAnswer:
    """Columns, each with its Iceberg type, and rows in the order of the last stage. `is_cut`: there are
    more."""

    columns: list[tuple[str, str]]
    rows: list[tuple[Any, ...]]
    is_cut: bool
    basis: SearchStats
    sample: Sample | None = None


def piped(
    searcher: Searcher,
    search_request: SearchRequest,
    run: Run,
    *,
    rows_max: int = ROWS_MAX,
    newest_first: bool = True,
    progress: Progress | None = None,
) -> PipedAnswer:
    """Answers `search_request`, whose query has pipes; who looks on gives the `progress`. Raises
    BadRequestError, NotFoundError, UnavailableError."""
    pipeline, progress = parse_pipeline(search_request.query), progress or Progress()

    def compute() -> PipedAnswer:
        prepared = searcher.prepare(replace(search_request, query=pipeline.query))
        progress.begin(prepared)
        relation = relation_of(prepared, pipeline, newest_first=newest_first)
        last = pipeline.stages[-1] if pipeline.stages else None
        wanted = GROUPED_ROWS_MAX if isinstance(last, Patterns) else rows_max
        fetched = searcher.fetch(
            prepared,
            prepared.plan.files,
            relation.first(wanted + 1),
            run,
            progress,
            bytes_max=searcher.settings.search.page_bytes_max,
        )
        found = fetched.rows if fetched else []
        is_cut = len(found) > wanted or (fetched is not None and fetched.cut)
        basis = searcher.basis(prepared, progress)
        basis = replace(basis, warnings=tuple(dict.fromkeys((*basis.warnings, *relation.warnings))))
        if isinstance(last, Patterns):
            grouped = group((row[0] for row in found[:wanted]), run.check, characters_max=TEXT_CHARACTERS_MAX)
            return _of_patterns(last, Sample(grouped, is_all=not is_cut), rows_max, basis)
        keys = [relation.keys.get(name) for name in relation.shown]
        return PipedAnswer(
            [(name, _kind(relation, name)) for name in relation.shown],
            [_read(keys, row) for row in found[:rows_max]],
            is_cut,
            basis,
        )

    return searcher.retried(compute)


def relation_of(prepared: Prepared, pipeline: Pipeline, *, newest_first: bool) -> Relation:
    """The rows behind the last stage. Raises BadRequestError."""
    plan = prepared.plan
    condition = prepared.condition_in(plan.start, plan.end, files=plan.files)
    relation = rows_of_search(prepared.view.schema, condition, pipeline.stages, newest_first=newest_first)
    for stage in pipeline.stages:
        relation = after(relation, stage, is_exact=prepared.executor.reads_files)
    return relation


def _of_patterns(stage: Patterns, sample: Sample, rows_max: int, basis: SearchStats) -> PipedAnswer:
    """The most frequent patterns, each with its share of all rows that were read."""
    patterns, read = sample.grouped.patterns[: stage.rows], sample.grouped.read
    # What stages have made cannot be searched.
    is_stored = bool(columns_of(stage.field, basis.view.schema))
    rows = [
        (
            each.text,
            each.count,
            each.count / read,
            each.example,
            search_of(each.text, stage.field) if is_stored else "",
        )
        for each in patterns[:rows_max]
    ]
    return PipedAnswer(_OF_PATTERNS, rows, len(patterns) > rows_max, basis, sample)


def _read(keys: Sequence[Group | None], row: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(value if key is None else key.key(value) for key, value in zip(keys, row, strict=True))


def _kind(relation: Relation, name: str) -> str:
    key = relation.keys.get(name)
    if key is not None:
        return "timestamptz" if isinstance(key, ByTime) else "double"
    kind = relation.schema.by_name[name].kind
    return kind if isinstance(kind, str) else str(kind["type"])
