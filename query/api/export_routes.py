"""Exports: jobs in the background, their state, their files."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import FileResponse, StreamingResponse
from pydantic import BaseModel, Field

from lake.errors import NotFoundError
from query.access.access import Caller, ForbiddenError
from query.api.audited import told_of
from query.api.search_routes import search_request_of
from query.api.services import CallerOf, Services, ServicesOf
from query.api.turns import run
from query.api.wire import SearchBody
from query.export.export import NO_SUCH, Job
from query.export.export_rows import new_job
from query.model.cancellation import Run
from query.model.problem import refuse
from query.model.table_view import table_id

router = APIRouter(prefix="/v1/exports", tags=["exports"])
MEDIA = {
    "ndjson": "application/x-ndjson",
    "csv": "text/csv; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
}
BLOCK_BYTES = 1 << 20


class ExportBody(SearchBody):
    """A search whose rows are written to files, all of them."""

    format: Annotated[
        Literal["ndjson", "csv", "parquet"], Field(description="parquet gives several files")
    ] = "ndjson"
    spreadsheet_safe: Annotated[
        bool,
        Field(
            description=(
                "CSV only: texts that a spreadsheet would take for a formula get an apostrophe "
                "before them; without it every value is exact"
            )
        ),
    ] = False


class PartAnswer(BaseModel):
    name: str
    rows: int
    bytes: int
    sha256: str


class ExportAnswer(BaseModel):
    """An export and its manifest."""

    id: str
    tenant: str
    stream: str
    query: str
    from_: Annotated[str, Field(alias="from")]
    to: str
    pin: str
    format: str
    created: str
    state: Annotated[str, Field(description="running, done or failed")]
    message: str
    progress: Annotated[float, Field(description="0 to 1, by stretches of time")]
    rows: int
    bytes: int
    sha256: Annotated[
        str,
        Field(
            description="of the whole file, once it is done; empty for parquet, whose parts have their own"
        ),
    ]
    parts: list[PartAnswer]


class ExportsAnswer(BaseModel):
    exports: list[ExportAnswer]


def _answer(job: Job) -> ExportAnswer:
    parts = [
        PartAnswer(name=part.name, rows=part.rows, bytes=part.size_bytes, sha256=part.sha256)
        for part in job.parts
    ]
    progress = 1.0 if job.state == "done" else len(job.parts) / max(1, len(job.stretches))
    plain = {
        name: getattr(job, name)
        for name in (
            "id",
            "tenant",
            "stream",
            "query",
            "pin",
            "format",
            "created",
            "state",
            "message",
            "rows",
            "sha256",
        )
    }
    return ExportAnswer.model_validate(
        {
            **plain,
            "from": job.start,
            "to": job.end,
            "progress": progress,
            "bytes": job.size_bytes,
            "parts": parts,
        }
    )


@router.post("", status_code=202)
async def create_export(
    request: Request, body: ExportBody, services: ServicesOf, caller: CallerOf
) -> ExportAnswer:
    """Starts an export. Its rows are those that are there now."""
    search_request = search_request_of(request, body, services)

    def ask(_: Run) -> ExportAnswer:
        prepared = services.for_tenant(
            caller, search_request.table.tenant, lambda: services.searcher(caller).prepare(search_request)
        )
        job = new_job(
            prepared,
            body.format,
            services.settings.export.part_rows,
            made_by=caller.who.key_id,
            spreadsheet_safe=body.spreadsheet_safe,
        )
        made = services.exports.create(job)
        told_of(request).made(made.id)
        return _answer(made)

    return await run(
        request, ask, timeout_s=services.settings.search.timeout_s, tenant=search_request.table.tenant
    )


@router.get("")
async def list_exports(
    request: Request,
    services: ServicesOf,
    caller: CallerOf,
    tenant: Annotated[str, Query(max_length=400)] = "",
) -> ExportsAnswer:
    """The exports of the tenants that the key reaches, the newest first."""

    def ask(_: Run) -> ExportsAnswer:
        jobs = [job for job in services.exports.jobs() if not tenant or job.tenant == tenant]
        return ExportsAnswer(exports=[_answer(job) for job in jobs if _reaches(services, caller, job)])

    return await run(request, ask, timeout_s=services.settings.search.timeout_s)


@router.get("/{export_id}")
async def get_export(
    request: Request, export_id: str, services: ServicesOf, caller: CallerOf
) -> ExportAnswer:
    """One export with its manifest."""
    return _answer(await _job(request, export_id, services, caller))


@router.get("/{export_id}/file", response_class=StreamingResponse)
async def get_export_file(
    request: Request, export_id: str, services: ServicesOf, caller: CallerOf
) -> Response:
    """The whole file of a finished export."""
    job = await _job(request, export_id, services, caller)
    if job.state != "done":
        raise refuse(f"this export is {job.state}; its file is there when it is done")
    if job.format == "parquet" and len(job.parts) > 1:
        raise refuse(
            "a Parquet export has one file per part",
            suggestion=f"get /v1/exports/{job.id}/parts/... for each of its {len(job.parts)} parts",
        )
    name = (
        f"{job.tenant}-{job.stream}.{job.format}".encode("ascii", "replace")
        .decode()
        .replace("?", "_")
        .replace('"', "_")
        .replace("/", "_")
    )
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "Content-Length": str(job.size_bytes)}
    return StreamingResponse(
        _blocks(services.exports.paths(job)), media_type=MEDIA[job.format], headers=headers
    )


@router.get("/{export_id}/parts/{name}", response_class=FileResponse)
async def get_export_part(
    request: Request, export_id: str, name: str, services: ServicesOf, caller: CallerOf
) -> Response:
    """One part, also while the rest is still being written. Ranges are honoured, so a download can go on."""
    job = await _job(request, export_id, services, caller)
    return FileResponse(services.exports.part_path(job, name), media_type=MEDIA[job.format])


@router.post("/{export_id}/resume")
async def resume_export(
    request: Request, export_id: str, services: ServicesOf, caller: CallerOf
) -> ExportAnswer:
    """Goes on with an export that failed, where it was."""

    def ask(_: Run) -> ExportAnswer:
        return _answer(services.exports.resume(_own(request, services, caller, export_id).id))

    return await run(request, ask, timeout_s=services.settings.search.timeout_s)


@router.delete("/{export_id}", status_code=204)
async def delete_export(request: Request, export_id: str, services: ServicesOf, caller: CallerOf) -> Response:
    """Ends an export where it runs, and removes its files. For the key that made it, and for keys that may
    change what its tenant has."""

    def ask(_: Run) -> None:
        services.exports.delete(_own(request, services, caller, export_id).id)

    await run(request, ask, timeout_s=services.settings.search.timeout_s)
    return Response(status_code=204)


async def _job(request: Request, export_id: str, services: Services, caller: Caller) -> Job:
    return await run(
        request,
        lambda _: _reachable(request, services, caller, export_id),
        timeout_s=services.settings.search.timeout_s,
    )


def _reachable(request: Request, services: Services, caller: Caller, export_id: str) -> Job:
    """The export; one that the key does not reach is answered like one that there never was."""
    job = services.exports.get(export_id)
    told_of(request).about |= {"organization.name": job.tenant, "firn.stream": job.stream}
    if not _reaches(services, caller, job):
        raise NotFoundError(NO_SUCH)
    return job


def _own(request: Request, services: Services, caller: Caller, export_id: str) -> Job:
    """The export, for whoever may end it or go on with it. Raises ForbiddenError for others of its tenant."""
    job = _reachable(request, services, caller, export_id)
    if not job.made_by or job.made_by != caller.who.key_id:
        services.access.check_writer(caller, table_id(job.tenant, job.stream).tenant)
    return job


def _reaches(services: Services, caller: Caller, job: Job) -> bool:
    try:
        services.access.check_stream(caller, table_id(job.tenant, job.stream))
    except (ForbiddenError, NotFoundError):
        return False
    return True


def _blocks(paths: list[Path]) -> Iterator[bytes]:
    for path in paths:
        with path.open("rb") as file:
            while block := file.read(BLOCK_BYTES):
                yield block
