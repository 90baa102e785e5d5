"""A client of the Iceberg REST catalog protocol, with Firn's extras where the catalog offers them.

Reads are repeated on passing faults. A commit is sent once: whoever called decides what an unknown outcome
means.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx
import orjson
import stamina

from lake.errors import (
    ConflictError,
    NotFoundError,
    ProtocolError,
    RefusedError,
    SettingsError,
    UnavailableError,
)
from lake.tls import tls_context

EXTRAS_PROPERTY = "firn.extras"
EXTRAS_PATH = "/firn/v1"
WAREHOUSE_PROPERTY = "firn.warehouse"
NAMESPACE_SEPARATOR = "\x1f"
LEASE_HEADER = "X-Firn-Lease"
IDEMPOTENCY_HEADER = "Idempotency-Key"
# A catalog without batch commits gets its commits one by one, so many at a time that a slow one does not hold
# up the others.
COMMITS_AT_ONCE = 8
# The catalog answers at the deadline of the commits; an answer on its way then is still waited for.
DEADLINE_GRACE_S = 2.0


class TableName(NamedTuple):
    """A table's identifiers: one level of namespace and a name, both already `[a-z0-9_]`."""

    namespace: str
    name: str

    @classmethod
    def parse(cls, identifier: Mapping[str, Any]) -> "TableName":
        """A table's name from the protocol's `{"namespace": [...], "name": ...}`."""
        return cls(NAMESPACE_SEPARATOR.join(identifier["namespace"]), identifier["name"])

    @property
    def levels(self) -> list[str]:
        """The levels of its namespace; tenants' tables have one."""
        return self.namespace.split(NAMESPACE_SEPARATOR)

    @property
    def dotted(self) -> str:
        """As people read it, and write it in a command."""
        return ".".join((*self.levels, self.name))

    def to_json(self) -> dict[str, Any]:
        return {"namespace": self.levels, "name": self.name}

    def __str__(self) -> str:
        return f"{self.namespace}.{self.name}"


class NoAnswerError(UnavailableError):
    """The catalog did not answer in time; it may yet do what it was asked for."""


class MetadataMissingError(NotFoundError):
    """The catalog knows the table, but a metadata file of it is gone."""


class CommitStatus(StrEnum):
    """What became of one table's commit."""

    COMMITTED = "committed"
    CONFLICT = "conflict"  # a requirement failed: somebody was faster, or it had landed before
    NOT_FOUND = "not-found"
    DELETED = "deleted"  # soft-deleted: the name is reserved
    INVALID = "invalid"  # the request itself is refused; sending it again is useless
    FAILED = "failed"  # certainly not applied; may pass later
    TIMEOUT = "timeout"  # its deadline passed before it was applied; certainly not applied
    UNKNOWN = "unknown"  # nobody can say; find out before doing anything else


@dataclass(frozen=True, slots=True)
class CommitResult:
    """The answer to one table's commit."""

    status: CommitStatus
    message: str = ""


class CatalogClient:
    """Talks to one catalog; thread-safe. `token`: an API key or OAuth2 token; `lease`: fencing of maintenance
    commits, `name:token`.

    `control`: it is no catalog but the service beside one, which has the extras and nothing else.
    `transport`: what carries requests (None: the network). Raises SettingsError where the URI is none of
    HTTP.
    """

    def __init__(
        self,
        uri: str,
        *,
        token: str | None = None,
        lease: str | None = None,
        timeout_s: float = 60.0,
        control: bool = False,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        headers = {"Accept": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        if lease:
            headers[LEASE_HEADER] = lease
        self._control = control
        self._setting = "control.uri" if control else "catalog.uri"
        self.uri = _checked(uri, self._setting).rstrip("/")
        limits = httpx.Limits(max_connections=32, max_keepalive_connections=32)
        timeout = httpx.Timeout(timeout_s, connect=10.0)
        self._http = httpx.Client(
            base_url=self.uri,
            headers=headers,
            timeout=timeout,
            limits=limits,
            verify=tls_context(),
            trust_env=False,
            transport=transport,
        )

    def close(self) -> None:
        self._http.close()

    @cached_property
    def config(self) -> Mapping[str, str]:
        """Defaults and overrides of the catalog's configuration, merged, as they were at first."""
        return self.config_now()

    def config_now(self) -> Mapping[str, str]:
        """The same as it is now."""
        answer = self._get("/v1/config")
        return {**answer.get("defaults", {}), **answer.get("overrides", {})}

    @cached_property
    def has_extras(self) -> bool:
        """Whether this is Firn's own catalog, or its control service."""
        return self._control or EXTRAS_PROPERTY in self.config

    @property
    def warehouse(self) -> str | None:
        """Where tables may choose their locations, if the catalog says so."""
        return self.config.get(WAREHOUSE_PROPERTY)

    @cached_property
    def _v1(self) -> str:
        prefix = self.config.get("prefix")
        return f"/v1/{quote(prefix, safe='')}" if prefix else "/v1"

    def ping(self, *, timeout_s: float) -> None:
        """Asks for the configuration once. Raises UnavailableError, NoAnswerError where the catalog does not
        answer as it should."""
        self._send("GET", "/v1/config", None, timeout_s=timeout_s)

    # ---- namespaces and tables

    def create_namespace(self, namespace: str, properties: Mapping[str, str]) -> None:
        """Creates a namespace; one that exists already is fine."""
        body = {"namespace": namespace.split(NAMESPACE_SEPARATOR), "properties": dict(properties)}
        try:
            self._send("POST", f"{self._v1}/namespaces", body)
        except ConflictError:
            return

    def namespaces(self) -> Iterator[str]:
        """All top-level namespaces."""
        for page in self._pages(f"{self._v1}/namespaces"):
            yield from (NAMESPACE_SEPARATOR.join(levels) for levels in page["namespaces"])

    def namespace_properties(self, namespace: str) -> dict[str, str]:
        return dict(self._get(f"{self._v1}/namespaces/{quote(namespace, safe='')}").get("properties") or {})

    def update_namespace(self, namespace: str, updates: Mapping[str, str], removals: Sequence[str]) -> None:
        """Sets and removes properties of a namespace. Raises NotFoundError."""
        body = {"updates": dict(updates), "removals": list(removals)}
        self._send("POST", f"{self._v1}/namespaces/{quote(namespace, safe='')}/properties", body)

    def drop_namespace(self, namespace: str) -> None:
        """Drops an empty namespace. Raises NotFoundError, ConflictError where anything is in it, RefusedError
        where a legal hold is on it."""
        self._send("DELETE", f"{self._v1}/namespaces/{quote(namespace, safe='')}", None)

    def tables(self, namespace: str) -> Iterator[TableName]:
        """All tables of a namespace."""
        for page in self._pages(f"{self._v1}/namespaces/{quote(namespace, safe='')}/tables"):
            yield from (TableName.parse(identifier) for identifier in page["identifiers"])

    def load_table(self, table: TableName, *, timeout_s: float | None = None) -> dict[str, Any]:
        """The table as `{"metadata-location", "metadata", "config"}`. Raises NotFoundError,
        MetadataMissingError.

        With `timeout_s` it is asked once, for a caller that has its own idea of when to ask again.
        """
        path = self._table_path(table)
        return self._get(path) if timeout_s is None else self._send("GET", path, None, timeout_s=timeout_s)

    def load_tables(
        self, tables: Sequence[TableName], *, deadline_s: float
    ) -> list[dict[str, Any] | Exception]:
        """Of Firn's own catalog the first of many tables, each as `load_table` gives it, or the error that it
        raises; in order, and as many as one answer holds, at least one.

        `deadline_s`: how long the catalog may take. Raises what a request raises of which nothing came.
        """
        names = [table.to_json() for table in tables]
        body = {"identifiers": names, "deadline-ms": int(deadline_s * 1000)}
        answer = self._send("POST", f"{EXTRAS_PATH}/loads", body, timeout_s=deadline_s + DEADLINE_GRACE_S)
        results = answer["results"]
        if not 0 < len(results) <= len(tables):
            raise ProtocolError(
                f"the catalog at {self.uri} answered {len(tables)} loads with {len(results)} results"
            )
        return [self._of_table(table, result) for table, result in zip(tables, results, strict=False)]

    def _of_table(self, table: TableName, result: dict[str, Any]) -> dict[str, Any] | Exception:
        """A result of `load_tables`."""
        model = result.get("error")
        if model is None:
            return result
        sentence = f"catalog {self.uri}, load of {table}: {model['code']} {model['message']}"
        return _error_of(int(model["code"]), model.get("type"), sentence)

    @stamina.retry(on=UnavailableError, attempts=5, timeout=60.0)
    def table_exists(self, table: TableName) -> bool:
        """Whether there is a table of this name; a view is none. Raises RefusedError where the key does not
        reach it."""
        try:
            self._send("HEAD", self._table_path(table), None)
        except NotFoundError:
            return False
        return True

    def create_table(self, table: TableName, request: Mapping[str, Any]) -> dict[str, Any]:
        """Creates a table from a CreateTableRequest. Raises ConflictError where it exists."""
        return self._send(
            "POST",
            f"{self._v1}/namespaces/{quote(table.namespace, safe='')}/tables",
            {**request, "name": table.name},
        )

    def drop_table(self, table: TableName, *, purge: bool = False) -> None:
        self._send("DELETE", f"{self._table_path(table)}?purgeRequested={str(purge).lower()}", None)

    def set_properties(self, table: TableName, updates: Mapping[str, str]) -> None:
        """Sets table properties in a commit of its own; a lost race is tried again because it depends on
        nothing."""
        request = {
            "identifier": table.to_json(),
            "requirements": [],
            "updates": [{"action": "set-properties", "updates": dict(updates)}],
        }
        self._send("POST", self._table_path(table), request)

    # ---- commits

    def commit_all(
        self,
        requests: Sequence[Mapping[str, Any]],
        *,
        timeout_s: float | None = None,
        deadline_s: float | None = None,
    ) -> list[CommitResult]:
        """Commits many tables independently; one result per request, in order. Never raises for a commit's
        fate.

        With Firn's catalog this is one request and one SQL transaction; with any other, single commits.
        `deadline_s`: how long the catalog may take for each table before it leaves it as it is (default:
        `timeout_s`), so that one slow table does not delay the answer for all.
        """
        if not self.has_extras:
            return self._commit_singly(requests, timeout_s if deadline_s is None else deadline_s)
        deadline_s = timeout_s if deadline_s is None else deadline_s
        timeout_s = timeout_s if deadline_s is None else deadline_s + DEADLINE_GRACE_S
        commits = [
            request if deadline_s is None else {**request, "deadline-ms": int(deadline_s * 1000)}
            for request in requests
        ]
        try:
            answer = self._send("POST", f"{EXTRAS_PATH}/commits", {"commits": commits}, timeout_s=timeout_s)
            results = answer["results"]
        except UnavailableError as error:
            return [CommitResult(CommitStatus.UNKNOWN, str(error))] * len(requests)
        except (RefusedError, NotFoundError, ConflictError) as error:
            # The request as a whole is refused, which says nothing about any of several tables.
            status = CommitStatus.INVALID if len(requests) == 1 else CommitStatus.FAILED
            return [CommitResult(status, str(error))] * len(requests)
        if len(results) != len(requests):
            raise ProtocolError(
                f"the catalog at {self.uri} answered {len(requests)} commits with {len(results)} results"
            )
        return [
            CommitResult(CommitStatus(r["status"]), (r.get("error") or {}).get("message", ""))
            for r in results
        ]

    def _commit_singly(
        self, requests: Sequence[Mapping[str, Any]], timeout_s: float | None
    ) -> list[CommitResult]:
        if len(requests) <= 1:
            return [self._commit_one(request, timeout_s) for request in requests]
        with ThreadPoolExecutor(min(COMMITS_AT_ONCE, len(requests)), thread_name_prefix="commit") as pool:
            return list(pool.map(lambda request: self._commit_one(request, timeout_s), requests))

    def _commit_one(self, request: Mapping[str, Any], timeout_s: float | None) -> CommitResult:
        table = TableName.parse(request["identifier"])
        body = {key: request[key] for key in ("identifier", "requirements", "updates")}
        try:
            self._send("POST", self._table_path(table), body, timeout_s=timeout_s)
        except ConflictError as error:
            return CommitResult(CommitStatus.CONFLICT, str(error))
        except MetadataMissingError as error:
            return CommitResult(CommitStatus.FAILED, str(error))
        except NotFoundError as error:
            return CommitResult(CommitStatus.NOT_FOUND, str(error))
        except RefusedError as error:
            return CommitResult(CommitStatus.INVALID, str(error))
        except UnavailableError as error:
            return CommitResult(CommitStatus.UNKNOWN, str(error))
        return CommitResult(CommitStatus.COMMITTED)

    # ---- Firn's extras (`extras_client.py`) and the wire

    def get(self, path: str, **query: Any) -> dict[str, Any]:
        """GET of any path of the catalog, repeated on passing faults; a parameter that is None is not
        sent."""
        return self._get(path, {key: value for key, value in query.items() if value is not None})

    def get_once(self, path: str, timeout_s: float, query: Mapping[str, Any]) -> dict[str, Any]:
        """GET of any path of the catalog, asked once, for a caller that has its own idea of when to ask
        again."""
        return self._send("GET", path, None, query=query, timeout_s=timeout_s)

    def post(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        timeout_s: float | None = None,
        idempotency_key: str | None = None,
    ) -> dict[str, Any]:
        """POST to any path of the catalog, sent once. Raises the errors of `lake.errors` by status.

        With an idempotency key (a UUID) the same request may be sent again after an unknown outcome: it gets
        the answer of the first.
        """
        return self._send("POST", path, body, timeout_s=timeout_s, idempotency_key=idempotency_key)

    def delete(self, path: str) -> dict[str, Any]:
        return self._send("DELETE", path, None)

    def _table_path(self, table: TableName) -> str:
        return f"{self._v1}/namespaces/{quote(table.namespace, safe='')}/tables/{quote(table.name, safe='')}"

    def _pages(self, path: str) -> Iterator[dict[str, Any]]:
        # The token is sent although it is empty: that is how the protocol asks for pages.
        return pages(lambda token: self._get(path, {"pageToken": token, "pageSize": "1000"}))

    @stamina.retry(on=UnavailableError, attempts=5, timeout=60.0)
    def _get(self, path: str, query: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return self._send("GET", path, None, query=query)

    def _send(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        *,
        query: Mapping[str, Any] | None = None,
        timeout_s: float | None = None,
        idempotency_key: str | None = None,
    ) -> dict[str, Any]:
        content = None if body is None else orjson.dumps(body)
        headers = {} if content is None else {"Content-Type": "application/json"}
        if idempotency_key is not None:
            headers[IDEMPOTENCY_HEADER] = idempotency_key
        timeout = httpx.USE_CLIENT_DEFAULT if timeout_s is None else timeout_s
        try:
            response = self._http.request(
                method, path, content=content, headers=headers, params=query, timeout=timeout
            )
        except httpx.HTTPError as error:
            kind = NoAnswerError if isinstance(error, httpx.TimeoutException) else UnavailableError
            sentence = (
                f"catalog {self.uri} did not answer {method} {path.split('?')[0]}: "
                f"{error or type(error).__name__}"
            )
            raise kind(
                sentence + ("" if _was_reached(error) else f"; is it running, and is {self._setting} right?")
            ) from error
        if response.is_success:
            return dict(orjson.loads(response.content)) if response.content else {}
        raise _error(self.uri, method, path, response)


def pages(ask: Callable[[str], dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Every page of a list of the catalog, each asked for when it is needed. `ask` is given the token of the
    page: empty for the first."""
    token = ""
    while True:
        page = ask(token)
        yield page
        token = page.get("next-page-token") or ""
        if not token:
            return


def _checked(uri: str, setting: str) -> str:
    try:
        url = httpx.URL(uri)
        is_usable = url.scheme in ("http", "https") and bool(url.host)
    except httpx.InvalidURL:
        is_usable = False
    if not is_usable:
        raise SettingsError(f"{setting} {uri!r} is no base URL; write http://host:port or https://host:port")
    return uri


def _was_reached(error: httpx.HTTPError) -> bool:
    """Whether somebody took the request and only did not answer in time."""
    return isinstance(error, httpx.TimeoutException) and not isinstance(error, httpx.ConnectTimeout)


def _error(uri: str, method: str, path: str, response: httpx.Response) -> Exception:
    try:
        model = orjson.loads(response.content)["error"]
        message, kind = model["message"], model.get("type")
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        message, kind = response.text[:300], None
    sentence = f"catalog {uri}, {method} {path.split('?')[0]}: {response.status_code} {message}"
    return _error_of(response.status_code, kind, sentence)


def _error_of(status: int, kind: str | None, sentence: str) -> Exception:
    if status == 404:
        # Iceberg's NotFoundException is a missing file; a missing table or namespace has a name of its own.
        return MetadataMissingError(sentence) if kind == "NotFoundException" else NotFoundError(sentence)
    if status == 409:
        return ConflictError(sentence)
    if status in (408, 429) or status >= 500:
        return UnavailableError(sentence)
    return RefusedError(sentence)
