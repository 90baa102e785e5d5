"""Trino: wide searches, tables with delete files, and the SQL page. The only module that knows its client."""

from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any
from urllib.parse import urlsplit

import requests
from sqlglot import exp
from trino.auth import BasicAuthentication
from trino.dbapi import Connection
from trino.exceptions import Error, HttpError, TrinoConnectionError, TrinoQueryError, TrinoUserError

from lake.errors import NotFoundError, RefusedError, SettingsError, UnavailableError
from lake.settings import QuerySettings
from query.cancellation import Run
from query.executors.executor import Fetched, Source, with_source
from query.table_view import TableView

# What Trino says when a snapshot or file went away between planning and reading.
_GONE = frozenset(
    {"TABLE_NOT_FOUND", "SCHEMA_NOT_FOUND", "INVALID_ARGUMENTS", "ICEBERG_CANNOT_OPEN_SPLIT", "ICEBERG_FILESYSTEM_ERROR", "ICEBERG_INVALID_METADATA"}
)
REQUEST_TIMEOUT_S = 30.0


class TrinoExecutor:
    """Runs SELECTs on a Trino coordinator; a connection per query, as the protocol has none to keep."""

    name = "trino"
    reads_files = False

    def __init__(self, settings: QuerySettings) -> None:
        parts = urlsplit(settings.trino_uri)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SettingsError(f"trino_uri {settings.trino_uri!r} is not a URL; write http://host:port")
        self._settings = settings
        self._parts = parts
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.verify = settings.trino_ca or True

    def fetch(self, source: Source, select: exp.Select, run: Run) -> Fetched:
        rows: list[tuple[Any, ...]] = []
        with self._cursor(run) as cursor:
            for batch in self._batches(cursor, self.sql(source, select), run, 1_000):
                rows += batch
            return Fetched(rows, _scanned_bytes(cursor))

    def stream(self, source: Source, select: exp.Select, run: Run, *, rows_at_once: int) -> Iterator[list[tuple[Any, ...]]]:
        with self._cursor(run) as cursor:
            yield from self._batches(cursor, self.sql(source, select), run, rows_at_once)

    def statement(self, sql: str, run: Run, *, rows_max: int) -> tuple[list[tuple[str, str]], list[tuple[Any, ...]], int | None]:
        """Runs checked SQL text: names and types of columns, at most `rows_max` + 1 rows, bytes read. Raises RefusedError with Trino's words."""
        rows: list[tuple[Any, ...]] = []
        with self._cursor(run) as cursor:
            for batch in self._batches(cursor, sql, run, min(1_000, rows_max + 1)):
                rows += batch
                if len(rows) > rows_max:
                    break
            columns = [(str(c[0]), str(c[1])) for c in cursor.description or ()]
            return columns, rows[: rows_max + 1], _scanned_bytes(cursor)

    def ping(self) -> bool:
        """Whether the coordinator answers and has started."""
        try:
            answer = self._session.get(f"{self._settings.trino_uri.rstrip('/')}/v1/info", timeout=2.0)
            return bool(answer.ok and not answer.json().get("starting", True))
        except (requests.RequestException, ValueError):
            return False

    def sql(self, source: Source, select: exp.Select) -> str:
        """The SELECT as Trino's SQL over the table as of its view."""
        return with_source(select, self._table(source.view)).sql(dialect="trino", copy=False)

    def _table(self, view: TableView) -> exp.Expression:
        names = [exp.to_identifier(name, quoted=True) for name in (view.name.name, view.name.namespace, self._settings.trino_catalog)]
        table = exp.Table(this=names[0], db=names[1], catalog=names[2])
        # A type declared since the last commit is in the table's schema and not in its snapshot's: then the table is read as it is now.
        if view.snapshot_id is not None and view.schema_is_of_snapshot:
            table.set("version", exp.Version(this="VERSION", kind="AS OF", expression=exp.Literal.number(view.snapshot_id)))
        return table

    def _cursor(self, run: Run) -> Any:
        password = self._settings.trino_password
        connection: Any = Connection(
            host=self._parts.hostname or "",
            port=self._parts.port or (443 if self._parts.scheme == "https" else 80),
            http_scheme=self._parts.scheme,
            user=self._settings.trino_user,
            auth=BasicAuthentication(self._settings.trino_user, password.get_secret_value()) if password else None,
            source="firn-query",
            catalog=self._settings.trino_catalog,
            http_session=self._session,
            request_timeout=REQUEST_TIMEOUT_S,
            session_properties={"query_max_run_time": f"{max(1, round(run.timeout_s))}s"},
        )
        return closing(connection.cursor())

    def _batches(self, cursor: Any, sql: str, run: Run, rows_at_once: int) -> Iterator[list[tuple[Any, ...]]]:
        def stop() -> None:
            with suppress(Error, HttpError, requests.RequestException):
                cursor.cancel()

        try:
            with run.stoppable(stop):
                cursor.execute(sql)
                while batch := cursor.fetchmany(rows_at_once):
                    yield [tuple(row) for row in batch]
                    run.check()
        except (Error, HttpError, requests.RequestException) as error:
            run.check()
            raise _translated(error, self._settings.trino_uri) from error


def _translated(error: Exception, uri: str) -> Exception:
    if isinstance(error, TrinoUserError | TrinoQueryError):
        said = f"Trino: {error.message}"
        if error.error_name in _GONE:
            return NotFoundError(said)
        return RefusedError(said) if error.error_type == "USER_ERROR" else UnavailableError(said)
    if isinstance(error, TrinoConnectionError | requests.RequestException):
        return UnavailableError(f"Trino at {uri} does not answer ({type(error).__name__}); is it running?")
    if isinstance(error, HttpError) and "error 401" in str(error):
        return UnavailableError(f"Trino at {uri} does not let this room in; set FIRN_QUERY_TRINO_USER and FIRN_QUERY_TRINO_PASSWORD")
    return UnavailableError(f"Trino: {error}")


def _scanned_bytes(cursor: Any) -> int | None:
    stats = cursor.stats or {}
    found = stats.get("physicalInputBytes", stats.get("processedBytes"))
    return int(found) if found is not None else None
