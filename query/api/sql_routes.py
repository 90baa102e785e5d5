"""SQL over the caller's tenants, read-only, through Trino."""

from typing import Annotated, Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from query.api.audited import told_of
from query.api.services import CallerOf, ServicesOf
from query.api.turns import run
from query.model.cancellation import Run
from query.model.table_view import table_id
from query.search.results import plain_row
from query.sql.sql_access import asks_as, check_tables

router = APIRouter(prefix="/v1", tags=["sql"])
OF_SEVERAL = ""  # what a statement counts as: it may read any number of streams


class SqlBody(BaseModel):
    """One query in Trino's SQL. Tables are streams: `logs`, or `acme.logs`."""

    model_config = ConfigDict(extra="forbid")

    sql: Annotated[
        str, Field(description="one SELECT", examples=["SELECT status, count(*) FROM access GROUP BY 1"])
    ]
    tenant: Annotated[str, Field(max_length=400, description="whose streams names without a schema mean")] = (
        ""
    )
    limit: Annotated[int, Field(ge=1, le=100_000, description="rows to give back at most")] = 1_000


class ColumnAnswer(BaseModel):
    name: str
    type: str


class SqlAnswer(BaseModel):
    columns: list[ColumnAnswer]
    rows: list[list[Any]]
    complete: bool
    reasons: list[str]
    executed: Annotated[str, Field(description="the statement that ran")]
    scanned_bytes: int | None
    took_ms: float


@router.post("/sql")
async def post_sql(request: Request, body: SqlBody, services: ServicesOf, caller: CallerOf) -> SqlAnswer:
    """Runs one query. The statement is read, checked, forced onto the caller's tenants and written anew
    before it runs."""
    default = table_id(body.tenant, "logs").tenant if body.tenant else None
    settings = services.settings
    limit = min(body.limit, settings.sql.rows_max)

    def ask(current: Run) -> SqlAnswer:
        if default is not None:
            services.access.check_tenant(caller, default)
        asker = default.name if default is not None else caller.who.key_id
        statement = services.sql_readers.read(body.sql, default, settings.trino.catalog, current, asker=asker)
        if statement.tenants:
            told_of(request).of(*(tenant.name for tenant in statement.tenants))
        for tenant in sorted(statement.tenants):
            services.access.check_tenant(caller, tenant)
        check_tables(caller.catalog, statement)
        user = asks_as(statement, default, caller.who.namespaces, settings.trino.user)
        found = services.trino.statement(
            statement.sql, current, user=user, rows_max=limit, bytes_max=settings.sql.bytes_max
        )
        told_of(request).found(len(found.rows), found.scanned_bytes)
        current.read_bytes += found.scanned_bytes or 0
        return SqlAnswer(
            columns=[ColumnAnswer(name=name, type=kind) for name, kind in found.columns],
            rows=[plain_row(row) for row in found.rows],
            complete=found.cut is None,
            reasons=[] if found.cut is None else [found.cut],
            executed=statement.sql,
            scanned_bytes=found.scanned_bytes,
            took_ms=round((current.timeout_s - current.left_s) * 1000, 2),
        )

    return await run(
        request,
        ask,
        timeout_s=settings.sql.timeout_s,
        tenant=default,
        lane=services.statements,
        counted_as=OF_SEVERAL,
    )
