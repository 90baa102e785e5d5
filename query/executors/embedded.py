"""DuckDB in this process, over exactly the files a plan names. Columns are found by Iceberg's field ids, so
renamed ones keep their values.

Nothing is downloaded: the extensions it needs are part of its wheel, and installing others is turned off.
"""

import os
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from pyroaring import BitMap64
from sqlglot import exp

from lake.errors import NotFoundError, UnavailableError
from lake.log_schema import LogSchema
from lake.settings import QuerySettings
from lake.table_location import TableLocation
from query.executors.engine_turns import EngineTurns
from query.executors.executor import Fetched, Source, of_nothing, with_source
from query.executors.kept_of_files import KeptOfFiles
from query.files.file_index import LiveFile
from query.files.filter_pack import RowGroup
from query.language.text_match import as_duckdb_filters
from query.model.answer_size import ROWS_AT_ONCE, Row, batches_of, rows_within
from query.model.cancellation import Run

_TYPES = {
    "boolean": "BOOLEAN",
    "int": "INTEGER",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "date": "DATE",
    "time": "TIME",
    "timestamp": "TIMESTAMP",
    "timestamptz": "TIMESTAMPTZ",
    "string": "VARCHAR",
    "uuid": "UUID",
    "binary": "BLOB",
}
_DEAD_ROWS = "dead_rows"
# Files of which parts are read each have a scan of their own in the query; so many are worth it.
PARTS_MAX = 32
# A statement over more of them is a scan.
FEW_ROWS = 250_000
# The part of the engine's memory that what it keeps of files may take besides.
KEPT_PART = 4
# What a connection may still set: whether it tells how far it is.
_TOLD = ("enable_progress_bar", "enable_progress_bar_print")
_TELLS = "SET enable_progress_bar = true; SET enable_progress_bar_print = false"

Fetch = Callable[[duckdb.DuckDBPyConnection], list[Row]]


@dataclass(slots=True, eq=False)
class _Database:
    """A DuckDB of some folders, and how many statements it has."""

    connection: duckdb.DuckDBPyConnection
    roots: tuple[str, ...]
    statements: int = 0


class EmbeddedExecutor:
    """In-memory DuckDBs that open what they are told to and nothing else, a connection per query.

    A DuckDB lives until it keeps too much of the files that it has read (`KeptOfFiles`); then the next one
    begins, which knows none. Each has its memory, so there are two at most: whoever takes the rows of the one
    before slowly keeps the other from being replaced.

    `local_paths` gives the files' paths on this machine and fetches them where needed. `roots`: the folders
    where they lie; a query over other files (of tables that were registered elsewhere) gets a DuckDB of its
    own for exactly these.
    """

    name = "duckdb"
    reads_files = True

    def __init__(
        self,
        settings: QuerySettings,
        local_paths: Callable[[Sequence[str], TableLocation], list[str]],
        roots: Callable[[], Sequence[Path]] = tuple,
    ) -> None:
        self._settings = settings
        self._local_paths = local_paths
        self._roots_of = roots
        self._turns = EngineTurns(settings.embedded.threads or len(os.sched_getaffinity(0)))
        self._lock = threading.Lock()
        self._shared: _Database | None = None
        self._before: _Database | None = None  # as long as it has statements
        self._kept = self._nothing_kept()

    def _nothing_kept(self) -> KeptOfFiles:
        return KeptOfFiles(self._settings.embedded.memory_bytes // KEPT_PART)

    def _note(self, source: Source) -> None:
        with self._lock:
            self._kept.note(source.files, len(source.view.schema.columns))

    @contextmanager
    def _connection(self, paths: Sequence[str]) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection that can open these files."""
        with self._database_of_roots() as database:
            if all(path.startswith(database.roots) for path in paths):
                with closing(database.connection.cursor()) as connection:
                    yield connection
                return
        with closing(_locked(self._settings, "allowed_paths", paths)) as alone:
            yield alone

    @contextmanager
    def _database_of_roots(self) -> Iterator[_Database]:
        """The database of the folders, for a statement."""
        with self._lock:
            if self._kept.is_too_much and self._before is None:
                self._replace()
            if self._shared is None:
                roots = tuple(f"{root.absolute()}/" for root in self._roots_of())
                self._shared = _Database(_locked(self._settings, "allowed_directories", roots), roots)
            database = self._shared
            database.statements += 1
        try:
            yield database
        finally:
            with self._lock:
                database.statements -= 1
                if self._before is not None and not self._before.statements:
                    self._before = None

    def _replace(self) -> None:
        """Lets go of the database: the next statement begins another."""
        if self._shared is not None and self._shared.statements:
            self._before = self._shared
        self._shared, self._kept = None, self._nothing_kept()

    def fetch(self, source: Source, select: exp.Select, run: Run, *, bytes_max: int | None = None) -> Fetched:
        if not source.files:
            return Fetched(of_nothing(select), 0)
        at_once = 10_000 if bytes_max is None else ROWS_AT_ONCE
        is_scan = _rows_of(source) > FEW_ROWS
        batches = self._batches(
            source, select, run, lambda cursor: cursor.fetchmany(at_once), is_scan=is_scan
        )
        if bytes_max is None:
            return Fetched([row for batch in batches for row in batch])
        with closing(batches):
            rows, cut = rows_within(bytes_max, batches)
        return Fetched(rows, cut=cut)

    def stream(
        self, source: Source, select: exp.Select, run: Run, *, rows_at_once: int
    ) -> Iterator[list[tuple[Any, ...]]]:
        batches = self._batches(
            source, select, run, lambda cursor: cursor.fetchmany(ROWS_AT_ONCE), is_scan=True
        )
        with closing(batches) as handfuls:
            yield from batches_of(handfuls, rows_at_once)

    def _batches(
        self, source: Source, select: exp.Select, run: Run, fetch: Fetch, *, is_scan: bool
    ) -> Generator[list[Row]]:
        if not source.files:
            return
        run.engine = self.name
        parts = parts_of(source.files, source.groups)
        whole = [file for file in source.files if file.uri not in parts]
        files = [*whole, *(part.file for part in parts.values())]
        paths = self._local_paths([file.uri for file in files], source.view.table_location)
        dead = None if source.dead_rows is None else dead_rows_table(files, source.dead_rows())
        stretches = [part.rows for part in parts.values()]
        sql = sql_over(
            paths, source.view.schema, select, stretches=stretches, without_dead_rows=dead is not None
        )
        try:
            with (
                self._connection(paths) as connection,
                run.stoppable(partial(_interrupt, connection), lambda: connection.query_progress() / 100),
            ):
                connection.execute(_TELLS)
                if dead is not None:
                    connection.register(_DEAD_ROWS, dead)
                # Once the first rows are there all are ordered or counted; whoever takes them may take long.
                with self._turns.one(source.view.id.tenant.namespace, run, is_scan=is_scan):
                    self._note(source)
                    connection.execute(sql)
                    batch = fetch(connection)
                while batch:
                    yield batch
                    run.check()
                    batch = fetch(connection)
        except duckdb.Error as error:
            run.check()
            raise _translated(error) from error


def _rows_of(source: Source) -> int:
    """How many rows are read."""
    return sum(
        file.rows if (groups := source.groups.get(file.uri)) is None else sum(group.rows for group in groups)
        for file in source.files
    )


def _interrupt(connection: duckdb.DuckDBPyConnection) -> None:
    with suppress(duckdb.Error):  # it has just been closed
        connection.interrupt()


def _locked(settings: QuerySettings, allowed: str, places: Sequence[str]) -> duckdb.DuckDBPyConnection:
    """A database that reads files of these places, and whose configuration nobody changes (DuckDB's
    documentation, "Securing DuckDB")."""
    config: dict[str, Any] = {
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "allow_community_extensions": "false",
        "memory_limit": f"{settings.embedded.memory_bytes // 2**20}MiB",
        "preserve_insertion_order": "false",
        "temp_directory": f"{settings.state}/spill",
    }
    if settings.embedded.threads:
        config["threads"] = str(settings.embedded.threads)
    database = duckdb.connect(":memory:", config=config)
    named = f"{allowed} = [{', '.join(_text(table_location) for table_location in places)}]"
    for option in (
        "TimeZone = 'UTC'",
        "parquet_metadata_cache = true",
        # A data file never changes; to ask for the age of each took longer than many a search.
        "validate_external_file_cache = 'NO_VALIDATION'",
        named,
        "enable_external_access = false",
        f"allowed_configs = [{', '.join(map(_text, _TOLD))}]",
        "lock_configuration = true",
    ):
        database.execute(f"SET GLOBAL {option}")
    return database


@dataclass(frozen=True, slots=True)
class Part:
    """A file of which only some stretches of rows are read."""

    file: LiveFile
    rows: tuple[range, ...]


def parts_of(files: Sequence[LiveFile], groups: Mapping[str, Sequence[RowGroup]]) -> dict[str, Part]:
    """Of which files parts are read, by URI: those that spare most rows, while there are few stretches."""
    parts = [Part(file, _joined(groups[file.uri])) for file in files if file.uri in groups]
    parts.sort(key=lambda part: sum(map(len, part.rows)) - part.file.rows)
    chosen, left = dict[str, Part](), PARTS_MAX
    for part in parts:
        if len(part.rows) <= left:
            left -= len(part.rows)
            chosen[part.file.uri] = part
    return chosen


def _joined(groups: Sequence[RowGroup]) -> tuple[range, ...]:
    """Row groups as stretches of rows."""
    stretches = list[range]()
    for group in sorted(groups, key=lambda group: group.first_row):
        if stretches and stretches[-1].stop == group.first_row:
            stretches[-1] = range(stretches[-1].start, group.end)
        else:
            stretches.append(range(group.first_row, group.end))
    return tuple(stretches)


def sql_over(
    paths: Sequence[str],
    schema: LogSchema,
    select: exp.Select,
    *,
    stretches: Sequence[Sequence[range]] = (),
    without_dead_rows: bool = False,
) -> str:
    """The SELECT as DuckDB's SQL over exactly these files. Of the last ones only stretches of their rows are
    read, of each file its own; and not the rows that `dead_rows_table` names, where that is registered."""
    whole = paths[: len(paths) - len(stretches)]
    if not stretches and not without_dead_rows:
        rows = _read_parquet(paths, schema, [c.name for c in schema.columns])
    else:
        scans = [_scan(whole, schema, None, 0, without_dead_rows)] if whole else []
        scans += [
            _scan([path], schema, stretch, len(whole) + at, without_dead_rows)
            for at, (path, of_file) in enumerate(zip(paths[len(whole) :], stretches, strict=True))
            for stretch in of_file
        ]
        rows = f"({' UNION ALL '.join(scans)})"
    as_duckdb_filters(select)
    return with_source(select, exp.Table(this=exp.Var(this=rows))).sql(dialect="duckdb", copy=False)


def dead_rows_table(files: Sequence[LiveFile], dead: Mapping[str, BitMap64]) -> pa.Table | None:
    """Places of deleted rows: the number of a file among `files`, and the row's number in it. None where no
    row of these files is deleted."""
    parts = []
    for at, file in enumerate(files):
        if positions := dead.get(file.uri):
            numbers = pa.Array.from_buffers(
                pa.uint64(), len(positions), [None, pa.py_buffer(positions.to_array())]
            )
            file_at = pa.repeat(pa.scalar(at, pa.uint64()), len(positions))
            parts.append(pa.table({"file": file_at, "position": numbers.cast(pa.int64())}))
    return pa.concat_tables(parts) if parts else None


def _scan(
    paths: Sequence[str], schema: LogSchema, rows: range | None, first: int, without_dead_rows: bool
) -> str:
    """Some files, or a stretch of rows of one, for which DuckDB reads no more than the row groups it touches.
    `first`: the first file's number among all. Columns get other names on the way: DuckDB gives each row
    `file_index` and `file_row_number`, unless a column has the name."""
    names = [f"c{at}" for at in range(len(schema.columns))]
    columns = ", ".join(
        f"living.{name} AS {_name(column.name)}" for name, column in zip(names, schema.columns, strict=True)
    )
    scan = f"FROM {_read_parquet(paths, schema, names)} AS living"
    if without_dead_rows:
        is_dead = f"living.file_index + {first} = dead.file AND living.file_row_number = dead.position"
        scan += f" ANTI JOIN {_DEAD_ROWS} AS dead ON {is_dead}"
    scan += f" SELECT {columns}"
    if rows is None:
        return scan
    return f"{scan} WHERE living.file_row_number BETWEEN {rows.start} AND {rows.stop - 1}"


def _read_parquet(paths: Sequence[str], schema: LogSchema, names: Sequence[str]) -> str:
    """`read_parquet` of files with columns by field id (DuckDB's documentation, "Parquet / Schema
    parameter")."""
    files = ", ".join(_text(path) for path in paths)
    fields = ", ".join(
        f"{c.id}: {{name: {_text(name)}, type: {_text(duckdb_type(c.kind))}, default_value: NULL}}"
        for c, name in zip(schema.columns, names, strict=True)
    )
    return f"READ_PARQUET([{files}], schema = MAP {{{fields}}})"


def _text(text: str) -> str:
    """A literal; there may be thousands of paths, and sqlglot takes its time for each."""
    return "'" + text.replace("'", "''") + "'"


def duckdb_type(kind: Any) -> str:
    """DuckDB's name of an Iceberg type."""
    if isinstance(kind, str):
        return _TYPES.get(kind) or (kind.upper() if kind.startswith("decimal") else "BLOB")
    if kind["type"] == "struct":
        return (
            "STRUCT("
            + ", ".join(f"{_name(field['name'])} {duckdb_type(field['type'])}" for field in kind["fields"])
            + ")"
        )
    if kind["type"] == "list":
        return f"{duckdb_type(kind['element'])}[]"
    return f"MAP({duckdb_type(kind['key'])}, {duckdb_type(kind['value'])})"


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _translated(error: duckdb.Error) -> Exception:
    said = str(error).splitlines()[0][:300]
    if isinstance(error, duckdb.IOException) and ("No files found" in said or "Cannot open file" in said):
        return NotFoundError(f"a data file is gone: {said}")
    if isinstance(error, duckdb.OutOfMemoryException):
        return UnavailableError(
            "the search needs more memory than embedded.memory_bytes allows; narrow it, or ask with "
            "engine=trino"
        )
    return UnavailableError(f"the in-process engine failed: {said}")
