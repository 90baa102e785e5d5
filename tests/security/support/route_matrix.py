"""Every route of every HTTP service, and what each kind of key gets there: one row each. A route without a
row fails the tests.

To add one: a line `Route(SERVICE, METHOD, PATH, ACCESS)` below its service. What the path, `query`, `body` or
`form` names between braces belongs to tenant `b` where keys of `a` ask, and to nobody (`gone`) where a key
asks that would be let in, so that asking changes nothing; a route that only reads says `reads=True` and is
asked about what is there.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

KINDS = ("none", "unknown", "revoked", "reader", "mine", "theirs", "room", "maintenance", "admin")
OF_A = ("reader", "mine")
TOKEN_KIND = "token"  # what `ingest serve` and a node ask for in place of keys
Outcome = Literal[
    "in", "401", "403", "hidden"
]  # hidden: 403 or 404, so that nobody learns whether it is there


class Access(StrEnum):
    """What a route asks for; the table below says what that means for each kind of key. `OF_B`: of the tenant
    that the request names."""

    EVERYBODY = "everybody"
    # the program of the pages, without data: those come over the browser's connection once it has sent a key
    FRONT_END = "front end"
    CREDENTIALS = "credentials in the body"  # asked with wrong ones
    ANY_KEY = "any key"
    READ_OF_B = "read of b"
    WRITE_OF_B = "write of b"
    VIEW_OF_B = "view of b"  # bound keys make none
    COMMIT_OF_B = "commit of b"
    HIDDEN_OF_B = "known to b alone"
    HIDDEN_WRITE_OF_B = "known to writers of b alone"
    COMMIT_EACH = "commit, decided table by table"
    ROOM = "not bound"
    ADMIN = "admin"
    TOKEN = "token"
    NOBODY = "nobody"  # of the front end: turned off, or only from within a page that it has served


def _row(*outcomes: Outcome) -> dict[str, Outcome]:
    return dict(zip(KINDS, outcomes, strict=True))


# fmt: off
OUTCOMES: Mapping[Access, Mapping[str, Outcome]] = {
    #                                none   unknown revoked reader    mine      theirs  room   maintenance
    # admin
    Access.EVERYBODY:         _row("in",  "in",   "in",   "in",     "in",     "in",   "in",  "in",       "in"),
    Access.FRONT_END:         _row("in",  "in",   "in",   "in",     "in",     "in",   "in",  "in",       "in"),
    Access.CREDENTIALS:       _row("401", "401",  "401",  "401",    "401",    "401",  "401", "401",      "401"),
    Access.ANY_KEY:           _row("401", "401",  "401",  "in",     "in",     "in",   "in",  "in",       "in"),
    Access.READ_OF_B:         _row("401", "401",  "401",  "403",    "403",    "in",   "in",  "in",       "in"),
    Access.WRITE_OF_B:        _row("401", "401",  "401",  "403",    "403",    "in",   "in",  "403",      "in"),
    Access.VIEW_OF_B:         _row("401", "401",  "401",  "403",    "403",    "403",  "in",  "403",      "in"),
    Access.COMMIT_OF_B:       _row("401", "401",  "401",  "403",    "403",    "in",   "in",  "in",       "in"),
    Access.HIDDEN_OF_B:       _row("401", "401",  "401",  "hidden", "hidden", "in",   "in",  "in",       "in"),
    Access.HIDDEN_WRITE_OF_B: _row("401", "401",  "401",  "hidden", "hidden", "in",   "in",  "hidden",   "in"),
    Access.COMMIT_EACH:       _row("401", "401",  "401",  "403",    "in",     "in",   "in",  "in",       "in"),
    Access.ROOM:              _row("401", "401",  "401",  "403",    "403",    "403",  "in",  "in",       "in"),
    Access.ADMIN:             _row("401", "401",  "401",  "403",    "403",    "403",  "403", "403",      "in"),
    Access.TOKEN:             _row("401", "401",  "401",  "401",    "401",    "401",  "401", "401",      "401"),
    Access.NOBODY:            _row("403", "403",  "403",  "403",    "403",    "403",  "403", "403",      "403"),
}
# fmt: on


@dataclass(frozen=True)
class Route:
    """One method of one path. `body` is sent as JSON, `form` as a form."""

    service: str
    method: str
    path: str
    access: Access
    query: Mapping[str, str] | None = None
    body: Any = None
    form: Mapping[str, str] | None = None
    reads: bool = False

    @property
    def key(self) -> tuple[str, str, str]:
        """What tells it from the others."""
        return self.service, self.method, self.path

    @property
    def is_public(self) -> bool:
        """Whether it answers without a key, as its row says."""
        return self.access in (Access.EVERYBODY, Access.FRONT_END)

    @property
    def changes(self) -> bool:
        """Whether it may change something when it lets somebody in."""
        return self.method not in ("GET", "HEAD", "OPTIONS", "WEBSOCKET") and not self.reads

    def outcome(self, kind: str) -> Outcome:
        """What a kind of key gets."""
        if kind == TOKEN_KIND:
            return "in"
        return OUTCOMES[self.access][kind]


def everybody(service: str, *paths: str, methods: tuple[str, ...] = ("GET",)) -> tuple[Route, ...]:
    """Rows that let everybody in."""
    return tuple(Route(service, method, path, Access.EVERYBODY) for path in paths for method in methods)


def front_end(path: str, *methods: str) -> tuple[Route, ...]:
    """Rows of the front end's own files."""
    return tuple(Route("ui", method, path, Access.FRONT_END) for method in methods)


A = Access
DOCUMENTS = ("/openapi.json", "/docs", "/docs/oauth2-redirect")
PAGE = ("GET", "HEAD")
EVERY_METHOD = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT")
NS, TABLES, TABLE = (
    "/v1/namespaces/{namespace}",
    "/v1/namespaces/{namespace}/tables",
    "/v1/namespaces/{namespace}/tables/{table}",
)
VIEWS, VIEW = "/v1/namespaces/{namespace}/views", "/v1/namespaces/{namespace}/views/{view}"
NAME = {"namespace": ["{namespace}"], "name": "{table}"}
RENAMED = {"source": NAME, "destination": {"namespace": ["{namespace}"], "name": "elsewhere"}}
FIELDS = [{"id": 1, "name": "message", "type": "string", "required": False}]
SCHEMA = {"type": "struct", "schema-id": 0, "fields": FIELDS}
VIEW_BODY = {
    "name": "{view}",
    "schema": SCHEMA,
    "properties": {},
    "view-version": {
        "version-id": 1,
        "schema-id": 0,
        "timestamp-ms": 1,
        "summary": {},
        "representations": [{"type": "sql", "dialect": "trino", "sql": "SELECT 1"}],
        "default-namespace": ["{namespace}"],
    },
}
COMMIT = {
    "identifier": NAME,
    "requirements": [],
    "updates": [{"action": "set-properties", "updates": {"matrix": "1"}}],
}
ALERT_RULE = {"name": "matrix", "stream": "{table}", "condition": {"mode": "count", "over": 1}}
WORK = {"kind": "matrix", "state": "done", "version": 0}

CATALOG = (
    *everybody("catalog", "/healthz", "/readyz", "/metrics"),
    *everybody("catalog", *DOCUMENTS, methods=PAGE),
    Route("catalog", "GET", "/v1/config", A.ANY_KEY),
    Route(
        "catalog",
        "POST",
        "/v1/oauth/tokens",
        A.CREDENTIALS,
        form={"grant_type": "client_credentials", "client_id": "{key}", "client_secret": "wrong"},
    ),
    Route("catalog", "GET", "/firn/v1/whoami", A.ANY_KEY),
    Route(
        "catalog",
        "GET",
        "/firn/v1/permission",
        A.READ_OF_B,
        query={"need": "read", "namespace": "{namespace}"},
    ),
    Route("catalog", "GET", "/v1/namespaces", A.ANY_KEY),
    Route(
        "catalog",
        "POST",
        "/v1/namespaces",
        A.WRITE_OF_B,
        body={"namespace": ["{namespace}"], "properties": {}},
    ),
    Route("catalog", "GET", NS, A.READ_OF_B),
    Route("catalog", "HEAD", NS, A.READ_OF_B),
    Route("catalog", "DELETE", NS, A.WRITE_OF_B),
    Route("catalog", "POST", NS + "/properties", A.WRITE_OF_B, body={"removals": [], "updates": {}}),
    Route("catalog", "GET", TABLES, A.READ_OF_B),
    Route(
        "catalog",
        "POST",
        TABLES,
        A.WRITE_OF_B,
        body={"name": "{table}", "schema": SCHEMA, "stage-create": True},
    ),
    Route("catalog", "GET", TABLE, A.READ_OF_B),
    Route("catalog", "HEAD", TABLE, A.READ_OF_B),
    Route("catalog", "POST", TABLE, A.COMMIT_OF_B, body=COMMIT),
    Route("catalog", "DELETE", TABLE, A.WRITE_OF_B),
    Route("catalog", "POST", TABLE + "/metrics", A.READ_OF_B, body={"report-type": "scan-report"}),
    Route(
        "catalog",
        "POST",
        NS + "/register",
        A.ADMIN,
        body={"name": "{table}", "metadata-location": "{location}/metadata/gone.metadata.json"},
    ),
    Route("catalog", "POST", "/v1/tables/rename", A.WRITE_OF_B, body=RENAMED),
    Route("catalog", "POST", "/v1/transactions/commit", A.COMMIT_OF_B, body={"table-changes": [COMMIT]}),
    Route("catalog", "GET", VIEWS, A.READ_OF_B),
    Route("catalog", "POST", VIEWS, A.VIEW_OF_B, body={**VIEW_BODY, "name": ""}),
    Route("catalog", "GET", VIEW, A.READ_OF_B),
    Route("catalog", "HEAD", VIEW, A.READ_OF_B),
    Route("catalog", "POST", VIEW, A.VIEW_OF_B, body={"requirements": [], "updates": []}),
    Route("catalog", "DELETE", VIEW, A.WRITE_OF_B),
    Route("catalog", "POST", "/v1/views/rename", A.WRITE_OF_B, body=RENAMED),
    Route(
        "catalog",
        "POST",
        NS + "/register-view",
        A.ADMIN,
        body={"name": "{view}", "metadata-location": "{location}/metadata/gone.metadata.json"},
    ),
    Route(
        "catalog", "POST", "/firn/v1/commits", A.COMMIT_EACH, body={"commits": [COMMIT]}
    ),  # test_routes.py looks into the answer
    Route("catalog", "POST", "/firn/v1/loads", A.ANY_KEY, body={"identifiers": [NAME]}, reads=True),
    Route("catalog", "GET", "/firn/v1/leases", A.ROOM),
    Route(
        "catalog",
        "POST",
        "/firn/v1/leases/{lease}/acquire",
        A.ROOM,
        body={"holder": "matrix", "ttl-ms": 1000},
    ),
    Route(
        "catalog",
        "POST",
        "/firn/v1/leases/{lease}/renew",
        A.ROOM,
        body={"holder": "matrix", "token": 1, "ttl-ms": 1000},
    ),
    Route(
        "catalog", "POST", "/firn/v1/leases/{lease}/release", A.ROOM, body={"holder": "matrix", "token": 1}
    ),
    Route("catalog", "GET", "/firn/v1/parked", A.ROOM),
    Route("catalog", "GET", "/firn/v1/parked/{namespace}/{table}", A.ROOM),
    Route("catalog", "POST", "/firn/v1/parked", A.ROOM, body={"changes": []}),
    Route("catalog", "GET", "/firn/v1/tables", A.ROOM),
    Route("catalog", "GET", "/firn/v1/dirty-partitions", A.ROOM),
    Route("catalog", "GET", "/firn/v1/partition-groups", A.ROOM, query={"before": "timestamp_hour=2026"}),
    Route("catalog", "POST", "/firn/v1/dirty-partitions/recount", A.ROOM, body={"identifier": NAME}),
    Route("catalog", "GET", "/firn/v1/tasks", A.ROOM),
    Route(
        "catalog", "POST", "/firn/v1/tasks", A.ROOM, body={"tasks": [{"id": "matrix-{namespace}", **WORK}]}
    ),
    Route("catalog", "DELETE", "/firn/v1/tasks/{task}", A.ROOM),
    Route("catalog", "POST", "/firn/v1/deletions", A.ROOM, body={"deletions": []}),
    Route("catalog", "GET", "/firn/v1/deletions", A.ROOM),
    Route("catalog", "POST", "/firn/v1/deletions/acknowledge", A.ROOM, body={"ids": []}),
    Route("catalog", "POST", "/firn/v1/deletions/queued", A.ROOM, body={"locations": ["file:///x"]}),
    Route("catalog", "GET", "/firn/v1/dropped-tables", A.ROOM),
    Route("catalog", "POST", "/firn/v1/dropped-tables/undo", A.WRITE_OF_B, body={"identifier": NAME}),
    Route("catalog", "POST", "/firn/v1/dropped-tables/{dropped}/purge", A.ADMIN),
    Route("catalog", "POST", "/firn/v1/dropped-tables/{dropped}/purge-started", A.ROOM),
    Route("catalog", "DELETE", "/firn/v1/dropped-tables/{dropped}", A.ROOM),
    Route("catalog", "POST", "/firn/v1/holds", A.ROOM, body={"namespace": ["{namespace}"], "reason": " "}),
    Route("catalog", "DELETE", "/firn/v1/holds/{namespace}/{hold}", A.ROOM),
    Route("catalog", "GET", "/firn/v1/policies", A.ROOM),
    Route("catalog", "GET", "/firn/v1/tenants", A.ROOM),
    Route("catalog", "GET", "/firn/v1/keys", A.ADMIN),
    Route(
        "catalog",
        "POST",
        "/firn/v1/keys",
        A.ADMIN,
        body={"scope": "read", "namespace": ["{namespace}"], "note": "matrix"},
    ),
    Route("catalog", "POST", "/firn/v1/keys/{key}/rotate", A.ADMIN, body={"overlap": "0"}),
    Route("catalog", "DELETE", "/firn/v1/keys/{key}", A.ADMIN),
    Route("catalog", "GET", "/firn/v1/metrics-reports", A.ADMIN),
)

OF_TENANT = {"tenant": "{tenant}", "stream": "{table}"}
RANGE = {**OF_TENANT, "from": "2026-09-01T00:00:00Z", "to": "2026-09-02T00:00:00Z"}
ROW = {
    **OF_TENANT,
    "timestamp": "2026-09-01T10:00:00Z",
    "topic_id": "test-topic-id",
    "partition": "0",
    "offset": "0",
}
EXPORT, ERASURE = "/v1/exports/{export}", "/v1/erasures/{erasure}"


def _elastic(method: str, access: Access, *paths: str) -> tuple[Route, ...]:
    """Rows of Elasticsearch's routes, of which none changes anything."""
    return tuple(
        Route("query", method, f"/elasticsearch{path}", access, query=_asked_of(path), reads=True)
        for path in paths
    )


def _asked_of(path: str) -> Mapping[str, str] | None:
    return {"fields": "*"} if path.endswith("_field_caps") else None


ELASTIC_LISTS = ("/_cluster/health", "/_cat/indices", "/_aliases", "/_alias", "/_mapping")
ELASTIC_READS = ("/_search", "/_msearch", "/_count", "/_field_caps")
OF_INDEX_BY_BODY = ("/{index}/_search", "/{index}/_count", "/{index}/_field_caps")
OF_INDEX = (*OF_INDEX_BY_BODY, "/{index}/_alias", "/{index}/_mapping")

QUERY = (
    *everybody("query", "/healthz", "/readyz", "/metrics"),
    *everybody("query", *DOCUMENTS, "/redoc", methods=PAGE),
    Route("query", "POST", "/v1/search", A.READ_OF_B, body=RANGE, reads=True),
    Route("query", "GET", "/v1/search", A.READ_OF_B, query=RANGE),
    Route("query", "POST", "/v1/search/stream", A.READ_OF_B, body=RANGE, reads=True),
    Route("query", "POST", "/v1/histogram", A.READ_OF_B, body=RANGE, reads=True),
    Route("query", "GET", "/v1/histogram", A.READ_OF_B, query=RANGE),
    Route("query", "POST", "/v1/pipe", A.READ_OF_B, body={**RANGE, "query": "| top message"}, reads=True),
    Route("query", "GET", "/v1/row", A.READ_OF_B, query=ROW),
    Route("query", "POST", "/v1/fields", A.READ_OF_B, body=RANGE, reads=True),
    Route("query", "POST", "/v1/values", A.READ_OF_B, body={**RANGE, "field": "message"}, reads=True),
    Route("query", "GET", "/v1/context", A.READ_OF_B, query=ROW),
    Route("query", "POST", "/v1/explain", A.READ_OF_B, body=RANGE, reads=True),
    Route("query", "POST", "/v1/errors", A.READ_OF_B, body=RANGE, reads=True),
    Route(
        "query",
        "POST",
        "/v1/sql",
        A.READ_OF_B,
        body={"sql": "SELECT message FROM {tenant}.{table}"},
        reads=True,
    ),
    Route("query", "POST", "/v1/exports", A.READ_OF_B, body=RANGE),
    Route("query", "GET", "/v1/exports", A.ANY_KEY),
    Route("query", "GET", EXPORT, A.HIDDEN_OF_B),
    Route("query", "GET", EXPORT + "/file", A.HIDDEN_OF_B),
    Route("query", "GET", EXPORT + "/parts/{part}", A.HIDDEN_OF_B),
    Route("query", "POST", EXPORT + "/resume", A.HIDDEN_OF_B),
    Route("query", "DELETE", EXPORT, A.HIDDEN_OF_B),
    Route(
        "query",
        "POST",
        "/v1/erasures",
        A.WRITE_OF_B,
        body={"tenant": "{tenant}", "streams": ["{table}"], "query": "nothing", "dry_run": True},
    ),
    Route("query", "GET", "/v1/erasures", A.WRITE_OF_B, query={"tenant": "{tenant}"}),
    Route("query", "GET", ERASURE, A.HIDDEN_WRITE_OF_B),
    Route("query", "GET", "/v1/tenants", A.ANY_KEY),
    Route("query", "GET", "/v1/tenants/names", A.ANY_KEY),
    Route("query", "DELETE", "/v1/tenants", A.WRITE_OF_B, query={"tenant": "{tenant}"}),
    Route("query", "GET", "/v1/streams", A.READ_OF_B, query={"tenant": "{tenant}"}),
    Route("query", "GET", "/v1/streams/detail", A.READ_OF_B, query=OF_TENANT),
    Route(
        "query", "POST", "/v1/streams/types", A.WRITE_OF_B, body={**OF_TENANT, "field": "n", "type": "long"}
    ),
    Route("query", "POST", "/v1/streams/retention", A.WRITE_OF_B, body={**OF_TENANT, "retention": "1d"}),
    Route("query", "GET", "/v1/tenants/retention", A.READ_OF_B, query={"tenant": "{tenant}"}),
    Route(
        "query",
        "POST",
        "/v1/tenants/retention",
        A.WRITE_OF_B,
        body={"tenant": "{tenant}", "retention": "forever"},
    ),
    Route("query", "GET", "/v1/holds", A.READ_OF_B, query={"tenant": "{tenant}"}),
    Route("query", "POST", "/v1/holds", A.ROOM, body={"tenant": "{tenant}", "reason": " "}),
    Route("query", "DELETE", "/v1/holds/{hold_id}", A.ROOM, query={"tenant": "{tenant}"}),
    Route("query", "GET", "/v1/tenants/limits", A.READ_OF_B, query={"tenant": "{tenant}"}),
    Route(
        "query",
        "POST",
        "/v1/tenants/limits",
        A.ROOM,
        body={"tenant": "{tenant}", "limits": {"exports": None}},
    ),
    Route("query", "GET", "/v1/usage", A.READ_OF_B, query={"tenant": "{tenant}"}),
    Route("query", "GET", "/v1/alerts", A.READ_OF_B, query={"tenant": "{tenant}"}),
    Route("query", "GET", "/v1/alerts/rules", A.READ_OF_B, query={"tenant": "{tenant}"}),
    Route(
        "query",
        "POST",
        "/v1/alerts/rules",
        A.WRITE_OF_B,
        body={"tenant": "{tenant}", "rules": [ALERT_RULE], "dry_run": True},
    ),
    Route("query", "DELETE", "/v1/alerts/rules/{rule}", A.WRITE_OF_B, query={"tenant": "{tenant}"}),
    Route(
        "query",
        "POST",
        "/v1/alerts/dry-run",
        A.READ_OF_B,
        body={"tenant": "{tenant}", "rule": ALERT_RULE},
        reads=True,
    ),
    Route("query", "GET", "/v1/boards", A.READ_OF_B, query={"tenant": "{tenant}"}),
    Route("query", "GET", "/v1/boards/{board}", A.READ_OF_B, query={"tenant": "{tenant}"}),
    Route(
        "query",
        "PUT",
        "/v1/boards/{board}",
        A.WRITE_OF_B,
        body={"tenant": "{tenant}", "board": {"title": "matrix"}, "version": 999_999},
    ),
    Route("query", "DELETE", "/v1/boards/{board}", A.WRITE_OF_B, query={"tenant": "{tenant}"}),
    Route("query", "GET", "/v1/streams/dropped", A.READ_OF_B, query={"tenant": "{tenant}"}),
    Route("query", "DELETE", "/v1/streams", A.WRITE_OF_B, query=OF_TENANT),
    Route(
        "query", "POST", "/v1/streams/purge", A.ADMIN, body={"tenant": "{tenant}", "id": 999_999, "now": True}
    ),
    Route("query", "POST", "/v1/streams/undo", A.WRITE_OF_B, body=OF_TENANT),
    Route("query", "GET", "/v1/dead-letters", A.READ_OF_B, query={"tenant": "{tenant}"}),
    Route("query", "GET", "/v1/dead-letters/{letter}", A.READ_OF_B, query={"tenant": "{tenant}"}),
    Route(
        "query",
        "POST",
        "/v1/dead-letters/replay",
        A.WRITE_OF_B,
        body={"tenant": "{tenant}", "reason": "matrix", "dry_run": True},
    ),
    Route("query", "GET", "/v1/parked", A.READ_OF_B, query={"tenant": "{tenant}"}),
    Route("query", "GET", "/v1/tail", A.READ_OF_B, query={"tenant": "{tenant}"}),
    Route("query", "GET", "/v1/maintenance", A.READ_OF_B, query={"tenant": "{tenant}"}),
    Route("query", "GET", "/v1/health", A.ANY_KEY),
    Route("query", "GET", "/v1/saved-searches", A.ANY_KEY),
    Route("query", "PUT", "/v1/saved-searches/{saved:path}", A.ANY_KEY, body={"address": {"q": "matrix"}}),
    Route("query", "DELETE", "/v1/saved-searches/{saved:path}", A.ANY_KEY),
    *_elastic("GET", A.ANY_KEY, "/", *ELASTIC_LISTS, *ELASTIC_READS, "/_search/scroll"),
    *_elastic("GET", A.READ_OF_B, *OF_INDEX, "/_cat/indices/{index}"),
    *_elastic("POST", A.ANY_KEY, *ELASTIC_READS, "/_search/scroll"),
    *_elastic("POST", A.READ_OF_B, *OF_INDEX_BY_BODY, "/{index}/_pit"),
    *_elastic("HEAD", A.ANY_KEY, "/"),
    *_elastic("HEAD", A.READ_OF_B, "/{index}"),
    *_elastic("DELETE", A.ANY_KEY, "/_search/scroll", "/_pit"),
    # Each search among several is decided by itself, and its refusal is answered among the others' answers.
    *(each for method in ("GET", "POST") for each in _elastic(method, A.ANY_KEY, "/{index}/_msearch")),
    # Refused for everybody.
    *(each for method in ("POST", "PUT") for each in _elastic(method, A.ANY_KEY, "/_bulk", "/{index}/_bulk")),
)

LETTERS = "/v1/dead-letters"
SERVE = (
    *everybody("ingest-serve", "/healthz", "/readyz"),
    *(Route("ingest-serve", method, path, A.TOKEN) for path in (*DOCUMENTS, "/redoc") for method in PAGE),
    Route("ingest-serve", "GET", "/metrics", A.TOKEN),
    Route("ingest-serve", "GET", "/v1/status", A.TOKEN),
    Route("ingest-serve", "GET", "/v1/freshness", A.TOKEN, query={"tenant": "{tenant}"}),
    Route("ingest-serve", "GET", "/v1/durable", A.TOKEN),
    Route(
        "ingest-serve",
        "GET",
        "/v1/kept-records",
        A.TOKEN,
        query={"kind": "dead-letters", "tenant": "{tenant}"},
    ),
    Route("ingest-serve", "POST", "/v1/explain-message", A.TOKEN, body={"value": "{tenant}"}, reads=True),
    Route("ingest-serve", "GET", "/v1/tail", A.TOKEN, query={"tenant": "{tenant}"}),
    Route("ingest-serve", "POST", "/v1/audit-events", A.TOKEN, body={"events": []}),
    Route("ingest-serve", "POST", "/v1/usage-rows", A.TOKEN, body={"rows": []}),
    Route("ingest-serve", "GET", LETTERS, A.TOKEN, query={"tenant": "{tenant}"}),
    Route("ingest-serve", "GET", LETTERS + "/{letter}", A.TOKEN),
    Route("ingest-serve", "GET", LETTERS + "/{letter}/value", A.TOKEN),
    Route("ingest-serve", "POST", LETTERS + "/replay", A.TOKEN, body={"reason": "matrix", "dry_run": True}),
)
NODE = (
    *everybody("ingest-node", "/healthz", "/readyz"),
    *(Route("ingest-node", method, "/openapi.json", A.TOKEN) for method in PAGE),
    Route("ingest-node", "GET", "/metrics", A.TOKEN),
    Route("ingest-node", "GET", "/v1/status", A.TOKEN),
)
OPTIMIZE = everybody(
    "optimize", "/metrics"
)  # prometheus_client's server: whatever path is asked for, it answers with the metrics

UI = (
    *everybody("ui", "/_stcore/health", "/_stcore/metrics", methods=(*PAGE, "OPTIONS")),
    *front_end("/", "GET"),
    *front_end("/_stcore/host-config", *PAGE),
    *front_end("/_stcore/stream", "WEBSOCKET"),
    *front_end("/media/{file}", *PAGE, "OPTIONS"),
    *front_end("/_stcore/upload_file/{session}/{file}", "OPTIONS"),
    Route("ui", "PUT", "/_stcore/upload_file/{session}/{file}", A.NOBODY),
    Route("ui", "DELETE", "/_stcore/upload_file/{session}/{file}", A.NOBODY),
    *front_end("/component/{file}", *PAGE, "OPTIONS"),
    *front_end("/_stcore/bidi-components/{file}", *PAGE, "OPTIONS"),
    *front_end("/auth/login", *PAGE),
    *front_end("/auth/logout", *PAGE),
    *front_end("/oauth2callback", *PAGE),
    *front_end("/_stcore/agent/interact", *(method for method in EVERY_METHOD if method != "POST")),
    Route("ui", "POST", "/_stcore/agent/interact", A.NOBODY),
    *front_end("/_stcore/agent/openapi.json", *EVERY_METHOD),
    *front_end("/_stcore/agent/mcp", *EVERY_METHOD),
)

ROUTES: tuple[Route, ...] = (*CATALOG, *QUERY, *SERVE, *NODE, *OPTIMIZE, *UI)
