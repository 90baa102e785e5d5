"""The API as the command line calls it. Every failure is one sentence."""

import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import orjson

from lake.errors import FirnError, ProtocolError, RefusedError, UnavailableError
from lake.settings import QuerySettings
from lake.tls import tls_context

TIMEOUT_S = 330.0
CONNECT_TIMEOUT_S = 5.0
LOOK_EVERY_S = 0.5


class Remote:
    """Talks to one API with one key."""

    def __init__(self, uri: str, key: str | None) -> None:
        self.uri = uri.rstrip("/")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        timeout = httpx.Timeout(TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
        self._http = httpx.Client(
            base_url=self.uri, headers=headers, timeout=timeout, verify=tls_context(), trust_env=False
        )

    def close(self) -> None:
        self._http.close()

    def get_later(self, path: str) -> dict[str, Any]:
        """GET after a moment, for what is looked at again and again."""
        time.sleep(LOOK_EVERY_S)
        return self._send("GET", path, None)

    def get(self, path: str, query: dict[str, str]) -> dict[str, Any]:
        """Raises RefusedError, UnavailableError."""
        return self._send("GET", path, None, query)

    def delete(self, path: str, query: dict[str, str]) -> dict[str, Any]:
        """Raises RefusedError, UnavailableError."""
        return self._send("DELETE", path, None, query)

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Raises RefusedError, UnavailableError."""
        return self._send("POST", path, body)

    def put(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Raises RefusedError, UnavailableError."""
        return self._send("PUT", path, body)

    def lines(self, path: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """POST whose answer is a JSON object per line."""
        with self._stream("POST", path, json=body) as response:
            # At line feeds alone: httpx takes further characters, which records hold, for ends of lines.
            rest = b""
            for part in response.iter_bytes():
                *lines, rest = (rest + part).split(b"\n")
                yield from map(orjson.loads, lines)

    def events(self, path: str, query: dict[str, str]) -> Iterator[tuple[str, dict[str, Any]]]:
        """GET whose answer is server-sent events: kind and data of each (WHATWG HTML, "Server-sent
        events")."""
        with self._stream(
            "GET", path, params={name: value for name, value in query.items() if value}
        ) as response:
            kind, data = "", ""
            for line in response.iter_lines():
                if line.startswith("event:"):
                    kind = line[6:].strip()
                elif line.startswith("data:"):
                    data += line[5:].strip()
                elif not line and data:
                    yield kind, orjson.loads(data)
                    kind, data = "", ""

    def download(self, job: dict[str, Any], target: Path) -> None:
        """Fetches the files of a finished export and compares their checksums; a file appears only when it is
        right. Raises ProtocolError."""
        if job["format"] != "parquet":
            self._fetch(f"/v1/exports/{job['id']}/file", target, job["sha256"])
            return
        target.mkdir(parents=True, exist_ok=True)
        for part in job["parts"]:
            self._fetch(
                f"/v1/exports/{job['id']}/parts/{part['name']}", target / part["name"], part["sha256"]
            )
        (target / "manifest.json").write_bytes(orjson.dumps(job, option=orjson.OPT_INDENT_2))

    def _fetch(self, path: str, target: Path, sha256: str) -> None:
        temporary = target.with_name(f".{target.name}.{os.getpid()}")
        digest = hashlib.sha256()
        try:
            with self._stream("GET", path) as response, temporary.open("wb") as file:
                for block in response.iter_bytes(1 << 20):
                    digest.update(block)
                    file.write(block)
            if digest.hexdigest() != sha256:
                raise ProtocolError(
                    f"{target} came damaged: its checksum is {digest.hexdigest()}, the export's is {sha256}; "
                    "fetch it again with --resume"
                )
            temporary.rename(target)
        finally:
            temporary.unlink(missing_ok=True)

    @contextmanager
    def _stream(self, method: str, path: str, **options: Any) -> Iterator[httpx.Response]:
        try:
            with self._http.stream(method, path, **options) as response:
                if not response.is_success:
                    response.read()
                    raise _error(response)
                yield response
        except httpx.HTTPError as error:
            raise self._silent(error) from error

    def _send(
        self, method: str, path: str, body: dict[str, Any] | None, query: dict[str, str] | None = None
    ) -> dict[str, Any]:
        try:
            response = self._http.request(method, path, json=body, params=query)
        except httpx.HTTPError as error:
            raise self._silent(error) from error
        if not response.is_success:
            raise _error(response)
        return dict(orjson.loads(response.content or b"{}"))

    def _silent(self, error: httpx.HTTPError) -> UnavailableError:
        return UnavailableError(
            f"the search API at {self.uri} does not answer ({type(error).__name__}); start it with `python "
            "-m query serve`, or set FIRN_QUERY_CLIENT__URI"
        )


def _error(response: httpx.Response) -> FirnError:
    try:
        error = orjson.loads(response.content)["error"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return UnavailableError(f"the search API answered {response.status_code}")
    where = f" (at character {error['position'] + 1})" if error.get("position") is not None else ""
    advice = f"; {error['suggestion']}" if error.get("suggestion") else ""
    return RefusedError(f"{error['message']}{where}{advice}")


@contextmanager
def open_remote() -> Iterator[Remote]:
    """The API that the settings name."""
    settings = QuerySettings.load()
    remote = Remote(
        settings.client.uri, settings.client.key.get_secret_value() if settings.client.key else None
    )
    try:
        yield remote
    finally:
        remote.close()
