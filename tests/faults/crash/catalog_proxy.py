"""A proxy between an ingester and its catalog that delays, loses and holds back what a test names."""

import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

import httpx
import orjson

from infra.local.ports import LOOPBACK
from lake.catalog_client import TableName
from tests.stack.support.waiting import pause

COMMITS = "/firn/v1/commits"
LOST = 0


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that has given up is what a slow answer leads to."""


@dataclass
class CatalogProxy:
    """Forwards to `target`. Tables in `slow` are answered for only after so many seconds, all others at once,
    as a catalog does that gives each table of a batch a deadline of its own. `hold()`: the next commit stays
    in the air; its sender hears nothing; `land()` lets it arrive."""

    target: str
    slow: dict[TableName, float] = field(default_factory=dict)
    _holding: threading.Event = field(default_factory=threading.Event)
    held: threading.Event = field(default_factory=threading.Event)
    _land: threading.Event = field(default_factory=threading.Event)
    landed: threading.Event = field(default_factory=threading.Event)
    answer: tuple[int, bytes] = (LOST, b"")

    def __enter__(self) -> "CatalogProxy":
        self._client = httpx.Client(base_url=self.target, timeout=120.0, trust_env=False)
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                proxy._serve(self)

            do_POST = do_HEAD = do_DELETE = do_GET  # noqa: N815

            def log_message(self, *_: Any) -> None:
                return

        self._server = _Server((LOOPBACK, 0), Handler)
        threading.Thread(target=self._server.serve_forever, name="proxy", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._land.set()
        self._server.shutdown()
        self._server.server_close()
        self._client.close()

    @property
    def address(self) -> str:
        return f"http://{LOOPBACK}:{self._server.server_address[1]}"

    def hold(self) -> None:
        """The next request that commits is kept back."""
        self.held.clear()
        self._land.clear()
        self.landed.clear()
        self._holding.set()

    def let_pass(self) -> None:
        """No commit is kept back, not even one that came just now."""
        self._holding.clear()
        self._land.set()

    def land(self) -> None:
        """Lets the held commit arrive, and waits for the catalog's answer to it."""
        self._land.set()
        assert self.landed.wait(60.0)

    def _serve(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length", "0")))
        if request.path.split("?")[0] == COMMITS and self._holding.is_set():
            self._holding.clear()
            self.held.set()
            self._land.wait()
            self.answer = self._forward(request, body)
            self.landed.set()
            request.close_connection = True
            return
        status, answer = (
            self._batch(request, body)
            if request.path == COMMITS and self.slow
            else self._forward(request, body, self._delay_s(request.path))
        )
        request.send_response(status if status != LOST else 503)
        request.send_header("Content-Length", str(len(answer)))
        request.send_header("Content-Type", "application/json")
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(answer)

    def _delay_s(self, path: str) -> float:
        parts = unquote(path.split("?")[0]).split("/")
        if "namespaces" in parts and "tables" in parts and len(parts) > parts.index("tables") + 1:
            return self.slow.get(
                TableName(parts[parts.index("namespaces") + 1], parts[parts.index("tables") + 1]), 0.0
            )
        return 0.0

    def _batch(self, request: BaseHTTPRequestHandler, body: bytes) -> tuple[int, bytes]:
        """A slow table's commit is not made before its deadline; the others are made, and all are answered
        together at the latest deadline."""
        commits = orjson.loads(body)["commits"]
        slow = [commit for commit in commits if _name(commit) in self.slow]
        quick = [commit for commit in commits if _name(commit) not in self.slow]
        made = (
            orjson.loads(self._forward(request, orjson.dumps({"commits": quick}))[1])["results"]
            if quick
            else []
        )
        wait_s = max(
            (min(self.slow[_name(commit)], commit.get("deadline-ms", 60_000) / 1000) for commit in slow),
            default=0.0,
        )
        pause(wait_s)
        late = [
            commit for commit in slow if commit.get("deadline-ms", 60_000) / 1000 <= self.slow[_name(commit)]
        ]
        in_time = [commit for commit in slow if commit not in late]
        made += (
            orjson.loads(self._forward(request, orjson.dumps({"commits": in_time}))[1])["results"]
            if in_time
            else []
        )
        by_name = {_name(result): result for result in made}
        timeout = {
            "status": "timeout",
            "error": {
                "message": "the table's storage did not answer in time",
                "type": "CommitTimeoutException",
                "code": 503,
            },
        }
        results = [
            by_name.get(_name(commit), {"identifier": commit["identifier"], **timeout}) for commit in commits
        ]
        return 200, orjson.dumps({"results": results})

    def _forward(
        self, request: BaseHTTPRequestHandler, body: bytes, delay_s: float = 0.0
    ) -> tuple[int, bytes]:
        pause(delay_s)
        kept = {
            name: value
            for name, value in request.headers.items()
            if name.lower() in ("authorization", "content-type", "idempotency-key", "x-firn-lease")
        }
        try:
            answer = self._client.request(request.command, request.path, content=body or None, headers=kept)
        except httpx.HTTPError:
            return LOST, b""
        return answer.status_code, answer.content


def _name(entry: dict[str, Any]) -> TableName:
    return TableName(".".join(entry["identifier"]["namespace"]), entry["identifier"]["name"])
