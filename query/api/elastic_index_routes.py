"""Elasticsearch's routes that tell what there is: versions, indices, their fields."""

import re
from collections.abc import Callable, Mapping
from fnmatch import translate
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import PlainTextResponse, Response

from lake.errors import NotFoundError
from lake.tenant import TableId
from query.api.elastic_routes import READS, VERSION, answer_of, enabled, json_of, params_of, serves
from query.api.elastic_search import Asking, indices_of
from query.api.errors import ELASTIC_PREFIX
from query.elastic.elastic_error import malformed, object_of
from query.elastic.fields import capabilities, mapping_of
from query.elastic.search_body import PATTERNS_MAX
from query.model.cancellation import Run
from query.model.table_view import TableView, load_view

router = APIRouter(prefix=ELASTIC_PREFIX, tags=["elasticsearch"], dependencies=[Depends(enabled)])
Told = TypeVar("Told")
GET = ("GET",)
COLUMNS = (
    *("health", "status", "index", "uuid", "pri", "rep", "docs.count", "docs.deleted"),
    *("store.size", "pri.store.size"),
)
_UNITS = ("b", "kb", "mb", "gb", "tb")


@serves(router, ("GET", "HEAD"), "/")
async def information() -> Response:
    """Which Elasticsearch's dialect is answered."""
    version = {
        "number": VERSION,
        "build_flavor": "default",
        "build_type": "firn",
        "build_hash": "firn",
        "build_date": "1970-01-01T00:00:00.000Z",
        "build_snapshot": False,
        "lucene_version": "9.12.0",
        "minimum_wire_compatibility_version": "7.17.0",
        "minimum_index_compatibility_version": "7.0.0",
    }
    named = {"name": "firn", "cluster_name": "firn", "cluster_uuid": "firn"}
    return answer_of({**named, "version": version, "tagline": "You Know, for Search"})


@serves(router, GET, "/_cluster/health")
async def health(request: Request) -> Response:
    """Health in Elasticsearch's words, of the API alone: `/readyz` and `/v1/health` tell more."""
    params_of(request)
    nodes = {"number_of_nodes": 1, "number_of_data_nodes": 1, "active_shards": 0, "timed_out": False}
    return answer_of({"cluster_name": "firn", "status": "green", **nodes})


async def _each(
    request: Request, expression: str, tell: Callable[[TableView], Told], *, ignores_missing: bool = False
) -> Mapping[str, Told]:
    """What is to be told of each index that is meant, from its table's metadata."""
    asking = Asking(request)
    indices = await indices_of(asking, expression, ignores_missing=ignores_missing)

    def told(table: TableId, current: Run) -> Told:
        asking.services.access.check_stream(asking.caller, table)
        current.check()
        return tell(load_view(asking.caller.catalog, table))

    def ask(current: Run) -> dict[str, Told]:
        found = {}
        for index, table in indices.tables.items():
            try:
                found[index] = told(table, current)
            except NotFoundError:
                if not indices.may_be_gone:
                    raise
        return found

    return await asking.turn(None, ask, is_search=False)


@serves(router, ("HEAD",), "/{index}")
async def is_there(request: Request, index: str) -> Response:
    """Whether there is such an index."""
    found = await _each(request, index, lambda view: view.uuid)
    return Response(status_code=200 if found else 404)


@serves(router, GET, "/_aliases", "/_alias", "/{index}/_alias")
async def aliases(request: Request, index: str = "") -> Response:
    """The indices that the key reaches. None has an alias."""
    params_of(request)
    indices = await indices_of(Asking(request), index)
    if not indices.may_be_gone:
        await _each(request, index, lambda view: view.uuid)
    return answer_of({name: {"aliases": {}} for name in indices.tables})


@serves(router, GET, "/_cat/indices", "/_cat/indices/{index}")
async def cat_indices(request: Request, index: str = "") -> Response:
    """The indices, their rows and bytes, as text or with `format=json`."""
    params = params_of(request)
    unit = params.get("bytes", "")
    if unit and unit not in _UNITS:
        raise malformed(f"[bytes] is one of {', '.join(_UNITS)}")
    views = await _each(request, index, lambda view: view)
    rows = [_cat_row(name, view, unit) for name, view in views.items()]
    chosen = params.get("h", ",".join(COLUMNS)).split(",")
    if unknown := [name for name in chosen if name not in COLUMNS]:
        raise malformed(f"[h] knows no column {unknown[0][:60]}; there are {', '.join(COLUMNS)}")
    if params.get("format") == "json":
        return answer_of([{name: row[name] for name in chosen} for row in rows])
    lines = [[row[name] for name in chosen] for row in rows]
    listed = [chosen, *lines] if params.get("v", "false").lower() in ("", "true") else lines
    return PlainTextResponse("".join(f"{' '.join(line)}\n" for line in listed))


def _cat_row(name: str, view: TableView, unit: str) -> dict[str, str]:
    size = (
        str(view.totals.size_bytes // 1_024 ** _UNITS.index(unit)) if unit else _size(view.totals.size_bytes)
    )
    values = ("green", "open", name, view.uuid, "1", "0", str(view.totals.live_rows), "0", size, size)
    return dict(zip(COLUMNS, values, strict=True))


def _size(size_bytes: float) -> str:
    for unit in _UNITS[:-1]:
        if size_bytes < 1_024:
            return f"{size_bytes:.0f}b" if unit == "b" else f"{size_bytes:.1f}{unit}"
        size_bytes /= 1_024
    return f"{size_bytes:.1f}tb"


@serves(router, GET, "/_mapping", "/{index}/_mapping")
async def mapping(request: Request, index: str = "") -> Response:
    """The fields of indices and their types."""
    params = params_of(request)
    ignores = params.get("ignore_unavailable", "false").lower() in ("", "true")
    found = await _each(request, index, lambda view: mapping_of(view.schema), ignores_missing=ignores)
    return answer_of(dict(found))


@serves(router, READS, "/_field_caps", "/{index}/_field_caps")
async def field_caps(request: Request, index: str = "", fields: Annotated[str, Query()] = "") -> Response:
    """The types of fields over several indices, and what can be done with them."""
    params, body = params_of(request), object_of(await json_of(request) or {}, "body")
    named = body.get("fields", fields)
    patterns = [str(each) for each in named] if isinstance(named, list) else str(named).split(",")
    if not any(patterns) or len(patterns) > PATTERNS_MAX or max(map(len, patterns)) > 300:
        raise malformed(f"[fields] names 1 to {PATTERNS_MAX} fields or patterns, as fields=*")
    ignores = params.get("ignore_unavailable", "false").lower() in ("", "true")
    fits = re.compile("|".join(map(translate, patterns))).match
    found = await _each(request, index, lambda view: capabilities(view.schema, fits), ignores_missing=ignores)
    return answer_of({"indices": list(found), "fields": _over_indices(found)})


def _over_indices(found: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """By field and type what can be done; where the types differ, which indices have which."""
    named: dict[str, dict[str, list[str]]] = {}
    for index, types in found.items():
        for name, kind in types.items():
            named.setdefault(name, {}).setdefault(kind, []).append(index)
    return {
        name: {
            kind: {
                "type": kind,
                "metadata_field": False,
                "searchable": True,
                "aggregatable": kind != "object",
                **({"indices": indices} if len(kinds) > 1 else {}),
            }
            for kind, indices in kinds.items()
        }
        for name, kinds in sorted(named.items())
    }
