"""A server that answers every POST with given bytes and then does with the connection what a test wants."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HANG_S = 30.0


class LineServer(ThreadingHTTPServer):
    """`hangs`: after the bytes it says nothing more until its caller has gone, which `left` tells."""

    def __init__(self, status: int, body: bytes, *, hangs: bool = False) -> None:
        super().__init__(("127.0.0.1", 0), _Lines)
        self.status, self.body, self.hangs = status, body, hangs
        self.left = threading.Event()
        self.accepted = ""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Lines(BaseHTTPRequestHandler):
    server: LineServer

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.accepted = self.headers["Accept"] or ""
        self.send_response(self.server.status)
        self.end_headers()
        self.wfile.write(self.server.body)
        self.wfile.flush()
        if self.server.hangs:
            self.connection.settimeout(HANG_S)
            if self.connection.recv(1) == b"":
                self.server.left.set()

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextmanager
def line_server(status: int, body: bytes, *, hangs: bool = False) -> Iterator[LineServer]:
    """One that is ended afterwards."""
    with LineServer(status, body, hangs=hangs) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()
