"""Trino: wide searches, tables with equality deletes, and the SQL page. The only module that knows its
client."""

from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

import requests
import stamina
from sqlglot import exp
from trino.auth import BasicAuthentication
from trino.dbapi import Connection
from trino.exceptions import Error, HttpError, TrinoConnectionError, TrinoQueryError, TrinoUserError

from lake.errors import NotFoundError, RefusedError, SettingsError, UnavailableError
from lake.settings import QuerySettings, TlsSettings
from query.access.trino_access import user_of
from query.access.trino_rules import TrinoRules
from query.executors.bounded_session import BoundedSession, TooLargeError
from query.executors.executor import Fetched, Source, of_nothing, with_source
from query.language.text_match import as_trino_filters
from query.model.answer_size import ROWS_AT_ONCE, Row, batches_of, rows_within
from query.model.cancellation import Run
from query.model.table_view import TableView

# What Trino says when a snapshot or file went away between planning and reading.
_GONE = frozenset(
    {
        "TABLE_NOT_FOUND",
        "SCHEMA_NOT_FOUND",
        "INVALID_ARGUMENTS",
        "ICEBERG_CANNOT_OPEN_SPLIT",
        "ICEBERG_FILESYSTEM_ERROR",
        "ICEBERG_INVALID_METADATA",
    }
)
REQUEST_TIMEOUT_S = 30.0
# Files that a statement names; of more, Trino finds by their times those it reads. A statement has a million
# characters at most, and a path some two hundred.
PATHS_MAX = 1_000
NODES_WITHIN_S = 10.0
NO_RULES = (
    "Trino's rules do not let this tenant's user read it: a tenant that is new has rules seconds after the "
    "operator ran `python -m query trino-access` again, or at once where trino.access names their folder"
)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a statement gives: names and types of its columns, and rows. `cut`: a sentence where there are
    more; None: these are all."""

    columns: list[tuple[str, str]]
    rows: list[Row]
    cut: str | None
    scanned_bytes: int | None


class TrinoExecutor:
    """Runs SELECTs on a Trino coordinator; a connection per query, as the protocol has none to keep."""

    name = "trino"
    reads_files = False

    def __init__(self, settings: QuerySettings, rules: TrinoRules | None = None) -> None:
        parts = urlsplit(settings.trino.uri)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SettingsError(f"trino.uri {settings.trino.uri!r} is not a URL; write http://host:port")
        self._settings = settings
        self._parts = parts
        self._rules = rules
        self._atomic_groups: bool | None = None
        self._session = BoundedSession()
        self._session.trust_env = False
        tls = TlsSettings.load()
        self._session.verify = settings.trino.ca or tls.ca or True
        if tls.certificate:
            self._session.cert = (tls.certificate, tls.key) if tls.key else tls.certificate

    def fetch(self, source: Source, select: exp.Select, run: Run, *, bytes_max: int | None = None) -> Fetched:
        if not source.files:
            return Fetched(of_nothing(select), 0)
        with self._cursor(run, self._user_of(source)) as cursor:
            batches = self._batches(
                cursor,
                self.sql(source, self._as_filtered(select, run)),
                run,
                1_000 if bytes_max is None else ROWS_AT_ONCE,
            )
            rows, cut = (
                ([row for batch in batches for row in batch], False)
                if bytes_max is None
                else rows_within(bytes_max, batches)
            )
            return Fetched(rows, _scanned_bytes(cursor), cut)

    def stream(
        self, source: Source, select: exp.Select, run: Run, *, rows_at_once: int
    ) -> Iterator[list[tuple[Any, ...]]]:
        if not source.files:
            return
        with self._cursor(run, self._user_of(source)) as cursor:
            yield from batches_of(
                self._batches(cursor, self.sql(source, self._as_filtered(select, run)), run, ROWS_AT_ONCE),
                rows_at_once,
            )

    def _user_of(self, source: Source) -> str:
        return user_of(source.view.id.tenant, self._settings.trino.user)

    def statement(self, sql: str, run: Run, *, user: str, rows_max: int, bytes_max: int) -> Answer:
        """Runs checked SQL text as one of Trino's users. Raises RefusedError with Trino's words."""
        with self._cursor(run, user) as cursor:
            # Row by row: the client holds a page of Trino's at a time, and what follows the last row that is
            # given is never asked for.
            batches = self._batches(cursor, sql, run, 1)
            rows, cut = rows_within(bytes_max, islice(batches, rows_max + 1))
            columns = [(str(c[0]), str(c[1])) for c in cursor.description or ()]
            said = (
                f"only the first {len(rows):,} rows are given, which have {bytes_max:,} bytes together; "
                "select less, or export"
                if cut
                else None
            )
            if len(rows) > rows_max:
                said = f"only the first {rows_max:,} rows are given; raise `limit`, or export"
            return Answer(columns, rows[:rows_max], said, _scanned_bytes(cursor))

    def ping(self) -> bool:
        """Whether the coordinator answers and has started."""
        try:
            answer = self._session.get(f"{self._settings.trino.uri.rstrip('/')}/v1/info", timeout=2.0)
            return bool(answer.ok and not answer.json().get("starting", True))
        except (requests.RequestException, ValueError):
            return False

    def sql(self, source: Source, select: exp.Select) -> str:
        """The SELECT as Trino's SQL over the table as of its view."""
        if source.is_narrow and len(source.files) <= PATHS_MAX and _is_as_of(source.view):
            is_one = exp.In(
                this=exp.Identifier(this="$path", quoted=True),
                expressions=[exp.Literal.string(file.uri) for file in source.files],
            )
            select.where(is_one, copy=False)
        return with_source(select, self._table(source.view)).sql(dialect="trino", copy=False)

    def _as_filtered(self, select: exp.Select, run: Run) -> exp.Select:
        return as_trino_filters(select, lambda: self._has_atomic_groups(run))

    def _has_atomic_groups(self, run: Run) -> bool:
        """Asked once: `regex-library` is a setting of Trino's servers that nothing else tells."""
        if self._atomic_groups is None:
            try:
                self.statement(
                    "SELECT regexp_like('a', '(?>a)')",
                    run,
                    user=self._settings.trino.user,
                    rows_max=1,
                    bytes_max=1_000,
                )
                self._atomic_groups = True
            except RefusedError:
                self._atomic_groups = False
        return self._atomic_groups

    def _table(self, view: TableView) -> exp.Expression:
        names = [
            exp.to_identifier(name, quoted=True)
            for name in (view.name.name, view.name.namespace, self._settings.trino.catalog)
        ]
        table = exp.Table(this=names[0], db=names[1], catalog=names[2])
        if _is_as_of(view):
            assert view.snapshot_id is not None
            table.set(
                "version",
                exp.Version(this="VERSION", kind="AS OF", expression=exp.Literal.number(view.snapshot_id)),
            )
        return table

    def _cursor(self, run: Run, user: str) -> Any:
        """`user`: as whom the question is asked. Trino knows by `trino.user`'s password who asks, and by its
        rules that it may ask for others."""
        password = self._settings.trino.password
        run.engine = self.name
        if self._rules is not None and user != self._settings.trino.user:
            self._rules.check(user)
        connection: Any = Connection(
            host=self._parts.hostname or "",
            port=self._parts.port or (443 if self._parts.scheme == "https" else 80),
            http_scheme=self._parts.scheme,
            user=user,
            auth=BasicAuthentication(self._settings.trino.user, password.get_secret_value())
            if password
            else None,
            source="firn-query",
            catalog=self._settings.trino.catalog,
            http_session=self._session,
            request_timeout=REQUEST_TIMEOUT_S,
            session_properties={"query_max_run_time": f"{max(1, round(run.timeout_s))}s"},
        )
        return closing(connection.cursor())

    def _batches(self, cursor: Any, sql: str, run: Run, rows_at_once: int) -> Iterator[list[Row]]:
        def stop() -> None:
            # Trino names a statement in its first answer; before that the client would pass over it in
            # silence. It is stopped again soon.
            if cursor.query_id is not None:
                with suppress(Error, HttpError, requests.RequestException):
                    cursor.cancel()

        try:
            with run.stoppable(stop, lambda: _share_done(cursor)):
                batch = _first_batch(cursor, sql, run, rows_at_once)
                while batch:
                    yield [tuple(row) for row in batch]
                    run.check()
                    batch = cursor.fetchmany(rows_at_once)
            run.check()  # the client gives no rows, and no error, of a statement that it has ended
        except (Error, HttpError, requests.RequestException) as error:
            run.check()
            raise _translated(error, self._settings.trino.uri) from error


def _is_as_of(view: TableView) -> bool:
    """Whether the table is read as of the view's snapshot. A type declared since the last commit is in the
    table's schema and not in its snapshot's: then the table is read as it is now, with whatever files it
    has."""
    return view.snapshot_id is not None and view.schema_is_of_snapshot


def _first_batch(cursor: Any, sql: str, run: Run, rows_at_once: int) -> list[list[Any]]:
    """Runs a statement up to its first rows. A coordinator that has just started, or that has lost sight of
    its workers for a moment, refuses before anything runs; so it is asked again for some seconds."""
    for attempt in stamina.retry_context(
        on=_lacks_nodes, attempts=None, timeout=NODES_WITHIN_S, wait_initial=0.2, wait_max=1.0
    ):
        with attempt:
            run.check()
            cursor.execute(sql)
            return list(cursor.fetchmany(rows_at_once))
    raise AssertionError("an attempt returns or raises")


def _lacks_nodes(error: Exception) -> bool:
    return isinstance(error, TrinoQueryError) and error.error_name == "NO_NODES_AVAILABLE"


def _translated(error: Exception, uri: str) -> Exception:
    if isinstance(error, TooLargeError):
        return RefusedError(f"{error}; select fewer columns, or export")
    if isinstance(error, HttpError) and "cannot impersonate" in str(error):
        return RefusedError(NO_RULES)
    if isinstance(error, TrinoUserError | TrinoQueryError):
        said = f"Trino: {error.message}"
        if error.error_name == "PERMISSION_DENIED":
            return RefusedError(f"{said}. {NO_RULES}")
        if error.error_name in _GONE:
            return NotFoundError(said)
        return RefusedError(said) if error.error_type == "USER_ERROR" else UnavailableError(said)
    if isinstance(error, TrinoConnectionError | requests.RequestException):
        return UnavailableError(f"Trino at {uri} does not answer ({type(error).__name__}); is it running?")
    if isinstance(error, HttpError) and "error 401" in str(error):
        return UnavailableError(
            f"Trino at {uri} does not let this room in; set FIRN_QUERY_TRINO__USER and "
            "FIRN_QUERY_TRINO__PASSWORD"
        )
    return UnavailableError(f"Trino: {error}")


def _share_done(cursor: Any) -> float:
    """0 until Trino has made all splits of a statement, and knows how many there are."""
    return float((cursor.stats or {}).get("progressPercentage") or 0) / 100


def _scanned_bytes(cursor: Any) -> int | None:
    stats = cursor.stats or {}
    found = stats.get("physicalInputBytes", stats.get("processedBytes"))
    return int(found) if found is not None else None
