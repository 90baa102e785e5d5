"""Every HTTP service of Firn as somebody on the network sees it: an address, and what has to be sent to be
let in."""

import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from infra.local.ports import LOOPBACK
from ingest.node.engines.local import LocalEngine
from ingest.serve.api import serving
from lake.settings import IngestSettings, TopicSettings
from tests.query.support.guarded import Guarded
from tests.query.support.processes import Child
from tests.stack.support.line import Line
from tests.stack.support.plain_http import http
from tests.stack.support.tool_line import ToolLine

TOKEN = "the-token-of-ingest"
SLOW_S = 2.0
TOPICS = (TopicSettings(name="logs"),)


@dataclass(frozen=True)
class Edge:
    """One service. `get`: a route that needs a key, `post`: one that takes a body."""

    name: str
    address: str
    get: str
    post: str
    body: dict[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict)
    pid: int | None = None

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        headers = {**self.headers, **options.pop("headers", {})}
        return http.request(method, f"{self.address}{path}", headers=headers, timeout=60.0, **options)

    @property
    def netloc(self) -> str:
        return urlsplit(self.address).netloc

    def connect(self) -> socket.socket:
        host, port = self.netloc.split(":")
        return socket.create_connection((host, int(port)), timeout=60)


def limited(room: str, **settings: object) -> dict[str, str]:
    """Settings of a room as variables."""
    return {f"FIRN_{room.upper()}_{name.upper()}": str(value) for name, value in settings.items()}


@contextmanager
def node(settings: IngestSettings) -> Iterator[str]:
    """The address of a node's endpoint, over an engine that was not started."""
    listener = socket.create_server((LOOPBACK, 0))
    with serving(LocalEngine(settings), settings, listener):
        yield f"http://{LOOPBACK}:{listener.getsockname()[1]}"


@contextmanager
def open_edges(line: Line, folder: Path) -> Iterator[list[Edge]]:
    """As on a machine where nobody made keys: everything on loopback lets everybody in."""
    uri = line.stack.address("catalog")
    with ExitStack() as everything:
        query = Child(
            "query",
            folder,
            {**line.stack.environment(), **limited("query", catalog__uri=uri, state=folder / "state")},
        ).start()
        everything.callback(query.kill)
        serve = everything.enter_context(ToolLine(line, line.kafka.topic()).serve())
        at_node = everything.enter_context(node(IngestSettings(topics=TOPICS)))
        yield [
            Edge("catalog", uri, "/v1/namespaces", "/v1/namespaces", {"namespace": ["by_a_page"]}),
            Edge(
                "query",
                query.address,
                "/v1/tenants",
                "/v1/sql",
                {"sql": "SELECT 1", "tenant": "a"},
                pid=query.pid,
            ),
            Edge(
                "serve", str(serve.base_url).rstrip("/"), "/v1/status", "/v1/explain-message", {"value": "a"}
            ),
            Edge("node", at_node, "/v1/status", "/v1/status", {}),
        ]


@contextmanager
def keyed_edges(
    keyed: Guarded, line: Line, folder: Path, *, connections_max: int = 1_000
) -> Iterator[list[Edge]]:
    """As where keys are asked for; who sends no whole request within two seconds is hung up on."""
    patience = {"http__request_timeout_s": SLOW_S, "http__connections_max": connections_max}
    environment = {**keyed.environment, **limited("catalog", **patience), **limited("query", **patience)}
    with ExitStack() as everything:
        catalog = Child("catalog", folder, environment).start()
        everything.callback(catalog.kill)
        own = limited(
            "query", catalog__uri=catalog.address, catalog__token=keyed.keys["room"], state=folder / "state"
        )
        query = Child("query", folder, {**environment, **own}).start()
        everything.callback(query.kill)
        texts = {name: str(value) for name, value in patience.items()}
        serve = everything.enter_context(ToolLine(line, line.kafka.topic()).serve(http__token=TOKEN, **texts))
        at_node = everything.enter_context(
            node(IngestSettings.load(topics=TOPICS, http__token=TOKEN, **patience))
        )
        token, key = {"Authorization": f"Bearer {TOKEN}"}, {"Authorization": f"Bearer {keyed.keys['mine']}"}
        yield [
            Edge(
                "catalog",
                catalog.address,
                "/v1/namespaces",
                "/v1/namespaces",
                {"namespace": ["a"]},
                key,
                catalog.pid,
            ),
            Edge(
                "query",
                query.address,
                "/v1/tenants",
                "/v1/sql",
                {"sql": "SELECT 1", "tenant": "a"},
                key,
                query.pid,
            ),
            Edge(
                "serve",
                str(serve.base_url).rstrip("/"),
                "/v1/status",
                "/v1/explain-message",
                {"value": "a"},
                token,
            ),
            Edge("node", at_node, "/v1/status", "/v1/status", {}, token),
        ]


class Silent:
    """A server that takes every connection and never answers, in place of one that hangs."""

    def __init__(self) -> None:
        self._listener = socket.create_server((LOOPBACK, 0), backlog=1_000)
        self.address = f"http://{LOOPBACK}:{self._listener.getsockname()[1]}"
        self.connections: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                self.connections.append(self._listener.accept()[0])
            except OSError:
                return

    def asked_as(self, user: str) -> int:
        """How many requests of one of Trino's users are here and wait."""
        header = f"x-trino-user: {user}\r\n".encode()
        return sum(header in _peeked(each).lower() for each in self.connections)

    def close(self) -> None:
        self._listener.close()
        for each in self.connections:
            each.close()


def _peeked(connection: socket.socket) -> bytes:
    """What has come and nobody has read."""
    try:
        return connection.recv(65_536, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except OSError:
        return b""
