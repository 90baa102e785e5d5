"""A search with pipes behind it: figures, parts of texts, the largest."""

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from query.api.audited import told_of
from query.api.progress_lines import LINES, answered
from query.api.search_routes import search_request_of
from query.api.services import CallerOf, ServicesOf
from query.api.wire import SearchBody, SearchStatsAnswer, basis_fields
from query.model.cancellation import Run
from query.pipes.pipe_language import ROWS_MAX
from query.pipes.pipes import Sample, piped
from query.search.results import plain_row
from query.search.search import Progress

router = APIRouter(prefix="/v1", tags=["search"])


class PipeBody(SearchBody):
    """A search whose query may have pipes, e.g. `error | stats count() by service, bucket(5m)`."""

    limit: Annotated[int, Field(ge=1, le=ROWS_MAX, description="rows of the answer at most")] = 1_000


class PipeColumn(BaseModel):
    name: str
    type: Annotated[str, Field(description="Iceberg's name of it")]


class SampleAnswer(BaseModel):
    """The rows that patterns were made of, and those of them that no row of the answer counts."""

    rows: Annotated[int, Field(description="rows that were read")]
    is_all: Annotated[bool, Field(description="false: there are more; these are the first in their order")]
    missing: Annotated[int, Field(description="rows without a value")]
    of_other_patterns: Annotated[int, Field(description="rows whose patterns are rarer than those given")]
    uncompared: Annotated[
        int, Field(description="rows that were left when as many words were compared as may be")
    ]
    cut: Annotated[int, Field(description="rows of whose text the beginning alone was looked at")]


class PipeAnswer(SearchStatsAnswer):
    """What comes out of the last stage."""

    columns: list[PipeColumn]
    rows: list[list[Any]]
    more: Annotated[bool, Field(description="there are more rows than these")]
    sample: Annotated[SampleAnswer | None, Field(description="of patterns: what they rest on")] = None


@router.post("/pipe", response_model=PipeAnswer, responses=LINES)
async def post_pipe(
    request: Request, body: PipeBody, services: ServicesOf, caller: CallerOf
) -> PipeAnswer | StreamingResponse:
    """The rows behind the last stage, over all rows that match."""
    search_request = search_request_of(request, body, services)

    def ask(current: Run, progress: Progress) -> PipeAnswer:
        found = services.for_tenant(
            caller,
            search_request.table.tenant,
            lambda: piped(
                services.searcher(caller), search_request, current, rows_max=body.limit, progress=progress
            ),
        )
        told_of(request).found(len(found.rows), found.basis.scanned.size_bytes)
        basis = basis_fields(
            found.basis,
            search_request.start,
            search_request.end,
            current,
            pinned=search_request.pin is not None,
        )
        return PipeAnswer(
            **basis,
            columns=[PipeColumn(name=name, type=kind) for name, kind in found.columns],
            rows=[plain_row(row) for row in found.rows],
            more=found.is_cut,
            sample=None if found.sample is None else _sample(found.sample, found.rows),
        )

    return await answered(request, services, search_request.table, ask)


def _sample(sample: Sample, rows: Sequence[Sequence[Any]]) -> SampleAnswer:
    grouped = sample.grouped
    return SampleAnswer(
        rows=grouped.read,
        is_all=sample.is_all,
        missing=grouped.missing,
        of_other_patterns=grouped.read - grouped.missing - grouped.uncompared - sum(row[1] for row in rows),
        uncompared=grouped.uncompared,
        cut=grouped.cut,
    )
