"""A search API that has tenants with streams and a live tail, which says what a test has it say."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import orjson

from lake.severity import level_of
from tests.query.support.json_answers import JsonAnswers

ALIVE = b": nothing new\n\n"


class TailServer(ThreadingHTTPServer):
    """`key`: what callers have to show. `refusals`: status and sentence for the tails that are asked for
    next. `asked`: what tails were asked for; `kind`: of what they are answered with."""

    def __init__(self, tenants: dict[str, list[str]], key: str | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Api)
        self.tenants, self.key = tenants, key
        self.kind = "text/event-stream"
        self.refusals: list[tuple[int, str]] = []
        self.asked: list[dict[str, str]] = []
        self.lock = threading.Lock()
        self.open: list[Any] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def tails(self) -> int:
        """How many are open."""
        with self.lock:
            return len(self.open)

    def say(self, *parts: bytes) -> None:
        """Sends bytes to every open tail."""
        with self.lock:
            for connection in self.open:
                for part in parts:
                    with suppress(OSError):  # it is leaving
                        connection.sendall(part)


class _Api(JsonAnswers, BaseHTTPRequestHandler):
    server: TailServer

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = dict(parse_qsl(parts.query))
        key = self.server.key
        if key is not None and self.headers["Authorization"] != f"Bearer {key}":
            self._refuse(401, "a key is needed")
        elif parts.path == "/v1/tenants/names":
            self.answer({"tenants": sorted(self.server.tenants), "next": ""})
        elif parts.path == "/v1/streams":
            self.answer({"streams": [{"stream": name} for name in self.server.tenants[query["tenant"]]]})
        elif parts.path == "/v1/tail":
            self._tail(query)
        else:
            self._refuse(404, "there is a live tail here, and nothing else")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._refuse(404, "there is a live tail here, and nothing else")

    def _refuse(self, status: int, sentence: str) -> None:
        self.close_connection = True
        self.send_response(status)
        self.end_headers()
        self.wfile.write(orjson.dumps({"error": {"message": sentence}}))

    def _tail(self, query: dict[str, str]) -> None:
        self.server.asked.append(query)
        self.close_connection = True
        if self.server.refusals:
            self._refuse(*self.server.refusals.pop(0))
            return
        self.send_response(200)
        self.send_header("Content-Type", self.server.kind)
        self.end_headers()
        with self.server.lock:
            self.connection.sendall(event("open"))
            self.server.open.append(self.connection)
        with suppress(OSError):
            self.connection.recv(1)  # until the caller has gone
        with self.server.lock:
            self.server.open.remove(self.connection)


@contextmanager
def tail_server(tenants: dict[str, list[str]] | None = None, key: str | None = None) -> Iterator[TailServer]:
    """One that is ended afterwards."""
    with TailServer(tenants or {"acme": ["logs", "web"]}, key) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def event(kind: str, **data: Any) -> bytes:
    """An event as the API writes it."""
    return b"event: " + kind.encode() + b"\ndata: " + orjson.dumps(data) + b"\n\n"


def record(message: str, severity: str | None = "INFO", stream: str = "logs", **fields: str) -> bytes:
    """A record of a tail."""
    said = {"timestamp": "2026-11-27T04:00:00.000001Z", "severity": severity, "level": level_of(severity)}
    return event("record", **said, message=message, fields=fields, stream=stream)
