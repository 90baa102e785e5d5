"""VictoriaLogs as a store of the week's records, from a binary that is given: loaded by its JSON-lines
endpoint and asked by its HTTP API (VictoriaLogs's documentation, "Data ingestion" and "Querying")."""

import socket
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import orjson

from tests.benchmarks.week import PAGE_ROWS, Answered
from tests.stack.support.waiting import wait_for

STARTS_WITHIN_S = 30.0
LOADED_WITHIN_S = 600.0
MESSAGE = "uri"


@dataclass(frozen=True, slots=True)
class VictoriaLogs:
    """A server that runs, with its data below `folder`."""

    http: httpx.Client
    folder: Path
    pid: int

    def load(self, batches: Iterable[bytes]) -> int:
        """Sends records as JSON lines, and waits until all are found. The URI is their message."""
        sent = 0
        for lines in batches:
            fields = {"_time_field": "timestamp", "_msg_field": MESSAGE, "_stream_fields": "server"}
            self.http.post("/insert/jsonline", params=fields, content=lines).raise_for_status()
            sent += lines.count(b"\n")
        self.http.get("/internal/force_flush").raise_for_status()
        wait_for(lambda: self._stats("*", {}) == sent, LOADED_WITHIN_S, "VictoriaLogs to have all records")
        self.http.get("/internal/force_merge").raise_for_status()
        return sent

    @property
    def size_bytes(self) -> int:
        return sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())

    def newest(self, start: datetime, end: datetime) -> Answered:
        return self._page("*", start, end)

    def word(self, word: str, start: datetime, end: datetime, *, any_case: bool) -> Answered:
        return self._page(f"*:i({word.swapcase()})" if any_case else f"*:{word}", start, end)

    def status(self, status: int, start: datetime, end: datetime) -> Answered:
        return self._page(f"status:={status}", start, end)

    def histogram(self, start: datetime, end: datetime) -> Answered:
        times = _times(start, end)
        answer = self.http.post(
            "/select/logsql/hits", data={"query": "*", "step": "1h", "field": "severity", **times}
        )
        answer.raise_for_status()
        hits = answer.json()["hits"]
        return Answered(
            len({at for hit in hits for at in hit["timestamps"]}), sum(hit["total"] for hit in hits)
        )

    def count(self, word: str, start: datetime, end: datetime) -> Answered:
        return Answered(0, self._stats(f"*:{word}", _times(start, end)))

    def top(self, field: str, start: datetime, end: datetime) -> Answered:
        name = "_msg" if field == MESSAGE else field
        return Answered(len(self._query(f"* | top 10 by ({name})", _times(start, end))))

    def _page(self, query: str, start: datetime, end: datetime) -> Answered:
        return Answered(len(self._query(query, {**_times(start, end), "limit": str(PAGE_ROWS)})))

    def _stats(self, query: str, times: Mapping[str, str]) -> int:
        (row,) = self._query(f"{query} | stats count() rows", times)
        return int(row["rows"])

    def _query(self, query: str, times: Mapping[str, str]) -> list[dict[str, Any]]:
        answer = self.http.post("/select/logsql/query", data={"query": query, **times})
        answer.raise_for_status()
        return [orjson.loads(line) for line in answer.content.splitlines()]


@contextmanager
def victorialogs(binary: Path, folder: Path, *, retention: str = "1y") -> Iterator[VictoriaLogs]:
    """A server on a free port of this machine, ended at the end; it refuses records older than its
    retention."""
    address = f"127.0.0.1:{_free_port()}"
    options = {"storageDataPath": folder / "data", "httpListenAddr": address, "retentionPeriod": retention}
    command = [str(binary), *(f"-{name}={value}" for name, value in options.items())]
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as server:
        try:
            with httpx.Client(base_url=f"http://{address}", timeout=300.0, trust_env=False) as http:
                wait_for(lambda: _is_ready(http), STARTS_WITHIN_S, "VictoriaLogs to start")
                yield VictoriaLogs(http, folder / "data", server.pid)
        finally:
            server.terminate()


def _is_ready(http: httpx.Client) -> bool:
    try:
        return http.get("/health").is_success
    except httpx.TransportError:
        return False


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _times(start: datetime, end: datetime) -> dict[str, str]:
    return {"start": start.isoformat(), "end": end.isoformat()}
