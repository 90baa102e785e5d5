"""A search API that answers the pipes of tiles, and counts how many it answers at once."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import orjson

from tests.query.support.json_answers import JsonAnswers
from ui.api_client import ApiClient

WAIT_S = 20.0


class TileServer(ThreadingHTTPServer):
    """Answers pipes with what they say. `together`: as many have to be asked at once; `room`: more at once
    are refused; `refusals`: when to ask again, for the questions that come next."""

    daemon_threads = True

    def __init__(self, together: int = 1, room: int = 100) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.together = threading.Barrier(together, timeout=WAIT_S)
        self.room = room
        self.refusals: list[int] = []
        self.lock = threading.Lock()
        self.running = self.most = self.asked = 0

    @property
    def client(self) -> ApiClient:
        return ApiClient(f"http://127.0.0.1:{self.server_port}")


class _Answers(JsonAnswers, BaseHTTPRequestHandler):
    server: TileServer

    def do_POST(self) -> None:
        body = orjson.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server = self.server
        with server.lock:
            server.asked += 1
            again_s = (
                server.refusals.pop(0) if server.refusals else 1 if server.running >= server.room else None
            )
            server.running += again_s is None
            server.most = max(server.most, server.running)
        if again_s is not None:
            self._refuse(429, "too much runs already", again_s)
            return
        server.together.wait()
        if "wrong" in body["query"]:
            self._refuse(400, "there is no such stage")
        else:
            self.answer({"query": body["query"]})
        with server.lock:
            server.running -= 1

    def _refuse(self, status: int, sentence: str, again_s: int | None = None) -> None:
        told = orjson.dumps({"error": {"message": sentence}})
        self.send_response(status)
        self.send_header("Content-Length", str(len(told)))
        if again_s is not None:
            self.send_header("Retry-After", str(again_s))
        self.end_headers()
        self.wfile.write(told)


@contextmanager
def serving(server: TileServer) -> Iterator[TileServer]:
    """One that is ended afterwards."""
    with server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()
