"""A schema registry over HTTP in the test's own process: what Confluent's client asks when it reads."""

import json
import ssl
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlparse


@dataclass(slots=True)
class FakeSchemaRegistry:
    """The schemas by id, the subjects that others name them by, and what was asked.

    `status`: what every request is answered with instead, where it is not 200. `broken`: schemas whose
    serialized form is an error.
    """

    url: str = ""
    schemas: dict[int, dict[str, Any]] = field(default_factory=dict)
    serialized: dict[int, str] = field(default_factory=dict)
    subjects: dict[str, int] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    authorizations: list[str | None] = field(default_factory=list)
    status: int = 200
    broken: set[int] = field(default_factory=set)

    def add(
        self,
        schema: str,
        kind: str = "AVRO",
        references: Sequence[str] = (),
        subject: str | None = None,
        serialized: str | None = None,
    ) -> int:
        """Registers a schema; returns its id. `references`: subjects that it names types of."""
        schema_id = len(self.schemas) + 1
        known: dict[str, Any] = {"schema": schema}
        if kind != "AVRO":
            known["schemaType"] = kind
        if references:
            known["references"] = [{"name": name, "subject": name, "version": 1} for name in references]
        self.schemas[schema_id] = known
        if serialized is not None:
            self.serialized[schema_id] = serialized
        if subject is not None:
            self.subjects[subject] = schema_id
        return schema_id

    def answer(self, target: str) -> tuple[int, dict[str, Any]]:
        """Status and body for the path and query of a request."""
        self.requests.append(target)
        if self.status != 200:
            return self.status, {"error_code": self.status, "message": "not now"}
        parsed = urlparse(target)
        parts = parsed.path.strip("/").split("/")
        is_serialized = parse_qs(parsed.query).get("format") == ["serialized"]
        if is_serialized and int(parts[2]) in self.broken:
            return 500, {"error_code": 0, "message": "java.lang.IllegalStateException"}
        if parts[:2] == ["schemas", "ids"] and int(parts[2]) in self.schemas:
            return 200, self._known(int(parts[2]), is_serialized)
        if parts[0] == "subjects" and parts[1] in self.subjects:
            schema_id = self.subjects[parts[1]]
            return 200, {
                "subject": parts[1],
                "version": 1,
                "id": schema_id,
                **self._known(schema_id, is_serialized),
            }
        return 404, {"error_code": 40403, "message": "Schema not found"}

    def _known(self, schema_id: int, is_serialized: bool) -> dict[str, Any]:
        known = self.schemas[schema_id]
        if is_serialized and schema_id in self.serialized:
            return {**known, "schema": self.serialized[schema_id]}
        return known


@contextmanager
def fake_schema_registry(tls: ssl.SSLContext | None = None) -> Iterator[FakeSchemaRegistry]:
    """Runs one on a free port of loopback; with `tls` it speaks that."""
    registry = FakeSchemaRegistry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            registry.authorizations.append(self.headers.get("Authorization"))
            status, body = registry.answer(self.path)
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *args: Any) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    registry.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{server.server_address[1]}"
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def framed(schema_id: int, payload: bytes) -> bytes:
    """A message in Confluent's wire format."""
    return struct.pack(">bI", 0, schema_id) + payload
