"""One stream: what is known of it, its declared types, its end and its return."""

from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from lake.catalog_client import TableName
from lake.extras_client import ExtrasClient
from lake.log_schema import SYSTEM_COLUMNS
from lake.tenant import TableId
from query.access.access import Caller
from query.api.retention_routes import RetentionAnswer, retention_answer
from query.api.services import CallerOf, Services, ServicesOf
from query.api.table_routes import StreamAnswer, stream_answer
from query.api.turns import run
from query.language.search_sql import columns_of
from query.model.cancellation import Run
from query.model.deleted_files import Files
from query.model.instant import rfc3339
from query.model.table_view import TableView, load_view, table_id
from query.tables.declared_types import declare, declared_types, suggestion
from query.tables.dropped_streams import (
    Dropped,
    Purged,
    drop,
    dropped_streams,
    purge,
    purged_streams,
    undo_window,
)
from query.tables.row_changes import row_changes

router = APIRouter(prefix="/v1/streams", tags=["streams"])
TenantName = Annotated[str, Query(max_length=400)]
StreamName = Annotated[str, Query(max_length=400)]


class StreamBody(BaseModel):
    """Which stream."""

    model_config = ConfigDict(extra="forbid")

    tenant: Annotated[str, Field(max_length=400)]
    stream: Annotated[str, Field(max_length=400)]


class ColumnAnswer(BaseModel):
    """One column of the table."""

    name: str
    type: str
    path: Annotated[str | None, Field(description="where records carry it")]
    system: bool
    declared: Annotated[bool, Field(description="true: somebody declared its type")]
    older: Annotated[
        list[str],
        Field(
            description=(
                "columns with the values stored before a type was declared; searches look into them too"
            )
        ),
    ]


class StreamDetailAnswer(StreamAnswer):
    """Everything about one stream."""

    uuid: str
    schema_: Annotated[list[ColumnAnswer], Field(serialization_alias="schema", validation_alias="schema")]
    retention: RetentionAnswer
    snapshots: int
    delete_files: int
    deleted_rows: Annotated[
        int, Field(description="rows that are deleted by position, and still in the files")
    ]
    order_by: Annotated[
        str | None, Field(description="what orders changes of a key: offset, position, time; null: no key")
    ]
    buckets: Annotated[int | None, Field(description="parts of a table with a key; null: no key")]
    changes: Annotated[
        dict[str, int] | None,
        Field(
            description=(
                "changes that the table has taken, by what became of them: inserted, updated, deleted, "
                "absent (a delete of what is not there), older (than the row it would replace), replaced (by "
                "a later one of its commit), passed_over (by the mode), and others; null: no key"
            )
        ),
    ]
    parked: str | None

    model_config = ConfigDict(populate_by_name=True)


class TypeBody(StreamBody):
    """A type for a field. What was stored before stays readable and searchable."""

    field: Annotated[str, Field(max_length=300)]
    type: Literal["string", "boolean", "int", "long", "double", "timestamptz", "date"]


class TypeAnswer(BaseModel):
    field: str
    type: str
    changed: bool
    older: Annotated[str | None, Field(description="the column that now holds what was stored before")]
    suggestion: Annotated[
        str | None, Field(description="a field of nearly this name, where no record has shown this one yet")
    ]


class DroppedAnswer(BaseModel):
    """A stream that is deleted now."""

    dropped: str
    files: Annotated[Files, Field(description="what becomes of them")]
    undo: Annotated[str, Field(description="what becomes of its rows, and how to bring them back")]
    purge_due: Annotated[
        str | None, Field(description="from then on maintenance removes its files for good; null: they stay")
    ]


class UndoneAnswer(BaseModel):
    restored: str


class DroppedStream(BaseModel):
    """A stream that was deleted and is not purged yet."""

    id: int
    tenant: str
    stream: str
    dropped_at: str
    restorable: Annotated[bool, Field(description="false: its purge has begun")]
    purge_due: Annotated[
        str | None,
        Field(
            description=(
                "from then on maintenance removes its files for good; null: nobody asked for that, they stay"
            )
        ),
    ]
    held_by: Annotated[
        str | None, Field(description="the legal hold that keeps its files, whatever `purge_due`")
    ]
    at_once: Annotated[bool, Field(description="true: its files go now, without waiting for `undo_window_s`")]


class PurgedStream(BaseModel):
    """A stream that was deleted, and whose files are gone."""

    stream: str
    dropped_at: str
    purged_at: str
    files: Annotated[int, Field(description="that were removed")]


class PurgeBody(BaseModel):
    """The deleted stream whose files are to go; `now`: not only when it cannot be brought back any more."""

    model_config = ConfigDict(extra="forbid")

    tenant: Annotated[str, Field(max_length=400)]
    id: Annotated[int, Field(description="as the list of deleted streams has it", ge=0, lt=2**63)]
    now: bool = False


class DroppedStreamsAnswer(BaseModel):
    """Deleted streams. `undo_window_s`: how long one that is deleted now can be brought back at least; null:
    this catalog has no undo. `purged`: those whose files went in the last 90 days."""

    dropped: list[DroppedStream]
    purged: list[PurgedStream]
    undo_window_s: float | None


@router.get("/detail")
async def get_stream(
    request: Request, services: ServicesOf, caller: CallerOf, tenant: TenantName, stream: StreamName = "logs"
) -> StreamDetailAnswer:
    """Columns with their types, retention and what it takes, size, files, freshness."""
    table = table_id(tenant, stream)

    def ask(_: Run) -> StreamDetailAnswer:
        view = services.for_tenant(caller, table.tenant, lambda: load_view(caller.catalog, table))
        return _detail(services, caller, view)

    return await run(request, ask, timeout_s=services.settings.search.timeout_s, tenant=table.tenant)


@router.post("/types")
async def declare_type(
    request: Request, body: TypeBody, services: ServicesOf, caller: CallerOf
) -> TypeAnswer:
    """Declares a field's type, before or after records have shown it. Only metadata changes; later values
    that do not fit go to `_errors`."""
    table = table_id(body.tenant, body.stream)

    def ask(_: Run) -> TypeAnswer:
        services.access.check_writer(caller, table.tenant)
        near = suggestion(body.field, load_view(caller.catalog, table).schema)
        done = declare(caller.catalog, table, body.field, body.type)
        return TypeAnswer(
            field=done.field, type=done.kind, changed=done.changed, older=done.older, suggestion=near
        )

    return await run(request, ask, timeout_s=services.settings.search.timeout_s, tenant=table.tenant)


@router.get("/dropped")
async def list_dropped(
    request: Request, services: ServicesOf, caller: CallerOf, tenant: TenantName
) -> DroppedStreamsAnswer:
    """Deleted streams of a tenant that can still be brought back, or wait for their purge, or are gone."""
    wanted = table_id(tenant, "logs").tenant

    def ask(_: Run) -> DroppedStreamsAnswer:
        services.access.check_tenant(caller, wanted)
        window = undo_window(services.own_catalog)
        own, knows = services.own_catalog, caller.who.knows
        return DroppedStreamsAnswer(
            dropped=[_dropped(each) for each in dropped_streams(own, wanted) if knows(each.stream)],
            purged=[_purged(each) for each in purged_streams(own, wanted) if knows(each.stream)],
            undo_window_s=None if window is None else window.total_seconds(),
        )

    return await run(request, ask, timeout_s=services.settings.search.timeout_s, tenant=wanted)


@router.delete("")
async def drop_stream(
    request: Request,
    services: ServicesOf,
    caller: CallerOf,
    tenant: TenantName,
    stream: StreamName,
    files: Annotated[
        Files, Query(description="after-undo: maintenance removes them then; keep: they stay")
    ] = Files.AFTER_UNDO,
) -> DroppedAnswer:
    """Drops a stream's table. It can be brought back for the catalog's `undo_window_s`; after that
    maintenance removes its files, or they are kept."""
    table = table_id(tenant, stream)

    def ask(_: Run) -> DroppedAnswer:
        services.access.check_writer(caller, table.tenant)
        return _drop_answer(table, drop(caller.catalog, services.own_catalog, table, files))

    return await run(request, ask, timeout_s=services.settings.search.timeout_s, tenant=table.tenant)


@router.post("/purge")
async def purge_stream(
    request: Request, body: PurgeBody, services: ServicesOf, caller: CallerOf
) -> DroppedStream:
    """Has the files of a deleted stream removed: when it cannot be brought back any more, or `now`, within
    maintenance's next minutes. Needs an administrator's key."""
    whose = table_id(body.tenant, "logs").tenant

    def ask(_: Run) -> DroppedStream:
        services.access.check_administrator(caller)
        return _dropped(purge(caller.catalog, services.own_catalog, whose, body.id, at_once=body.now))

    return await run(request, ask, timeout_s=services.settings.search.timeout_s, tenant=whose)


@router.post("/undo")
async def undo_drop(
    request: Request, body: StreamBody, services: ServicesOf, caller: CallerOf
) -> UndoneAnswer:
    """Brings a dropped stream back with all its rows."""
    table = table_id(body.tenant, body.stream)

    def ask(_: Run) -> UndoneAnswer:
        services.access.check_stream(caller, table)
        services.access.check_writer(caller, table.tenant)
        ExtrasClient(caller.catalog).undo_drop(TableName(table.tenant.namespace, table.table))
        return UndoneAnswer(restored=str(table))

    return await run(request, ask, timeout_s=services.settings.search.timeout_s)


def _detail(services: Services, caller: Caller, view: TableView) -> StreamDetailAnswer:
    declared, lag = declared_types(view.properties), services.lag.of(view.id)
    told = row_changes(view)
    columns = []
    for each in view.schema.columns:
        kind = each.kind if isinstance(each.kind, str) else str(each.kind["type"])
        is_system = each.name in SYSTEM_COLUMNS
        older = [] if is_system else [other.name for other in columns_of(each.name, view.schema)[1:]]
        path = None if is_system else each.doc
        columns.append(
            ColumnAnswer(
                name=each.name,
                type=kind,
                path=path,
                system=is_system,
                declared=declared.get(each.name) == kind,
                older=older,
            )
        )
    return StreamDetailAnswer(
        **stream_answer(services, view.id.tenant, view).model_dump(),
        uuid=view.uuid,
        schema_=columns,
        retention=retention_answer(services, caller, view),
        snapshots=view.snapshots,
        delete_files=view.totals.delete_files,
        deleted_rows=view.totals.position_deletes,
        order_by=told.order_by,
        buckets=told.buckets,
        changes=None if told.counts is None else dict(told.counts),
        parked=lag.parked_reason if lag else None,
    )


def _drop_answer(table: TableId, dropped: Dropped | None) -> DroppedAnswer:
    if dropped is None:
        undo = "this catalog has no undo: the table is gone from it, its files stay on the storage"
        return DroppedAnswer(dropped=str(table), files=Files.KEEP, undo=undo, purge_due=None)
    if dropped.purge_due is None:
        undo = (
            "POST /v1/streams/undo brings it back; its files stay until an administrator has them removed "
            "(POST /v1/streams/purge)"
        )
        return DroppedAnswer(dropped=str(table), files=Files.KEEP, undo=undo, purge_due=None)
    due = rfc3339(dropped.purge_due)
    undo = (
        f"POST /v1/streams/undo brings it back until {due} at least; after that maintenance removes its "
        "files for good"
    )
    return DroppedAnswer(dropped=str(table), files=Files.AFTER_UNDO, undo=undo, purge_due=due)


def _dropped(each: Dropped) -> DroppedStream:
    return DroppedStream(
        id=each.id,
        tenant=each.tenant,
        stream=each.stream,
        dropped_at=rfc3339(each.dropped_at),
        restorable=each.restorable,
        purge_due=_text(each.purge_due),
        held_by=each.held_by,
        at_once=each.at_once,
    )


def _purged(each: Purged) -> PurgedStream:
    return PurgedStream(
        stream=each.stream,
        dropped_at=rfc3339(each.dropped_at),
        purged_at=rfc3339(each.purged_at),
        files=each.files,
    )


def _text(moment: datetime | None) -> str | None:
    return rfc3339(moment) if moment else None
