"""Routes x keys: what each kind of key gets from each route of each service, as route_matrix.py says, and
nothing of `b` for keys of `a`."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import httpx
import pytest

from tests.query.support.guarded import Guarded
from tests.security.support.asking import Asker, Names, Services, started_services
from tests.security.support.markers import Markers
from tests.security.support.route_matrix import KINDS, OF_A, ROUTES, TOKEN_KIND, Access, Route
from tests.security.support.served_routes import plain, served
from tests.stack.support.line import Line

WRITES = (Access.WRITE_OF_B, Access.VIEW_OF_B, Access.COMMIT_OF_B, Access.COMMIT_EACH)
TELLS_NOTHING = (
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


def test_every_route_stands_in_the_matrix() -> None:
    """A route that nobody has thought about fails here: give it a row in route_matrix.py. So does a row whose
    route is gone, and one that stands twice."""
    rows = Counter(plain(route.key) for route in ROUTES)
    assert [key for key, times in rows.items() if times > 1] == []
    tabled = {key for key in rows if key[0] != "optimize"}
    assert sorted(served() - tabled) == [], "routes without a row"
    assert sorted(tabled - served()) == [], "rows without a route"


@pytest.fixture(scope="module")
def services(keyed: Guarded, line: Line, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    """All services, running, each asking for what it asks for in production."""
    with ExitStack() as stack:
        yield started_services(stack, keyed, line, tmp_path_factory.mktemp("services"))


@pytest.mark.stack
@pytest.mark.timeout(1_800)
def test_no_key_gets_more_than_its_row_says(
    keyed: Guarded, services: Services, record_property: Callable[[str, object], None]
) -> None:
    """Every route is asked with every kind of key. Keys of `a` ask about what `b` has; answers to them are
    searched for anything of `b`."""
    asker = Asker(services, Markers.of(keyed.theirs, services.key_id_of_theirs))
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
            if kind in OF_A and (found := asker.markers.found_in(answer, named=names_b(route))):
                leaks.append(f"{route.key} with {kind}: {found}")
            if kind in OF_A and route.changes and "committed" in answer.text:
                wrong.append(f"{route.key} with {kind} commits: {answer.text[:200]}")
            if kind == "none" and fits("in", answer.status_code) and route.access is not Access.FRONT_END:
                unauthenticated_open.add(f"{route.service} {route.path}")
    record_property("routes", len(ROUTES))
    record_property("cross_tenant", len(leaks))
    record_property("unauthenticated_open", sorted(unauthenticated_open))
    record_property("hung", len(asker.hung))
    assert not wrong, "\n".join(wrong)
    assert not leaks, "\n".join(leaks)
    assert [name for name in unauthenticated_open if not name.endswith(TELLS_NOTHING)] == []
    assert asker.hung == []


@pytest.mark.stack
@pytest.mark.timeout(600)
def test_a_read_key_changes_nothing_of_its_own_tenant(keyed: Guarded, services: Services) -> None:
    """What writes is refused to `a`'s read key also where everything named is `a`'s."""
    asker = Asker(services, Markers.of(keyed.theirs, services.key_id_of_theirs))
    routes = [route for route in ROUTES if route.access in WRITES]
    answers = {route.key: asker.ask(route, "reader", Names.GONE_OF_A) for route in routes}
    assert len(answers) > 15
    assert {
        key: answer and answer.status_code
        for key, answer in answers.items()
        if answer is None or answer.status_code != 403
    } == {}


@pytest.mark.stack
def test_the_markers_are_seen_where_they_are(keyed: Guarded, services: Services) -> None:
    """The search for `b` in answers finds it in what `b` itself is told, so that finding nothing elsewhere
    means something."""
    asker = Asker(services, Markers.of(keyed.theirs, services.key_id_of_theirs))
    for path in (
        "/v1/search",
        "/v1/streams",
        "/v1/namespaces/{namespace}/tables/{table}",
        "/v1/namespaces",
        "/v1/exports/{export}",
        "/v1/saved-searches",
    ):
        (route,) = (each for each in ROUTES if each.path == path and each.method == "GET")
        answer = asker.ask(route, "theirs", Names.OF_B)
        assert answer is not None
        assert asker.markers.found_in(answer), (path, answer.text[:500])


def names_b(route: Route) -> bool:
    """Whether a request of the route names the tenant, which an answer may then repeat."""
    asked = f"{route.path} {route.query} {route.body}"
    return "{namespace}" in asked or "{tenant}" in asked


def verdict(answer: httpx.Response) -> int:
    """The status; a lease that is over is no refusal of the key, though it has the same number."""
    return 409 if answer.status_code == 403 and "StaleLeaseException" in answer.text else answer.status_code


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
