"""What a search will cost, from manifests and token filters alone, before it runs; and what would make it
cheaper."""

from dataclasses import dataclass
from datetime import timedelta

from query.language.search_language import field_names
from query.search.file_planner import Effort
from query.search.search import Prepared, Searcher, SearchRequest

# Measured on two cores with logs of the demo's shapes; only the order of magnitude is meant.
SECONDS_PER_BYTE = {"duckdb": 1 / 250e6, "trino": 1 / 80e6}
SECONDS_PER_FILE = {"duckdb": 0.0015, "trino": 0.008}
SECONDS_AT_LEAST = {"duckdb": 0.02, "trino": 0.3}


@dataclass(frozen=True, slots=True)
class Cost:
    """`seconds`: an estimate of opening every planned file once. `advice`: the filter that would cut it most;
    None where it is cheap."""

    planned: Effort
    skipped: Effort
    engine: str
    seconds: float
    advice: str | None
    sql: str


def estimate(searcher: Searcher, search_request: SearchRequest) -> tuple[Cost, Prepared]:
    """Plans a search without running it."""
    prepared = searcher.prepare(search_request)
    engine, planned = prepared.executor.name, prepared.plan.planned
    seconds = (
        SECONDS_AT_LEAST[engine]
        + planned.size_bytes * SECONDS_PER_BYTE[engine]
        + planned.files * SECONDS_PER_FILE[engine]
    )
    condition = prepared.condition_in(search_request.start, search_request.end)
    sql = condition.sql(dialect=engine, pretty=False) if condition is not None else ""
    return Cost(
        planned, prepared.plan.skipped, engine, round(seconds, 3), _advice(prepared, seconds), sql
    ), prepared


def _advice(prepared: Prepared, seconds: float) -> str | None:
    if seconds < 1.0 or not prepared.plan.files:
        return None
    span = prepared.search_request.end - prepared.search_request.start
    if span > timedelta(hours=2):
        edge = int((prepared.search_request.end - span / 10).timestamp() * 1e6)
        tenth = prepared.plan.effort_of([file for file in prepared.plan.files if file.last_us >= edge])
        if tenth.size_bytes < prepared.plan.planned.size_bytes // 2:
            return (
                f"the newest tenth of the time range alone would open {tenth.size_bytes:,} bytes instead "
                f"of {prepared.plan.planned.size_bytes:,}"
            )
    if prepared.search_request.query and not field_names(prepared.node):
        return "words without a field are looked for in every text column; message:word opens one of them"
    return "a shorter time range opens fewer files"
