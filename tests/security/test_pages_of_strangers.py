"""Finding 9: what a page in the operator's browser can do with services that listen on loopback and ask for
no key. Nothing."""

from collections.abc import Iterator

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin

from lake.http_guard import GuardRules
from tests.query.support.processes import Child
from tests.security.support.edges import Edge, open_edges
from tests.stack.support.line import Line
from tests.ui.support.front_end import start_front_end

pytestmark = pytest.mark.finding(9)
STRANGE = "http://evil.example"


@pytest.fixture(scope="module")
def edges(line: Line, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Edge]]:
    with open_edges(line, tmp_path_factory.mktemp("edges")) as found:
        yield found


@pytest.mark.stack
def test_a_name_that_is_not_the_services_is_refused(edges: list[Edge]) -> None:
    """DNS rebinding: the attacker's name leads here, and the page reads what its own origin answers. Names of
    this machine go on working."""
    for edge in edges:
        port = edge.netloc.split(":")[1]
        for host in (
            "evil.example",
            f"evil.example:{port}",
            f"127.0.0.1.evil.example:{port}",
            f"localhost@evil.example:{port}",
            "127.0.0.1:x",
            "10.0.0.1",
        ):
            for method, path in (("GET", edge.get), ("GET", "/metrics"), ("POST", edge.post)):
                answer = edge.ask(
                    method, path, headers={"Host": host}, json=edge.body if method == "POST" else None
                )
                assert answer.status_code == 421, (edge.name, host, path, answer.text)
        for host in ("localhost", f"localhost:{port}", f"127.0.0.1:{port}", "[::1]"):
            assert edge.ask("GET", edge.get, headers={"Host": host}).status_code == 200, (edge.name, host)


@pytest.mark.stack
def test_a_page_of_another_origin_changes_and_reads_nothing(edges: list[Edge]) -> None:
    """Neither with an Origin of its own, nor from a sandbox (`null`), nor by an image, nor from another port
    of this machine."""
    for edge in edges:
        for origin in (STRANGE, "null", "http://localhost:3000", "http://127.0.0.1"):
            for method, path in (
                ("POST", edge.post),
                ("GET", edge.get),
                ("OPTIONS", edge.post),
                ("DELETE", edge.post),
            ):
                answer = edge.ask(
                    method, path, headers={"Origin": origin}, json=edge.body if method == "POST" else None
                )
                assert answer.status_code == 403, (edge.name, origin, method, answer.text)
                assert "access-control-allow-origin" not in answer.headers
        image = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
        assert edge.ask("GET", edge.get, headers=image).status_code == 403, edge.name
        own = {"Origin": edge.address, "Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}
        link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
        for headers in (own, link, {"Sec-Fetch-Site": "none"}):
            assert edge.ask("GET", edge.get, headers=headers).status_code == 200, (edge.name, headers)


@pytest.mark.stack
def test_a_body_that_a_page_may_send_to_anybody_is_not_read(edges: list[Edge]) -> None:
    """text/plain, forms, and no type at all: what a browser sends without asking. JSON is taken, with a
    charset too."""
    for edge in edges:
        for kind in (
            "text/plain",
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=x",
            "text/plain; application/json",
            "",
        ):
            answer = edge.ask(
                "POST",
                edge.post,
                content=b'{"namespace":["by_a_page"]}',
                headers={"Content-Type": kind} if kind else {},
            )
            assert answer.status_code == 415, (edge.name, kind, answer.text)
        answer = edge.ask(
            "POST", edge.post, json=edge.body, headers={"Content-Type": "Application/JSON; charset=utf-8"}
        )
        assert answer.status_code in (200, 409) or edge.name == "node", (edge.name, answer.text)


@pytest.mark.stack
def test_callers_without_a_key_make_no_keys(edges: list[Edge]) -> None:
    """A key made on an open catalog would still be in force when it asks for keys."""
    catalog = edges[0]
    before = catalog.ask("GET", "/firn/v1/keys").json()
    for method, path in (("POST", "/firn/v1/keys"), ("DELETE", "/firn/v1/keys/0123456789ab")):
        answer = catalog.ask(method, path, json={"scope": "admin"} if method == "POST" else None)
        assert (answer.status_code, "python -m catalog key" in answer.text) == (403, True), answer.text
    assert catalog.ask("GET", "/firn/v1/keys").json() == before


@pytest.mark.stack
def test_the_front_ends_websocket_opens_for_its_own_pages_only(
    edges: list[Edge], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Through it goes everything that people do; a browser opens one for every page that asks."""
    pages: Child = start_front_end(edges[1].address, tmp_path_factory.mktemp("pages"))
    try:
        stream = f"ws://127.0.0.1:{pages.port}/_stcore/stream"
        for origin in (STRANGE, "null", "http://localhost:3000", "http://127.0.0.1"):
            with (
                pytest.raises(InvalidStatus, match="403"),
                connect(stream, origin=Origin(origin), open_timeout=30),
            ):
                raise AssertionError(origin)
        with (
            pytest.raises(InvalidStatus, match="403"),
            connect(stream, additional_headers={"Host": "evil.example"}, open_timeout=30),
        ):
            raise AssertionError("a foreign Host")
        for path in ("/", "/_stcore/health", "/_stcore/host-config"):
            for headers in ({"Host": "evil.example"}, {"Origin": STRANGE}):
                assert httpx.get(
                    f"{pages.address}{path}", headers=headers, timeout=30, trust_env=False
                ).status_code in (403, 421), (path, headers)
        with connect(stream, origin=Origin(f"http://127.0.0.1:{pages.port}"), open_timeout=30) as opened:
            opened.ping().wait(30)
        assert httpx.get(pages.address, timeout=30, trust_env=False).status_code == 200
    finally:
        pages.kill()


def test_names_and_origins_of_the_settings_are_let_in() -> None:
    """Exactly, below a dot where it says so, with any port; beyond loopback numbers too, which no DNS can
    have lied about."""
    rules = GuardRules("0.0.0.0", ("logs.example.org", "*.svc.cluster.local"), ("https://tools.example.org",))
    for host in (
        "logs.example.org",
        "LOGS.example.org:443",
        "firn.ns.svc.cluster.local:8282",
        "10.1.2.3:8282",
        "[fd00::1]:8282",
        "localhost",
    ):
        assert rules.takes_host(host), host
    for host in (
        "",
        "evil.example",
        "xlogs.example.org",
        "svc.cluster.local",
        "logs.example.org@evil.example",
        "logs.example.org/x",
        "a:b:c",
    ):
        assert not rules.takes_host(host), host
    assert rules.takes_origin("https://tools.example.org", "logs.example.org")
    assert rules.takes_origin("https://logs.example.org", "logs.example.org")
    for origin in (
        "http://tools.example.org",
        "https://tools.example.org.evil.example",
        "https://evil.example",
        "null",
        "",
    ):
        assert not rules.takes_origin(origin, "logs.example.org"), origin
    assert not GuardRules("127.0.0.1").takes_host("10.1.2.3")
