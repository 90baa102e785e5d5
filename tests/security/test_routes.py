"""Routes x keys: what each kind of key gets from each route of each service, as route_matrix.py says, and
nothing of `b` for whoever is not `b`."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import httpx
import pytest

from infra.local.supervisor import Stack
from lake.catalog_client import CatalogClient
from tests.query.support.guarded import SECRET, START, Guarded, start_guarded
from tests.query.support.log_table import LogTable
from tests.security.support.asking import (
    Asker,
    Ingest,
    Names,
    Services,
    sent_as_it_is,
    started_ingest,
    started_services,
)
from tests.security.support.markers import Markers
from tests.security.support.route_matrix import KINDS, OF_A, ROUTES, TOKEN_KIND, Access, Route
from tests.security.support.served_routes import SERVERS, files_with_servers, plain, served
from tests.stack.support.kafka_topics import Record
from tests.stack.support.line import Line

WRITES = (Access.WRITE_OF_B, Access.VIEW_OF_B, Access.COMMIT_OF_B, Access.COMMIT_EACH)
# Who is told nothing of `b`, wherever it asks.
STRANGERS = ("none", "unknown", "revoked", *OF_A)
# The names of one begin like the other's.
A, B = "watchful", "watchfuleu"
STREAM, FIELD, LETTER = "invoices-of-the-other", "field_of_the_other", "letter of the other"
PUBLIC = (
    "/healthz",
    "/readyz",
    "/metrics",
    "/openapi.json",
    "/docs",
    "/docs/oauth2-redirect",
    "/redoc",
    "/_stcore/health",
    "/_stcore/metrics",
)
# A route of each service that asks for a key.
CLOSED = {
    "catalog": "/v1/namespaces",
    "query": "/v1/tenants",
    "ingest-serve": "/v1/status",
    "ingest-node": "/v1/status",
}
SCHEMES = (
    "{}",
    "Basic {}",
    "Token {}",
    "Bearer",
    "Bearer ",
    "Bearer null",
    "Bearer x{}",
    "Bearer {}.",
    "Bearer,{}",
)
ELSEWHERE = {
    "Cookie": "Authorization=Bearer {0}; key={0}",
    "X-Api-Key": "{}",
    "Proxy-Authorization": "Bearer {}",
    "X-Forwarded-Authorization": "Bearer {}",
    "X-Forwarded-For": "127.0.0.1",
    "X-Original-URL": "/healthz",
    "X-HTTP-Method-Override": "OPTIONS",
}
LOOKS_PUBLIC = (
    "/healthz/..{}",
    "/healthz/../..{}",
    "/docs/%2e%2e{}",
    "/metrics;{}",
    "/{}",
    "/.{}",
    "{}?/healthz",
    "{}#/healthz",
    "{0}/../healthz/..{0}",
    "{}%3f/healthz",
    "{}%00/healthz",
    "/healthz%2f..{}",
    "/healthz\\..{}",
)


@pytest.mark.long
def test_every_route_stands_in_the_matrix() -> None:
    """A route that nobody has thought about fails here: give it a row in route_matrix.py. So does a row whose
    route is gone, and one that stands twice."""
    rows = Counter(plain(route.key) for route in ROUTES)
    assert [key for key, times in rows.items() if times > 1] == []
    tabled = {key for key in rows if key[0] != "optimize"}
    assert sorted(served() - tabled) == [], "routes without a row"
    assert sorted(tabled - served()) == [], "rows without a route"


def test_every_server_stands_in_the_matrix() -> None:
    """A new HTTP server of any room fails here: give it a line in served_routes.py and rows in
    route_matrix.py."""
    assert files_with_servers() == SERVERS.keys()
    assert {route.service for route in ROUTES} == {*SERVERS.values(), "ui"}


def test_only_what_tells_nothing_is_public() -> None:
    """A row that lets everybody in is health, metrics or a document; or the static program of the pages, at
    the front end alone."""
    assert [
        route.key for route in ROUTES if route.access is Access.EVERYBODY and route.path not in PUBLIC
    ] == []
    assert {route.service for route in ROUTES if route.access is Access.FRONT_END} == {"ui"}
    assert [route.key for route in ROUTES if route.is_public and route.outcome("none") != "in"] == []


@dataclass(frozen=True)
class Watched:
    """All services, each asking for what it asks for in production, and two tenants with a bit of
    everything."""

    keyed: Guarded
    services: Services
    markers: Markers

    @property
    def asker(self) -> Asker:
        return Asker(self.services, self.markers)


@pytest.fixture(scope="module")
def watched(
    stack: Stack, catalog_client: CatalogClient, line: Line, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("watched")
    with ExitStack() as ends:
        ingest = started_ingest(ends, line)
        keyed = start_guarded(stack, catalog_client, folder, (A, B), ingest.of_api)
        ends.callback(keyed.end)
        hold = _fill(keyed, ingest, line)
        services = started_services(ends, keyed, ingest, folder)
        names = services.names[Names.OF_B]
        own = (names["export"], names["erasure"], names["saved"], hold, STREAM, FIELD, LETTER)
        yield Watched(keyed, services, Markers.of(keyed.theirs, services.key_id_of_theirs, *own))


def _fill(keyed: Guarded, ingest: Ingest, line: Line) -> str:
    """Has `b` own a stream, a field, dead letters and a legal hold, whose id this gives; and `a` dead letters
    of its own."""
    LogTable(keyed.theirs.catalog, B, STREAM).append([{"timestamp": START, "message": SECRET, FIELD: "1"}])
    broken = [
        Record(b'{"half": "%s' % text.encode(), None, (("tenant", tenant.encode()),))
        for tenant, text in ((A, "own letter"), (B, LETTER))
    ]
    line.kafka.produce(ingest.topic, broken)
    line.wait_for_dead_letters(ingest.tools.ingester, len(broken))
    held = keyed.ask("POST", "/v1/holds", "room", json={"tenant": B, "stream": STREAM, "reason": SECRET})
    return str(held.raise_for_status().json()["id"])


@pytest.mark.stack
@pytest.mark.timeout(1_800)
def test_no_key_gets_more_than_its_row_says(
    watched: Watched, record_property: Callable[[str, object], None]
) -> None:
    """Every route is asked with every kind of key. Keys of `a` ask about what `b` has; answers to whoever is
    not `b` are searched for anything of `b`."""
    asker = watched.asker
    wrong: list[str] = []
    leaks: list[str] = []
    unauthenticated_open: set[str] = set()
    for route in ROUTES:
        for kind in (*KINDS, *((TOKEN_KIND,) if route.access is Access.TOKEN else ())):
            answer = asker.ask(route, kind, Names.OF_B if kind in OF_A or not route.changes else Names.GONE)
            if answer is None:
                continue
            if not fits(route.outcome(kind), verdict(answer)):
                wrong.append(
                    f"{route.key} with {kind}: {answer.status_code}, not {route.outcome(kind)}: "
                    f"{answer.text[:200]}"
                )
            if kind in STRANGERS and (found := asker.markers.found_in(answer, named=names_b(route))):
                leaks.append(f"{route.key} with {kind}: {found}")
            if kind in OF_A and route.changes and "committed" in answer.text:
                wrong.append(f"{route.key} with {kind} commits: {answer.text[:200]}")
            if kind == "none" and fits("in", answer.status_code) and not route.is_public:
                unauthenticated_open.add(f"{route.service} {route.method} {route.path}")
    record_property("routes", len(ROUTES))
    record_property("cross_tenant_leaks", len(leaks))
    record_property("unauthenticated_open", sorted(unauthenticated_open))
    record_property("hung", len(asker.hung))
    assert not wrong, "\n".join(wrong)
    assert not leaks, "\n".join(leaks)
    assert unauthenticated_open == set()
    assert asker.hung == []


@pytest.mark.stack
def test_what_a_tenant_asks_of_its_own_tells_nothing_of_another(
    watched: Watched, record_property: Callable[[str, object], None]
) -> None:
    """All that reads, asked with keys of `a` about what `a` has: most of it is answered, and nowhere stands
    even the name of `b`, which begins like `a`'s."""
    asker = watched.asker
    leaks: list[str] = []
    answered = 0
    for route in (route for route in ROUTES if not route.changes):
        for kind in OF_A:
            answer = asker.ask(route, kind, Names.OF_A)
            assert answer is not None, route.key
            answered += answer.is_success
            if found := asker.markers.found_in(answer):
                leaks.append(f"{route.key} with {kind}: {found}: {answer.text[:300]}")
    record_property("cross_tenant_leaks", len(leaks))
    assert not leaks, "\n".join(leaks)
    assert answered > 60


@pytest.mark.stack
def test_a_key_in_a_wrong_place_and_a_path_that_looks_public_open_nothing(
    watched: Watched, record_property: Callable[[str, object], None]
) -> None:
    """A good key that is no bearer (in the query, a cookie, another scheme), and ways round the list of
    public paths: nobody is let in; the same path with the key as it belongs is answered."""
    opened = []
    for service, path in CLOSED.items():
        address = watched.services.addresses[service].rstrip("/")
        key = watched.services.keys[TOKEN_KIND if service.startswith("ingest") else "admin"]
        headers = [{"Authorization": each.format(key)} for each in SCHEMES]
        headers += [{name: each.format(key)} for name, each in ELSEWHERE.items()]
        asks = [(path, each) for each in headers]
        asks += [(f"{path}?{name}={key}", {}) for name in ("access_token", "token", "key", "authorization")]
        asks += [(each.format(path), {}) for each in LOOKS_PUBLIC]
        for target, sent in asks:
            answer = sent_as_it_is(address, "GET", target, sent)
            if answer.status_code not in (400, 401, 404):
                opened.append(f"{service} {target} {sorted(sent)}: {answer.status_code}")
        let_in = sent_as_it_is(address, "GET", path, {"Authorization": f"Bearer {key}"})
        assert let_in.status_code == 200, (service, let_in.text)
    record_property("unauthenticated_open", opened)
    assert opened == []


@pytest.mark.stack
@pytest.mark.timeout(600)
def test_a_read_key_changes_nothing_of_its_own_tenant(watched: Watched) -> None:
    """What writes is refused to `a`'s read key also where everything named is `a`'s."""
    asker = watched.asker
    routes = [route for route in ROUTES if route.access in WRITES]
    answers = {route.key: asker.ask(route, "reader", Names.GONE_OF_A) for route in routes}
    assert len(answers) > 15
    assert {
        key: answer and answer.status_code
        for key, answer in answers.items()
        if answer is None or answer.status_code != 403
    } == {}


@pytest.mark.stack
def test_the_markers_are_seen_where_they_are(watched: Watched) -> None:
    """The search for `b` in answers finds it in what `b` itself is told, so that finding nothing elsewhere
    means something."""
    asker = watched.asker
    for path in (
        "/v1/search",
        "/v1/streams",
        "/v1/namespaces/{namespace}/tables/{table}",
        "/v1/namespaces",
        "/v1/exports/{export}",
        "/v1/saved-searches",
        "/v1/alerts/rules",
        "/v1/boards",
        "/v1/boards/{board}",
        "/v1/dead-letters",
        "/v1/holds",
    ):
        route = next(
            each
            for each in ROUTES
            if each.path == path and each.method == "GET" and each.access is not Access.TOKEN
        )
        answer = asker.ask(route, "theirs", Names.OF_B)
        assert answer is not None
        assert asker.markers.found_in(answer), (path, answer.text[:500])


def names_b(route: Route) -> bool:
    """Whether a request of the route names the tenant, which an answer may then repeat."""
    asked = f"{route.path} {route.query} {route.body}"
    return any(name in asked for name in ("{namespace}", "{tenant}", "{index}"))


def verdict(answer: httpx.Response) -> int:
    """The status; a lease that is over and a legal hold are no refusal of the key, though they have the same
    number."""
    of_the_thing = "StaleLeaseException" in answer.text or "is not dropped: legal hold" in answer.text
    return 409 if answer.status_code == 403 and of_the_thing else answer.status_code


def fits(outcome: str, status: int) -> bool:
    """Whether an answer is of the class that the row says."""
    if outcome == "in":
        return status not in (401, 403)
    return status in (403, 404) if outcome == "hidden" else str(status) == outcome


def test_a_wrong_outcome_is_seen() -> None:
    """The comparison itself."""
    assert [fits("in", 200), fits("in", 404), fits("in", 401), fits("in", 403)] == [True, True, False, False]
    assert [fits("401", 401), fits("401", 403), fits("403", 403), fits("403", 200)] == [
        True,
        False,
        True,
        False,
    ]
    assert [fits("hidden", 404), fits("hidden", 403), fits("hidden", 200)] == [True, True, False]
    assert Route("x", "GET", "/", Access.READ_OF_B).outcome("reader") == "403"
