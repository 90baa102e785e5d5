"""HTTP requests answered with JSON documents."""

from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler
from typing import Any

import orjson


class JsonAnswers(BaseHTTPRequestHandler):
    """A handler whose methods `answer`; nothing is logged."""

    def answer(self, document: Mapping[str, Any]) -> None:
        body = orjson.dumps(document)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""
