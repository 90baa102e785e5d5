"""The search API as the pages call it. Every failure is one sentence for the person who looks at the page."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import orjson
import streamlit as st

from ui.event_stream import EventStream
from ui.login import visitor
from ui.settings import API_VARIABLE, api_uri, tls_context

TIMEOUT_S = 120.0
SILENT_S = 30.0  # an event stream gives a sign of life every few seconds
EVENTS = "text/event-stream"
NO_EVENTS = (
    "What answers at {uri} is no stream of events ({kind}). Look at what stands between this front end and "
    f"the search API, and at {API_VARIABLE}."
)


@dataclass  # not frozen: Python sets the traceback on an exception that passes through a `with`
class ApiError(Exception):
    """Why there is no answer, and where in the query the fault lies. `retry_after_s`: when to ask again, as
    far as the API says so."""

    status: int
    message: str
    position: int | None = None
    length: int | None = None
    suggestion: str | None = None
    retry_after_s: int | None = None


class ApiClient:
    """Talks to one API with one key (None: anonymous)."""

    def __init__(self, uri: str, key: str | None = None) -> None:
        self.uri = uri.rstrip("/")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._http = httpx.Client(
            base_url=self.uri,
            headers=headers,
            timeout=httpx.Timeout(TIMEOUT_S, connect=5.0),
            verify=tls_context(),
            trust_env=False,
        )

    def get(self, path: str, **query: Any) -> dict[str, Any]:
        """GET of a path below /v1. Raises ApiError."""
        return self._send(
            "GET", path, {name: value for name, value in query.items() if value is not None}, None
        )

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """POST to a path below /v1. Raises ApiError."""
        return self._send("POST", path, None, body)

    def put(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """PUT to a path below /v1. Raises ApiError."""
        return self._send("PUT", path, None, body)

    def delete(self, path: str, **query: Any) -> dict[str, Any]:
        """DELETE of a path below /v1. Raises ApiError."""
        return self._send("DELETE", path, query, None)

    def fetch(self, path: str) -> bytes:
        """The bytes of a path below /v1. Raises ApiError."""
        try:
            response = self._http.get(f"/v1{path}")
        except httpx.HTTPError as error:
            raise self._silent(error) from error
        if not response.is_success:
            raise _error(response)
        return response.content

    def watch(self, path: str, body: dict[str, Any]) -> Generator[dict[str, Any]]:
        """POST to a path below /v1 that tells how far it is: `progress` and `rows`, last `answer`. Who closes
        the generator ends the search. Raises ApiError."""
        headers = {"Content-Type": "application/json", "Accept": "application/x-ndjson"}
        content = orjson.dumps(body)
        try:
            with self._http.stream("POST", f"/v1{path}", content=content, headers=headers) as response:
                if not response.is_success:
                    response.read()
                    raise _error(response)
                for line in _lines(response):
                    told = orjson.loads(line)
                    if "error" in told:
                        raise _told_error(told["status"], told["error"])
                    yield told
        except httpx.HTTPError as error:
            raise self._silent(error) from error

    @contextmanager
    def events(self, path: str, **query: str) -> Iterator[EventStream]:
        """The server-sent events of a path below /v1. Raises ApiError, also while they are read."""
        patience = httpx.Timeout(TIMEOUT_S, connect=5.0, read=SILENT_S)
        try:
            with self._http.stream("GET", f"/v1{path}", params=query, timeout=patience) as response:
                if not response.is_success:
                    response.read()
                    raise _error(response)
                if not (kind := response.headers.get("Content-Type", "")).startswith(EVENTS):
                    raise ApiError(0, NO_EVENTS.format(uri=self.uri, kind=kind[:100] or "nothing"))
                yield EventStream(response)
        except httpx.HTTPError as error:
            raise self._silent(error) from error

    def _send(
        self, method: str, path: str, query: dict[str, Any] | None, body: dict[str, Any] | None
    ) -> dict[str, Any]:
        content = None if body is None else orjson.dumps(body)
        headers = None if body is None else {"Content-Type": "application/json"}
        try:
            response = self._http.request(
                method, f"/v1{path}", params=query, content=content, headers=headers
            )
        except httpx.HTTPError as error:
            raise self._silent(error) from error
        if not response.is_success:
            raise _error(response)
        return dict(orjson.loads(response.content)) if response.content else {}

    def _silent(self, error: httpx.HTTPError) -> ApiError:
        return ApiError(
            0,
            f"The search API at {self.uri} does not answer ({type(error).__name__}). Start it with `python "
            f"-m query serve`, or set {API_VARIABLE}.",
        )


def _error(response: httpx.Response) -> ApiError:
    try:
        error = _told_error(response.status_code, orjson.loads(response.content)["error"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        error = ApiError(response.status_code, f"The search API answered {response.status_code}.")
    after = response.headers.get("Retry-After", "")
    error.retry_after_s = int(after) if after.isascii() and after.isdigit() else None
    return error


def _told_error(status: int, error: dict[str, Any]) -> ApiError:
    return ApiError(
        status, str(error["message"]), error.get("position"), error.get("length"), error.get("suggestion")
    )


def _lines(response: httpx.Response) -> Iterator[bytes]:
    """At line feeds alone: httpx takes further characters, which records hold, for ends of lines."""
    rest = b""
    for part in response.iter_bytes():
        *lines, rest = (rest + part).split(b"\n")
        yield from lines


@st.cache_resource(max_entries=256, show_spinner=False)
def _client(uri: str, key: str | None) -> ApiClient:
    return ApiClient(uri, key)


def bearer() -> str | None:
    """What this browser session shows the API: the key that was entered, or else the token of whoever has
    logged in; None: nothing."""
    key = st.session_state.get("key")
    if key is not None:
        return str(key)
    tokens = visitor.tokens()
    return None if tokens is None else tokens.bearer


def api() -> ApiClient:
    """The client of this browser session."""
    return _client(api_uri(), bearer())
