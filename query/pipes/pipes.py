"""A search with pipes behind it, from its text to its rows: one statement on the engine that the search would
take."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from query.model.cancellation import Run
from query.pipes.pipe_language import ROWS_MAX, parse_pipeline
from query.pipes.relation import Relation, after, rows_of_search
from query.pipes.stages import Pipeline
from query.search.search import Prepared, Progress, Searcher, SearchRequest, SearchStats
from query.stats.groups import ByTime, Group


@dataclass(frozen=True, slots=True)
class PipedAnswer:
    """Columns, each with its Iceberg type, and rows in the order of the last stage. `is_cut`: there are
    more."""

    columns: list[tuple[str, str]]
    rows: list[tuple[Any, ...]]
    is_cut: bool
    basis: SearchStats


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
    BadQuestionError, NotFoundError, UnavailableError."""
    pipeline, progress = parse_pipeline(search_request.query), progress or Progress()

    def compute() -> PipedAnswer:
        prepared = searcher.prepare(replace(search_request, query=pipeline.query))
        progress.begin(prepared)
        relation = relation_of(prepared, pipeline, newest_first=newest_first)
        fetched = searcher.fetch(
            prepared,
            prepared.plan.files,
            relation.first(rows_max + 1),
            run,
            progress,
            bytes_max=searcher.settings.search.page_bytes_max,
        )
        found = fetched.rows if fetched else []
        keys = [relation.keys.get(name) for name in relation.shown]
        basis = searcher.basis(prepared, progress)
        return PipedAnswer(
            [(name, _kind(relation, name)) for name in relation.shown],
            [_read(keys, row) for row in found[:rows_max]],
            len(found) > rows_max or (fetched is not None and fetched.cut),
            replace(basis, warnings=tuple(dict.fromkeys((*basis.warnings, *relation.warnings)))),
        )

    return searcher.retried(compute)


def relation_of(prepared: Prepared, pipeline: Pipeline, *, newest_first: bool) -> Relation:
    """The rows behind the last stage. Raises BadQuestionError."""
    plan = prepared.plan
    condition = prepared.condition_in(plan.start, plan.end, files=plan.files)
    relation = rows_of_search(prepared.view.schema, condition, pipeline.stages, newest_first=newest_first)
    for stage in pipeline.stages:
        relation = after(relation, stage, is_exact=prepared.executor.reads_files)
    return relation


def _read(keys: Sequence[Group | None], row: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(value if key is None else key.key(value) for key, value in zip(keys, row, strict=True))


def _kind(relation: Relation, name: str) -> str:
    key = relation.keys.get(name)
    if key is not None:
        return "timestamptz" if isinstance(key, ByTime) else "double"
    kind = relation.schema.by_name[name].kind
    return kind if isinstance(kind, str) else str(kind["type"])
