"""SQL over the caller's tenants, read-only, through Trino."""

from typing import Annotated, Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from query.api.services import CallerOf, ServicesOf, run
from query.cancellation import Run
from query.results import plain_row
from query.sql_guard import guard
from query.table_view import table_id

router = APIRouter(prefix="/v1", tags=["sql"])


class SqlBody(BaseModel):
    """One query in Trino's SQL. Tables are streams: `logs`, or `acme.logs`."""

    model_config = ConfigDict(extra="forbid")

    sql: Annotated[str, Field(description="one SELECT", examples=["SELECT status, count(*) FROM access GROUP BY 1"])]
    tenant: Annotated[str, Field(max_length=400, description="whose streams names without a schema mean")] = ""
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
    """Runs one query. The statement is read, checked, forced onto the caller's tenants and written anew before it runs."""
    default = table_id(body.tenant, "logs").tenant if body.tenant else None
    limit = min(body.limit, services.settings.sql_rows_max)

    def ask(current: Run) -> SqlAnswer:
        if default is not None:
            services.access.check_tenant(caller, default)
        sql = guard(body.sql, default, services.settings.trino_catalog, lambda tenant: services.access.check_tenant(caller, tenant))
        columns, rows, scanned = services.trino.statement(sql, current, rows_max=limit)
        cut = len(rows) > limit
        return SqlAnswer(
            columns=[ColumnAnswer(name=name, type=kind) for name, kind in columns],
            rows=[plain_row(row) for row in rows[:limit]],
            complete=not cut,
            reasons=[f"only the first {limit:,} rows are given; raise `limit`, or export"] if cut else [],
            executed=sql,
            scanned_bytes=scanned,
            took_ms=round((current.timeout_s - current.left_s) * 1000, 2),
        )

    return await run(request, ask, timeout_s=services.settings.sql_timeout_s)
