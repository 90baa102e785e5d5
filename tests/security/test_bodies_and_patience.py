"""Finding 18: what somebody without a key can make a service hold, in bytes and in connections."""

import json
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial

import pytest

from tests.catalog.test_malformed_requests import in_chunks
from tests.query.support.guarded import Guarded
from tests.security.support.edges import SLOW_S, Edge, keyed_edges
from tests.stack.support.line import Line
from tests.stack.support.waiting import wait_for

pytestmark = [pytest.mark.finding(18), pytest.mark.stack]
MIB = 1024 * 1024
SENT = 150 * MIB
GROWTH_MAX = 60 * MIB
SLOW = 150
FEW = 40
HEAD_SENT = 64 * MIB
CATALOG_GROWTH_MAX = 3 * 64 * MIB  # it reads up to 64 MiB of those who have a key


@pytest.fixture(scope="module")
def edges(keyed: Guarded, line: Line, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Edge]]:
    with keyed_edges(keyed, line, tmp_path_factory.mktemp("edges")) as found:
        yield found


def peak_bytes(pid: int) -> int:
    """The most memory that a process ever held, from Linux itself."""
    with open(f"/proc/{pid}/status") as status:
        return next(int(text.split()[1]) * 1024 for text in status if text.startswith("VmHWM"))


def begin(edge: Edge, *headers: str, key: bool = False) -> bytes:
    """Request line and headers of a POST, without the end of the headers."""
    known = [f"Host: {edge.netloc}", "Content-Type: application/json", *headers]
    known += [f"{name}: {value}" for name, value in edge.headers.items()] if key else []
    return f"POST {edge.post} HTTP/1.1\r\n{''.join(f'{each}{chr(13)}{chr(10)}' for each in known)}".encode()


def status_of(answer: bytes) -> int:
    assert answer.startswith(b"HTTP/1.1 "), answer[:100]
    return int(answer.split(b" ")[1])


@pytest.mark.parametrize("chunked", [False, True], ids=["declared", "chunked"])
@pytest.mark.parametrize("key", [False, True], ids=["without a key", "with a key"])
def test_a_huge_body_is_never_held(edges: list[Edge], key: bool, chunked: bool) -> None:
    """150 MiB: without a key 401, with one 413; in both cases next to nothing of it is in memory at any
    time."""
    for edge in edges:
        before = None if edge.pid is None else peak_bytes(edge.pid)
        part = in_chunks(b"x" * MIB) if chunked else b"x" * MIB
        with edge.connect() as connection:
            connection.sendall(
                begin(edge, "Transfer-Encoding: chunked" if chunked else f"Content-Length: {SENT}", key=key)
                + b"\r\n"
            )
            with suppress(BrokenPipeError, ConnectionResetError):  # nobody need listen to the end
                for _ in range(SENT // MIB):
                    connection.sendall(part)
            answer = connection.recv(65_536)
        # The node's endpoint takes no body at all: what it says is of its route.
        expected = {413, 405} if key and edge.name == "node" else {413} if key else {401}
        assert status_of(answer) in expected, (edge.name, answer[:300])
        if edge.pid is not None and before is not None:
            assert peak_bytes(edge.pid) - before < (
                GROWTH_MAX if edge.name != "catalog" or not key else CATALOG_GROWTH_MAX
            ), edge.name


def silent(edge: Edge, kind: str) -> socket.socket:
    """A connection that begins a request and never ends it."""
    connection = edge.connect()
    half = {
        "nothing": b"",
        "half a line": b"GET /v1/na",
        "half the headers": begin(edge),
        "half a body": begin(edge, "Content-Length: 1000", key=True) + b"\r\n{",
        "half a body, unknown": begin(edge, "Content-Length: 1000") + b"\r\n{",
        "a request, then half a "
        "one": f"GET /healthz HTTP/1.1\r\nHost: {edge.netloc}\r\n\r\nGET /heal".encode(),
    }[kind]
    connection.sendall(half)
    connection.settimeout(0.0)
    return connection


def _all_closed(connections: list[socket.socket]) -> bool:
    return all(map(is_closed, connections))


def is_closed(connection: socket.socket) -> bool:
    """Whether the server has hung up; what it said before is read away."""
    try:
        while data := connection.recv(65_536):
            assert data
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True
    return True


def closed(edge: Edge, why: str) -> float:
    """How many connections a service has ended for one reason, by its own count."""
    counted = re.search(
        rf'^firn_http_connections_closed_total{{why="{why}"}} (\S+)',
        edge.ask("GET", "/metrics").text,
        re.MULTILINE,
    )
    return float(counted[1]) if counted else 0.0


KINDS = (
    "nothing",
    "half a line",
    "half the headers",
    "half a body",
    "half a body, unknown",
    "a request, then half a one",
)


def test_who_sends_no_whole_request_in_time_is_hung_up_on(edges: list[Edge]) -> None:
    """150 of 150, of each kind of half a request; while they are open, and afterwards, others are
    answered."""
    for edge in edges:
        with ExitStack() as everything:
            opened = [everything.enter_context(silent(edge, KINDS[at % len(KINDS)])) for at in range(SLOW)]
            assert edge.ask("GET", edge.get).status_code == 200
            wait_for(
                partial(_all_closed, opened),
                60.0,
                f"{edge.name} hanging up on {SLOW} slow requests",
            )
            assert edge.ask("GET", edge.get).status_code == 200


def test_who_sends_a_byte_now_and_then_is_hung_up_on_too(edges: list[Edge]) -> None:
    """A drop of header every tenth of a second wins no time; neither do empty lines between two requests."""
    for edge in edges:
        for drop in (b"x: y\r\n", b"\r\n"):
            with edge.connect() as connection:
                connection.sendall(
                    begin(edge)
                    if drop != b"\r\n"
                    else f"GET /healthz HTTP/1.1\r\nHost: {edge.netloc}\r\n\r\n".encode()
                )
                connection.settimeout(0.0)

                def dripped(connection: socket.socket = connection, drop: bytes = drop) -> bool:
                    try:
                        connection.sendall(drop)
                    except OSError:
                        return True
                    return is_closed(connection)

                wait_for(dripped, 20 * SLOW_S, f"{edge.name} hanging up on {drop!r}", poll_s=0.1)


def test_who_sends_a_head_without_end_is_told_so(edges: list[Edge]) -> None:
    """431 and a sentence, though the client writes on; none of it is held, and it is hung up on when its time
    is over."""
    for edge in edges:
        before = None if edge.pid is None else peak_bytes(edge.pid)
        with edge.connect() as connection:
            connection.sendall(begin(edge))
            for _ in range(HEAD_SENT // MIB):
                connection.sendall(b"x" * MIB)
            answer = connection.recv(65_536)
            assert status_of(answer) == 431, (edge.name, answer)
            assert b"connection: close" in answer
            assert b"POST" in json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["message"].encode()
            connection.settimeout(0.0)
            wait_for(partial(is_closed, connection), 20 * SLOW_S, f"{edge.name} hanging up on a large head")
        if edge.pid is not None and before is not None:
            assert peak_bytes(edge.pid) - before < HEAD_SENT // 2, edge.name


def test_a_head_that_is_too_large_while_another_is_answered_is_hung_up_on(edges: list[Edge]) -> None:
    """Trailers without end belong to a request that somebody answers: there nothing can be said between."""
    for edge in edges:
        before = closed(edge, "large_head")
        with edge.connect() as connection, suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(begin(edge, "Transfer-Encoding: chunked", key=True) + b"\r\n1\r\n{\r\n0\r\n")
            for _ in range(200):
                connection.sendall(b"x: y\r\n" * 2_000)
        wait_for(
            lambda: closed(edge, "large_head") > before,  # noqa: B023
            20 * SLOW_S,
            f"{edge.name} hanging up on trailers without end",
        )


def test_more_connections_than_may_be_shut_nobody_out(
    keyed: Guarded, line: Line, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Who opens three times as many as are allowed, and sends nothing, loses the oldest of them; whoever asks
    is answered."""
    with keyed_edges(keyed, line, tmp_path_factory.mktemp("few"), connections_max=FEW) as edges:
        for edge in edges:
            with ExitStack() as everything:
                opened = [everything.enter_context(silent(edge, KINDS[at % 3])) for at in range(3 * FEW)]
                for _ in range(10):
                    assert edge.ask("GET", edge.get).status_code == 200, edge.name
                left = sum(not is_closed(each) for each in opened)
                assert left <= FEW, edge.name
