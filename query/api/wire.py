"""What goes over the wire: requests and answers, in the words of the OpenAPI document."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from query.files.token_filters import FilterEffort
from query.model.cancellation import Run
from query.model.instant import rfc3339
from query.search.file_planner import Effort
from query.search.search import SearchStats

TIME_HELP = "RFC 3339, a date, `now`, `now-15m` (s, m, h, d, w), or milliseconds since 1970"


class SearchBody(BaseModel):
    """A search. `from` is included, `to` is not."""

    model_config = ConfigDict(populate_by_name=True, extra="forbid")

    tenant: Annotated[
        str,
        Field(
            max_length=400,
            description="the tenant's name, exactly as its records carry it",
            examples=["acme"],
        ),
    ]
    stream: Annotated[str, Field(max_length=400, description="one of the tenant's streams")] = "logs"
    from_: Annotated[str, Field(alias="from", max_length=60, description=TIME_HELP)] = "now-15m"
    to: Annotated[str, Field(max_length=60, description=TIME_HELP)] = "now"
    query: Annotated[
        str, Field(description='words or field:value, e.g. `status:500 AND path:"/api"`; empty: every row')
    ] = ""
    pin: Annotated[
        str,
        Field(
            max_length=100_000,
            description="of a link or an earlier answer: only the rows that were there then",
        ),
    ] = ""
    engine: Annotated[Literal["auto", "trino", "duckdb"], Field(description="who runs it")] = "auto"


class PageBody(SearchBody):
    """A page of a search."""

    limit: Annotated[int, Field(ge=1, le=10_000, description="rows of the page")] = 100
    cursor: Annotated[
        str, Field(max_length=1_000, description="`next` of the page before; empty: the first page")
    ] = ""
    order: Annotated[Literal["newest", "oldest"], Field(description="which rows come first")] = "newest"


class StreamBody(SearchBody):
    """All rows of a search."""

    order: Annotated[Literal["newest", "oldest"], Field(description="which rows come first")] = "newest"


class HistogramBody(SearchBody):
    """Counts of a search over time."""

    width_s: Annotated[
        int | None, Field(ge=1, le=10**9, description="seconds of one bucket; left out: fitting the range")
    ] = None
    by: Annotated[Literal["none", "level"], Field(description="`level` splits each bucket by severity")] = (
        "none"
    )


class RowQuery(BaseModel):
    """The coordinates of one row."""

    model_config = ConfigDict(extra="forbid")

    tenant: Annotated[str, Field(max_length=400)]
    stream: Annotated[str, Field(max_length=400)] = "logs"
    timestamp: Annotated[str, Field(max_length=60, description="the row's time, exactly as a search gave it")]
    topic_id: Annotated[str, Field(max_length=200)]
    partition: Annotated[int, Field(ge=0, lt=2**31)]
    offset: Annotated[int, Field(ge=0, lt=2**63)]
    index: Annotated[int, Field(ge=0, lt=2**31)] = 0


class EffortAnswer(BaseModel):
    files: int
    rows: int
    bytes: int


class FiltersAnswer(BaseModel):
    """What token filters told of the files in the time range that have one."""

    files: Annotated[int, Field(description="files whose filter was asked")]
    files_left: Annotated[int, Field(description="those that may hold a match")]
    row_groups: int
    row_groups_left: int


class ProblemAnswer(BaseModel):
    """A sentence about the question; `position` and `length` count characters of the query."""

    message: str
    position: int | None = None
    length: int | None = None
    suggestion: str | None = None


class ErrorAnswer(BaseModel):
    """Why there is no answer."""

    error: ProblemAnswer


class FreshnessAnswer(BaseModel):
    newest_row: str | None
    oldest_row: str | None
    committed_at: str | None
    lag_records: Annotated[
        int | None, Field(description="of all tenants; null too for keys that are bound to one")
    ]
    complete_until: str | None


class SearchStatsAnswer(BaseModel):
    """What an answer rests on."""

    from_: Annotated[str, Field(alias="from")]
    to: str
    pin: Annotated[str, Field(description="put it into a link to re-open exactly these rows")]
    pin_expires: Annotated[
        bool,
        Field(
            description=(
                "true: changes replace rows of this stream, and the pin opens only as long as the table "
                "keeps this snapshot"
            )
        ),
    ]
    pinned: bool
    snapshot_id: str | None
    engine: str
    planned: EffortAnswer
    skipped: EffortAnswer
    scanned: EffortAnswer
    filters: FiltersAnswer
    complete: Annotated[bool, Field(description="false: `reasons` say what is or may be missing")]
    as_usual: Annotated[
        bool,
        Field(
            description=(
                "nothing is wrong: the answer is complete, or lacks at most what came after "
                "`freshness.complete_until`, no longer ago than twice the flush interval"
            )
        ),
    ]
    reasons: list[str]
    notes: list[str]
    warnings: list[ProblemAnswer]
    freshness: FreshnessAnswer
    took_ms: float

    model_config = ConfigDict(populate_by_name=True)


class Coordinates(BaseModel):
    """Where in Kafka a row came from."""

    topic: str | None
    topic_id: str
    partition: int
    offset: int
    index: int


class UnstoredValue(BaseModel):
    """A value that could not be stored in its column."""

    field: str | None
    value: str | None
    reason: str | None


class RowAnswer(BaseModel):
    timestamp: str
    observed_timestamp: str | None
    severity: str | None
    level: str
    message: str | None
    fields: dict[str, Any]
    errors: list[UnstoredValue]
    overflow: str | None
    coordinates: Coordinates


class PageAnswer(SearchStatsAnswer):
    rows: list[RowAnswer]
    next: str | None


class BucketAnswer(BaseModel):
    start: str
    rows: int
    levels: dict[str, int]


class HistogramAnswer(SearchStatsAnswer):
    width_s: int
    rows: int
    rows_counted_from_metadata: Annotated[
        int, Field(description="rows that were known without opening a file")
    ]
    buckets: list[BucketAnswer]


def basis_fields(
    basis: SearchStats, start: datetime, end: datetime, run: Run, *, pinned: bool
) -> dict[str, Any]:
    """The fields of BasisAnswer."""
    freshness = basis.freshness
    return {
        "from_": rfc3339(start),
        "to": rfc3339(end),
        "pin": basis.pin.to_text(),
        "pin_expires": basis.pin.snapshot_id is not None,
        "pinned": pinned,
        "snapshot_id": None if basis.view.snapshot_id is None else str(basis.view.snapshot_id),
        "engine": basis.engine,
        **{name: effort_answer(getattr(basis, name)) for name in ("planned", "skipped", "scanned")},
        "filters": filters_answer(basis.filters),
        "complete": basis.completeness.complete,
        "as_usual": basis.completeness.as_usual,
        "reasons": list(basis.completeness.reasons),
        "notes": list(basis.completeness.notes),
        "warnings": [problem.to_json() for problem in basis.warnings],
        "freshness": {
            "newest_row": _time(freshness.newest_row),
            "oldest_row": _time(freshness.oldest_row),
            "committed_at": _time(freshness.committed_at),
            "lag_records": freshness.lag.records if freshness.lag and freshness.lag.is_told else None,
            "complete_until": _time(freshness.lag.complete_until) if freshness.lag else None,
        },
        "took_ms": round((run.timeout_s - run.left_s) * 1000, 2),
    }


def effort_answer(effort: Effort) -> EffortAnswer:
    """Files, rows and bytes."""
    return EffortAnswer(files=effort.files, rows=effort.rows, bytes=effort.size_bytes)


def filters_answer(effort: FilterEffort) -> FiltersAnswer:
    """Files and row groups, and what is left of them."""
    return FiltersAnswer(
        files=effort.files,
        files_left=effort.files_left,
        row_groups=effort.row_groups,
        row_groups_left=effort.row_groups_left,
    )


def _time(moment: datetime | None) -> str | None:
    return rfc3339(moment) if moment else None
