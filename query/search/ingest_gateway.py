"""Ingest's tools over HTTP (`python -m ingest serve`): dead letters and the live tail. Ingest trusts this
room; whose dead letter is whose is checked here."""

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

import httpx
import orjson

from lake.errors import ConflictError, NotFoundError, RefusedError, UnavailableError
from lake.settings import QuerySettings
from lake.tenant import TenantId
from lake.tls import tls_context
from lake.usage_row import UsageRow
from query.model.instant import parse_period, rfc3339
from query.model.limits import BusyError

# A replay answers when every dead letter is acknowledged.
TIMEOUT_S = 300.0
CONNECT_TIMEOUT_S = 5.0
LIST_MAX = 1_000


class IngestGateway:
    """A client of ingest's tools. Thread-safe."""

    def __init__(self, settings: QuerySettings) -> None:
        self._uri = settings.ingest.uri.rstrip("/")
        self._headers = (
            {"Authorization": f"Bearer {settings.ingest.token.get_secret_value()}"}
            if settings.ingest.token
            else {}
        )
        self._options: dict[str, Any] = {
            "base_url": self._uri,
            "headers": self._headers,
            "verify": tls_context(),
            "trust_env": False,
        }
        self._timeout = httpx.Timeout(TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
        self._http = httpx.Client(**self._options, timeout=self._timeout) if self._uri else None

    def close(self) -> None:
        if self._http is not None:
            self._http.close()

    def letters(
        self, tenant: TenantId | None, *, limit: int = 100, before: str | None = None, **wanted: str | None
    ) -> dict[str, Any]:
        """A page of dead letters, newest first, of one tenant or of all. `wanted`: reason, topic, since,
        until. Raises UnavailableError, RefusedError."""
        query = {"tenant": tenant.name if tenant else None, "limit": limit, "before": before, **wanted}
        return self._send(
            "GET",
            "/v1/dead-letters",
            query={name: value for name, value in query.items() if value is not None},
        )

    def letter(self, letter_id: str, tenant: TenantId | None) -> dict[str, Any]:
        """One dead letter whole, of this tenant (None: whoever's). Raises NotFoundError also where it is
        another's: whether there is one is nobody's business."""
        found = self._send("GET", f"/v1/dead-letters/{letter_id}")
        if tenant is not None and not self._is_of(tenant, letter_id, found):
            raise NotFoundError(
                f"tenant {tenant.name!r} has no dead letter {letter_id}; list them to see which there are"
            )
        return found

    def replay(self, body: dict[str, Any]) -> dict[str, Any]:
        """Sends dead letters again. Raises ConflictError while another replay runs."""
        return self._send("POST", "/v1/dead-letters/replay", body=body)

    def durable(self) -> list[dict[str, Any]]:
        """Per partition of the input topics how far it is in (`offset`) and where it ends (`reached`), as of
        now. Raises UnavailableError, RefusedError."""
        return list(self._send("GET", "/v1/durable")["partitions"])

    def usage_rows(self, rows: Sequence[UsageRow]) -> None:
        """Writes rows of `system.usage`; returns when the topic has them. Raises UnavailableError,
        RefusedError: then all are to be sent again."""
        self._send("POST", "/v1/usage-rows", body={"rows": [asdict(row) for row in rows]})

    def kept_records(self, kind: str, tenant: TenantId) -> Iterator[list[dict[str, Any]]]:
        """Messages of a tenant that one of Firn's own topics keeps (`dead-letters`, `parked`, `replay`),
        whole, page by page. Raises as `durable`."""
        after: str | None = "0:0"
        while after is not None:
            page = self._send(
                "GET", "/v1/kept-records", query={"kind": kind, "tenant": tenant.name, "after": after}
            )
            yield page["records"]
            after = page["next"]

    async def tail(self, tenant: TenantId, stream: str | None, words: str) -> AsyncIterator[bytes]:
        """The live tail of a tenant as the bytes of an event stream. The caller closes the iterator. Raises
        UnavailableError, BusyError, RefusedError."""
        self._require()
        query = {"tenant": tenant.name, "q": words} | ({"stream": stream} if stream else {})
        # Events come when records do, and a sign of life every few seconds.
        client = httpx.AsyncClient(**self._options, timeout=httpx.Timeout(60.0, connect=CONNECT_TIMEOUT_S))
        try:
            response = await client.send(client.build_request("GET", "/v1/tail", params=query), stream=True)
            if not response.is_success:
                await response.aread()
        except httpx.HTTPError as error:
            await client.aclose()
            raise self._silent(error) from error
        if not response.is_success:
            await client.aclose()
            raise _error(response)
        return self._events(client, response)

    async def _events(self, client: httpx.AsyncClient, response: httpx.Response) -> AsyncIterator[bytes]:
        try:
            async for part in response.aiter_raw():
                yield part
        except httpx.HTTPError as error:
            data = orjson.dumps({"message": str(self._silent(error))})
            yield b"event: failed\ndata: " + data + b"\n\n"
        finally:
            await response.aclose()
            await client.aclose()

    def _is_of(self, tenant: TenantId, letter_id: str, letter: dict[str, Any]) -> bool:
        """Ingest says whose a dead letter is only in a listing, and finds it there by the moment it died."""
        died = parse_period(str(letter["died"]))
        if died is None:
            return False
        window = {"since": rfc3339(died.start), "until": rfc3339(_after(died.start))}
        before: str | None = None
        while True:
            page = self.letters(tenant, limit=LIST_MAX, before=before, **window)
            if any(each["id"] == letter_id for each in page["dead_letters"]):
                return True
            before = page["next"]
            if before is None:
                return False

    def _require(self) -> httpx.Client:
        if self._http is None:
            raise UnavailableError(
                "dead letters and live tail come from ingest: start `python -m ingest serve` and set "
                "FIRN_QUERY_INGEST__URI to its address"
            )
        return self._http

    def _send(
        self,
        method: str,
        path: str,
        *,
        query: dict[str, Any] | None = None,
        body: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        http = self._require()
        try:
            response = http.request(method, path, params=query, json=body)
        except httpx.HTTPError as error:
            raise self._silent(error) from error
        if not response.is_success:
            raise _error(response)
        return dict(response.json()) if response.content else {}

    def _silent(self, error: httpx.HTTPError) -> UnavailableError:
        return UnavailableError(
            f"ingest at {self._uri} does not answer ({type(error).__name__}); is `python -m ingest serve` "
            "running?"
        )


def _after(moment: datetime) -> datetime:
    """Times of dead letters are whole milliseconds."""
    return moment + timedelta(milliseconds=1)


def _error(response: httpx.Response) -> Exception:
    try:
        sentence = str(response.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        sentence = f"ingest answers {response.status_code}"
    if response.status_code == httpx.codes.TOO_MANY_REQUESTS:
        return BusyError(sentence)
    if response.status_code == httpx.codes.NOT_FOUND:
        return NotFoundError(sentence)
    if response.status_code == httpx.codes.CONFLICT:
        return ConflictError(sentence)
    if response.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
        return UnavailableError(
            f"ingest does not know this room: set FIRN_QUERY_INGEST__TOKEN to its http.token ({sentence})"
        )
    return RefusedError(sentence) if response.is_client_error else UnavailableError(sentence)
