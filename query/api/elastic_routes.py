"""The part of Elasticsearch's API that log tools use, under `/elasticsearch`: searches, counts, scrolls."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypeVar

import orjson
from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response

from lake.errors import FirnError, NotFoundError
from query.api.audited import told_of
from query.api.elastic_search import Asking, counted, pinned, scrolled, searched
from query.api.errors import ELASTIC_PREFIX, problem_of
from query.api.services import ServicesOf
from query.elastic.continuation import read_scroll
from query.elastic.elastic_error import (
    ElasticError,
    error_body,
    kind_of,
    malformed,
    object_of,
    only_known,
    unsupported,
)
from query.model.cancellation import CancelledError, TimeOverError
from query.model.problem import BadRequestError

# Said of the dialect that is answered, so that clients know how to ask.
VERSION = "8.17.0"
NO_WRITES = (
    "Firn takes no records here: send them to Kafka, to a topic that `ingest` reads; [_bulk] and everything "
    "else that writes is refused"
)
_MARKS = re.compile(r'[\x00-\x1f"\\\x7f-\U0010ffff]')
# What an address may say beside what the routes read; it changes nothing here.
_IDLE = frozenset(
    {"pretty", "human", "error_trace", "preference", "routing", "request_cache", "allow_no_indices"}
    | {"expand_wildcards", "ignore_throttled", "max_concurrent_shard_requests", "pre_filter_shard_size"}
    | {
        "batched_reduce_size",
        "ccs_minimize_roundtrips",
        "search_type",
        "timeout",
        "lenient",
        "analyze_wildcard",
    }
    | {
        "allow_partial_search_results",
        "keep_alive",
        "include_unmapped",
        "master_timeout",
        "local",
        "wait_for_status",
    }
    | {"request_timeout", "max_concurrent_searches", "format", "v", "h", "s", "bytes", "fields", "filters"}
    | {"default_operator"}
)
_OF_BODY = ("size", "from", "sort", "track_total_hits", "_source")
_READ = frozenset(
    {*_OF_BODY, "_source_includes", "_source_excludes", "q", "scroll", "scroll_id"}
) | frozenset({"ignore_unavailable", "rest_total_hits_as_int", "docvalue_fields", "index"})


async def enabled(services: ServicesOf) -> None:
    """Raises NotFoundError where the setting turns these routes off."""
    if not services.settings.elasticsearch.enabled:
        raise NotFoundError("Elasticsearch's API is turned off here (elasticsearch.enabled)")


router = APIRouter(prefix=ELASTIC_PREFIX, tags=["elasticsearch"], dependencies=[Depends(enabled)])
READS = ("GET", "POST")
Handler = TypeVar("Handler", bound=Callable[..., Any])
_BODY: dict[str, Any] = {"requestBody": {"content": {"application/json": {"schema": {"type": "object"}}}}}


def serves(routes: APIRouter, methods: Sequence[str], *paths: str) -> Callable[[Handler], Handler]:
    """Has a handler answer every method on every path."""

    def register(handler: Handler) -> Handler:
        for path in paths:
            for method in methods:
                extra = _BODY if method != "GET" else None
                routes.add_api_route(path, handler, methods=[method], openapi_extra=extra)
        return handler

    return register


async def json_of(request: Request) -> Any:
    """The JSON body of a request, whatever its type is called; None where it has none. Raises
    ElasticError."""
    raw = await request.body()
    if not raw.strip():
        return None
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise malformed(f"the body is not JSON: {error}") from None


def params_of(request: Request) -> Mapping[str, str]:
    """The parameters of an address. Raises ElasticError for one that nobody reads."""
    params = dict(request.query_params)
    for name in params:
        if name not in _READ | _IDLE:
            raise unsupported(f"?{name[:60]}=")
    return params


def answer_of(answer: Any) -> Response:
    """An answer, with a warning where something is wrong with it."""
    headers = {}
    said = answer.get("_firn") if isinstance(answer, dict) else None
    if said is not None and not said["as_usual"] and said["reasons"]:
        sentence = _MARKS.sub(" ", "; ".join(said["reasons"]))[:1_000]
        headers["Warning"] = f'299 Firn "{sentence}"'
    return Response(
        orjson.dumps(answer, option=orjson.OPT_NON_STR_KEYS), headers=headers, media_type="application/json"
    )


def _is_true(params: Mapping[str, str], name: str) -> bool:
    return params.get(name, "false").lower() in ("", "true")


def _with_params(body: Any, params: Mapping[str, str]) -> dict[str, Any]:
    """The body of a search, with what the address says."""
    given = dict(object_of({} if body is None else body, "body"))
    given |= {name: params[name] for name in _OF_BODY if name in params}
    if "sort" in params:
        given["sort"] = params["sort"].split(",")
    if "docvalue_fields" in params:
        given["docvalue_fields"] = params["docvalue_fields"].split(",")
    if "_source_includes" in params or "_source_excludes" in params:
        listed = {name: params.get(f"_source_{name}") for name in ("includes", "excludes")}
        given["_source"] = {name: value.split(",") for name, value in listed.items() if value}
    return given


@serves(router, READS, "/_search", "/{index}/_search")
async def search(request: Request, index: str = "") -> Response:
    """Matching rows as hits, and aggregations over all of them."""
    params = params_of(request)
    found = await searched(
        Asking(request),
        index,
        _with_params(await json_of(request), params),
        query_string=params.get("q", ""),
        ignores_missing=_is_true(params, "ignore_unavailable"),
        scrolls="scroll" in params,
    )
    return answer_of(_as_asked(found, params))


def _as_asked(found: dict[str, Any], params: Mapping[str, str]) -> dict[str, Any]:
    """With the count of hits as a bare number, for old clients that ask for it."""
    if _is_true(params, "rest_total_hits_as_int") and "total" in found["hits"]:
        found["hits"]["total"] = found["hits"]["total"]["value"]
    return found


@serves(router, READS, "/_search/scroll")
async def scroll(request: Request, scroll_id: Annotated[str, Query()] = "") -> Response:
    """The next page of a scroll, over the rows that were there at its first."""
    params, body = params_of(request), object_of(await json_of(request) or {}, "body")
    only_known(body, "scroll", frozenset({"scroll", "scroll_id"}))
    written = body.get("scroll_id", scroll_id)
    if not isinstance(written, str) or not written:
        raise malformed("[scroll_id] is missing")
    return answer_of(_as_asked(await scrolled(Asking(request), read_scroll(written)), params))


@serves(router, ("DELETE",), "/_search/scroll")
async def end_scroll(request: Request) -> Response:
    """Ends scrolls. Nothing is kept for them, so there is nothing to do."""
    body = object_of(await json_of(request) or {}, "body")
    ids = body.get("scroll_id", [])
    return answer_of({"succeeded": True, "num_freed": len(ids) if isinstance(ids, list) else 1})


@serves(router, ("POST",), "/{index}/_pit")
async def open_pit(request: Request, index: str) -> Response:
    """A point in time: the rows that the indices have now, as an id that finds them again."""
    params_of(request)
    return answer_of({"id": await pinned(Asking(request), index), "_shards": {"failed": 0}})


@serves(router, ("DELETE",), "/_pit")
async def close_pit(request: Request) -> Response:
    """Ends a point in time. Nothing is kept for it, so there is nothing to do."""
    object_of(await json_of(request) or {}, "body")
    return answer_of({"succeeded": True, "num_freed": 1})


@serves(router, READS, "/_count", "/{index}/_count")
async def count(request: Request, index: str = "") -> Response:
    """How many rows match."""
    params, body = params_of(request), object_of(await json_of(request) or {}, "body")
    only_known(body, "body", frozenset({"query"}))
    found = await counted(
        Asking(request),
        index,
        body.get("query"),
        query_string=params.get("q", ""),
        ignores_missing=_is_true(params, "ignore_unavailable"),
    )
    return answer_of(found)


@serves(router, READS, "/_msearch", "/{index}/_msearch")
async def msearch(request: Request, services: ServicesOf, index: str = "") -> Response:
    """Several searches, each answered by itself, an error among them too."""
    params, asking = params_of(request), Asking(request)
    lines = [line for line in (await request.body()).splitlines() if line.strip()]
    most = services.settings.elasticsearch.searches_max
    if len(lines) % 2:
        raise malformed("[_msearch] takes two lines for each search: a header and a body")
    if len(lines) > 2 * most:
        raise ElasticError(f"[_msearch] has {len(lines) // 2:,} searches, at most {most} are allowed")
    answers = []
    for at in range(0, len(lines), 2):
        one = Asking(request, read_bytes=asking.read_bytes)
        answers.append(await _one_of_many(one, lines[at], lines[at + 1], index, params))
        asking.read_bytes = one.read_bytes
    return answer_of({"took": int(asking.took_s * 1_000), "responses": answers})


async def _one_of_many(
    asking: Asking, header: bytes, body: bytes, index: str, params: Mapping[str, str]
) -> dict[str, Any]:
    try:
        said, asked = (object_of(_line(line), "_msearch") for line in (header, body))
        named = said.get("index", said.get("indices", index)) or ""
        names = ",".join(map(str, named)) if isinstance(named, list) else str(named)
        ignores = said.get("ignore_unavailable", _is_true(params, "ignore_unavailable"))
        found = await searched(asking, names, dict(asked), ignores_missing=ignores in (True, "true"))
        return {**_as_asked(found, params), "status": 200}
    except (FirnError, BadRequestError) as error:
        if isinstance(error, CancelledError) and not isinstance(error, TimeOverError):
            raise  # the caller has gone
        told = told_of(asking.request)
        told.error = told.error or error  # nothing raises it any more
        status, problem = problem_of(error, asking.request.url.path)
        kind = error.kind if isinstance(error, ElasticError) else kind_of(status)
        return error_body(kind, problem.message, status)


def _line(line: bytes) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise malformed(f"a line of [_msearch] is not JSON: {error}") from None


@serves(router, ("POST", "PUT"), "/_bulk", "/{index}/_bulk")
async def bulk() -> Response:
    """Refuses records, which come by Kafka."""
    raise ElasticError(NO_WRITES)
