"""The catalog's SQL: its tables, its versioned migrations, and how a thread gets a connection. SQLite and
PostgreSQL alike.

SQLite runs in WAL mode with synchronous=FULL: a commit that was acknowledged survives a power cut. Its
writers take turns anyway, so one lock in this process gives them their order; waiting inside SQLite would be
polling.
"""

import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import orjson
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    TextClause,
    create_engine,
    event,
    inspect,
    text,
)
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError
from sqlalchemy.pool import NullPool

from lake.errors import PrerequisiteError, SettingsError
from lake.private_files import private_file, private_folder

SQLITE_BUSY_TIMEOUT_MS = 30_000
SQLITE_BESIDE = ("-wal", "-shm")
# Per connection, of which every thread has two; what does not fit is mapped, which all of them share.
SQLITE_CACHE_KIB = 4_096
SQLITE_MAPPED_BYTES = 1024 * 1024 * 1024
# A batch over many tables changes some thousand pages; bringing them into the file after each would write
# most of them twice.
SQLITE_WAL_PAGES = 10_000
# A commit into a log's file that is there already takes half the time of one that makes it longer, so the
# file stays while there is much to write; once there is less, no more than this stays of it.
SQLITE_WAL_KEPT_BYTES = 8 * 1024 * 1024
SQLITE_PAGE_BYTES = 4_096
# A checkpoint waits so long for who still reads; longer, and writers would wait with it.
CHECKPOINT_WAIT_MS = 500
# SQLite counts ids itself only for a column that is exactly INTEGER PRIMARY KEY.
_ID = BigInteger().with_variant(Integer, "sqlite")

# Names are ordered by their bytes on both databases, so that paging is the same everywhere.
_NAME = Text().with_variant(Text(collation="C"), "postgresql")

# Partitions of at least so many files, data and delete files together, are those of the index
# `partitions_crowded`; whoever is to read it has to say this word for word.
CROWDED_FILES = 2
CROWDED = f"files + delete_files >= {CROWDED_FILES}"

schema = MetaData()

schema_version = Table("schema_version", schema, Column("version", Integer, primary_key=True))

namespaces = Table(
    "namespaces",
    schema,
    Column("path", _NAME, primary_key=True),  # levels joined by U+001F
    Column("parent", _NAME, nullable=False),  # the path above, empty at the root
    Column("properties", Text, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Index("namespaces_by_parent", "parent", "path"),
)

# Tables and views share one row type because they share their names.
tables = Table(
    "tables",
    schema,
    Column("id", _ID, primary_key=True, autoincrement=True),
    Column("ident", _NAME, nullable=False, unique=True),
    Column("namespace", _NAME, nullable=False),
    Column("name", _NAME, nullable=False),
    Column("kind", Text, nullable=False),  # table | view
    Column("uuid", Text, nullable=False),
    Column("location", Text, nullable=False),
    Column("metadata_location", Text, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("changed_ms", BigInteger, nullable=False),
    Index("tables_by_namespace", "namespace", "kind", "name"),
    Index("tables_by_uuid", "uuid"),
    sqlite_autoincrement=True,
)

dropped_tables = Table(
    "dropped_tables",
    schema,
    Column("id", _ID, primary_key=True, autoincrement=False),
    Column("ident", _NAME, nullable=False),
    Column("namespace", _NAME, nullable=False),
    Column("name", _NAME, nullable=False),
    Column("kind", Text, nullable=False),
    Column("uuid", Text, nullable=False),
    Column("location", Text, nullable=False),
    Column("metadata_location", Text, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("dropped_ms", BigInteger, nullable=False),
    Column("purge_requested", Integer, nullable=False),
    Column("purge_started_ms", BigInteger),
    Index("dropped_tables_by_ident", "ident"),
    Index("dropped_tables_by_uuid", "uuid"),
    Index("dropped_tables_by_time", "dropped_ms", "id"),
)

idempotency = Table(
    "idempotency",
    schema,
    Column("key", Text, primary_key=True),
    Column("item", Integer, primary_key=True),
    Column("fingerprint", LargeBinary, nullable=False),
    Column("status", Integer, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Index("idempotency_by_time", "created_ms"),
)

api_keys = Table(
    "api_keys",
    schema,
    Column("id", Text, primary_key=True),
    Column("hash", LargeBinary, nullable=False),
    Column("scope", Text, nullable=False),
    Column("namespace", _NAME),
    Column("note", Text, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("revoked_ms", BigInteger),
    Column("expires_ms", BigInteger),
    Column("more_namespaces", Text),  # JSON lists, null: no more, and all streams and verbs
    Column("streams", Text),
    Column("verbs", Text),
    Column("last_used_ms", BigInteger),
    Column("rotated_ms", BigInteger),
    Column("former_hash", LargeBinary),  # of the secret before the last rotation
    Column("former_until_ms", BigInteger),
)

access_tokens = Table(
    "access_tokens",
    schema,
    Column("hash", LargeBinary, primary_key=True),
    Column("key_id", Text, nullable=False, index=True),
    Column("expires_ms", BigInteger, nullable=False, index=True),
    Column("secret_until_ms", BigInteger),  # the end of the secret that it was bought with, null: the key's
)

# The token counts up for ever: a holder that comes late shows by a lower one. Times are the database's.
leases = Table(
    "leases",
    schema,
    Column("name", _NAME, primary_key=True),
    Column("token", BigInteger, nullable=False),
    Column("holder", Text, nullable=False),
    Column("expires_ms", BigInteger, nullable=False),
)

parked = Table(
    "parked",
    schema,
    Column("ident", _NAME, primary_key=True),
    Column("uuid", Text),
    Column("version", BigInteger, nullable=False),
    Column("reason", Text, nullable=False),
    Column("record", Text, nullable=False),
    Column("changed_ms", BigInteger, nullable=False),
)

# The dirty-partition index: what lies in each partition of each table's main branch.
partitions = Table(
    "partitions",
    schema,
    Column("table_id", BigInteger, primary_key=True),
    Column("partition", _NAME, primary_key=True),
    Column("files", BigInteger, nullable=False),
    Column("delete_files", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("records", BigInteger, nullable=False),
    Column("changed_ms", BigInteger, nullable=False),
    Index("partitions_by_change", "changed_ms", "table_id", "partition"),
    # What maintenance asks for in every round is few of many millions.
    Index(
        "partitions_crowded",
        "changed_ms",
        "table_id",
        "partition",
        sqlite_where=text(CROWDED),
        postgresql_where=text(CROWDED),
    ),
)

# Tables whose partitions have to be counted again from their manifests, because a snapshot's summary did not
# tell.
uncounted_tables = Table(
    "uncounted_tables",
    schema,
    Column("table_id", BigInteger, primary_key=True),
    Column("since_ms", BigInteger, nullable=False),
    Column("tries", Integer, nullable=False),
)

tasks = Table(
    "tasks",
    schema,
    Column("id", _NAME, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("record", Text, nullable=False),
    Column("changed_ms", BigInteger, nullable=False),
    Index("tasks_by_state", "kind", "state", "id"),
)

deletions = Table(
    "deletions",
    schema,
    Column("id", _ID, primary_key=True, autoincrement=True),
    Column("location", Text, nullable=False, unique=True),
    Column("not_before_ms", BigInteger, nullable=False),
    Column("record", Text, nullable=False),
    Index("deletions_by_time", "not_before_ms", "id"),
    sqlite_autoincrement=True,
)

# What happened to names, until it is written into the warehouse, from where `rebuild` can bring a lost
# database back.
name_events = Table(
    "name_events",
    schema,
    Column("id", _ID, primary_key=True, autoincrement=True),
    Column("event", Text, nullable=False),
    sqlite_autoincrement=True,
)


def _first_version(connection: Connection) -> None:
    schema.create_all(
        connection, tables=[table for table in schema.sorted_tables if table is not schema_version]
    )


def _keys_expire(connection: Connection) -> None:
    """Keys made before this step have no end. The first step makes tables as they are now, so a new database
    has the column."""
    if "expires_ms" not in {column["name"] for column in inspect(connection).get_columns("api_keys")}:
        connection.execute(text("ALTER TABLE api_keys ADD COLUMN expires_ms BIGINT"))


def _keys_are_narrowed(connection: Connection) -> None:
    """Keys made before this step reach what they did, were never used as far as anybody knows, and have one
    secret."""
    for table in (api_keys, access_tokens):
        known = {column["name"] for column in inspect(connection).get_columns(table.name)}
        for column in table.columns:
            if column.name not in known:
                kind = column.type.compile(connection.dialect)
                connection.execute(text(f"ALTER TABLE {table.name} ADD COLUMN {column.name} {kind}"))


def _what_rounds_ask_for(connection: Connection) -> None:
    """Databases made before this step have no index of crowded partitions, and none of dropped tables by
    uuid: each round of maintenance, and each new table, read a table of the database whole. So did a new
    table whose location somebody bound has chosen; locations are compared by their bytes, whatever the
    database's order of text is."""
    for table in (dropped_tables, partitions):
        for index in table.indexes:
            index.create(connection, checkfirst=True)
    for name in ("tables", "dropped_tables"):
        column = by_bytes("location", is_sqlite=connection.dialect.name == "sqlite")
        connection.execute(text(f"CREATE INDEX IF NOT EXISTS {name}_by_location ON {name} ({column})"))


# Each step runs once, in order, inside one transaction with the note that it ran. A released step is never
# edited.
MIGRATIONS: tuple[Callable[[Connection], None], ...] = (
    _first_version,
    _keys_expire,
    _keys_are_narrowed,
    _what_rounds_ask_for,
)


def by_bytes(column: str, *, is_sqlite: bool) -> str:
    """A text column as SQL that compares it by its bytes, for ranges of names."""
    return column if is_sqlite else f'{column} COLLATE "C"'


class Database:
    """Engines for reading and writing, and the differences between SQLite and PostgreSQL in one place."""

    def __init__(self, url: str, *, pool_size: int = 8) -> None:
        try:
            parsed = make_url(url)
        except (ArgumentError, ValueError):
            # Neither the URL nor SQLAlchemy's words about it, which repeat it: it may hold a password.
            raise SettingsError(
                "the database URL is not understood; use sqlite:///path or "
                "postgresql+psycopg://user@host/name"
            ) from None
        if parsed.get_backend_name() not in ("sqlite", "postgresql"):
            raise SettingsError(
                f"database {parsed.get_backend_name()!r} is not supported; use sqlite:///path or "
                "postgresql+psycopg://user@host/name"
            )
        self.is_sqlite = parsed.get_backend_name() == "sqlite"
        self._write_lock = threading.Lock()
        self._local = threading.local()
        self._log_pages = 0  # in SQLite's log at the last checkpoint
        if self.is_sqlite:
            if not parsed.database or parsed.database == ":memory:":
                raise SettingsError("the catalog needs a database on disk; use sqlite:///path/catalog.db")
            _close_to_others(Path(parsed.database))
            self.engine = create_engine(parsed, poolclass=NullPool)
            event.listen(self.engine, "connect", _set_up_sqlite)
            event.listen(self.engine, "begin", _begin_immediate)
        else:
            driver = parsed.set(drivername="postgresql+psycopg")
            self.engine = create_engine(
                driver, pool_size=pool_size, max_overflow=pool_size, pool_pre_ping=True, pool_timeout=10
            )
        self.reader = self.engine.execution_options(isolation_level="AUTOCOMMIT")

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """One SQL transaction that may change something; rolled back when the body raises."""
        if not self.is_sqlite:
            with self.engine.begin() as connection:
                yield connection
            return
        with self._write_lock, self._thread_connection("writer").begin() as transaction:
            yield transaction.connection

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Statements that see what was committed; each sees the newest."""
        if self.is_sqlite:
            yield self._thread_connection("reader")
            return
        with self.reader.connect() as connection:
            yield connection

    def _thread_connection(self, role: str) -> Connection:
        # A SQLite connection costs more to open than any of our statements, and holding it costs nothing: one
        # per thread and role.
        connection: Connection | None = getattr(self._local, role, None)
        if connection is None or connection.closed or connection.invalidated:
            connection = (self.engine if role == "writer" else self.reader).connect()
            setattr(self._local, role, connection)
        return connection

    def among(self, column: str, parameter: str = "keys") -> str:
        """An SQL condition that a text column is one of many; bind the values through `many`."""
        return (
            f"{column} IN (SELECT value FROM json_each(:{parameter}))"
            if self.is_sqlite
            else f"{column} = ANY(:{parameter})"
        )

    def many(self, values: Sequence[Any]) -> Any:
        """The bound value for `among`: one parameter whatever the count."""
        return orjson.dumps(list(values)).decode() if self.is_sqlite else list(values)

    def locking(self) -> str:
        """What keeps rows that were read from changing until the transaction ends; SQLite's writer holds the
        whole database."""
        return "" if self.is_sqlite else " FOR UPDATE"

    def checkpoint(self) -> int:
        """Brings SQLite's log into the database, and empties its file where it is longer than what is written
        between two calls; returns the file's bytes, 0 on PostgreSQL.

        By itself SQLite writes the file from its start again every `SQLITE_WAL_PAGES`, and leaves it as long
        as it was. Beside somebody who reads for long it grows beyond that: what they read stays for the next
        time.
        """
        if not self.is_sqlite:
            return 0
        wal = Path(f"{self.engine.url.database}-wal")
        with self.reader.connect() as connection:
            _, pages, _ = connection.exec_driver_sql(
                "PRAGMA wal_checkpoint(PASSIVE)"
            ).one()  # beside the writers
            written, self._log_pages = (
                0 if pages == self._log_pages else int(pages) * SQLITE_PAGE_BYTES,
                int(pages),
            )
            size = wal.stat().st_size if wal.exists() else 0
            quiet, outgrown = (
                written <= SQLITE_WAL_KEPT_BYTES < size,
                size > 2 * SQLITE_WAL_PAGES * SQLITE_PAGE_BYTES,
            )
            if not quiet and not outgrown:
                return size
            connection.exec_driver_sql(f"PRAGMA busy_timeout={CHECKPOINT_WAIT_MS}")
            with self._write_lock:
                connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").all()
        return wal.stat().st_size if wal.exists() else 0

    def close(self) -> None:
        """Closes what this thread holds and the pool; a SQLite file holds everything then, without its log
        beside it."""
        if self.is_sqlite:
            with self.reader.connect() as connection:
                connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
        for role in ("writer", "reader"):
            held: Connection | None = getattr(self._local, role, None)
            if held is not None:
                held.close()
                setattr(self._local, role, None)
        self.engine.dispose()


def _close_to_others(path: Path) -> None:
    """Makes the file, for its owner alone. What SQLite makes beside it gets the same permissions."""
    try:
        private_folder(path.parent)
        private_file(path)
        for beside in (path.with_name(path.name + more) for more in SQLITE_BESIDE):
            if beside.exists():
                private_file(beside)
    except OSError as error:
        raise PrerequisiteError(
            f"the database {path} cannot be opened ({error.strerror}); choose a folder that belongs to you"
        ) from error


def _set_up_sqlite(connection: Any, _: object) -> None:
    connection.isolation_level = (
        None  # the driver would begin transactions too late; `_begin_immediate` does it
    )
    for pragma in (
        "journal_mode=WAL",
        "synchronous=FULL",
        f"busy_timeout={SQLITE_BUSY_TIMEOUT_MS}",
        "foreign_keys=ON",
        f"cache_size=-{SQLITE_CACHE_KIB}",
        "temp_store=MEMORY",
        f"mmap_size={SQLITE_MAPPED_BYTES}",
        f"wal_autocheckpoint={SQLITE_WAL_PAGES}",
    ):
        connection.execute(f"PRAGMA {pragma}")


def _begin_immediate(connection: Connection) -> None:
    if connection.get_execution_options().get("isolation_level") != "AUTOCOMMIT":
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def migrate(database: Database) -> tuple[int, int]:
    """Brings the schema to this version; returns (version before, version now). Raises PrerequisiteError for
    a newer or unreachable database."""
    try:
        with database.write() as connection:
            if not database.is_sqlite:
                connection.execute(
                    text("SELECT pg_advisory_xact_lock(4207315)")
                )  # several workers start at once
            before = _version(connection)
            if before > len(MIGRATIONS):
                raise PrerequisiteError(
                    f"the database has schema version {before}, this program knows {len(MIGRATIONS)}; start "
                    "the newer program"
                )
            for number, step in enumerate(MIGRATIONS[before:], before + 1):
                step(connection)
                connection.execute(schema_version.insert(), {"version": number})
            return before, len(MIGRATIONS)
    except OperationalError as error:
        raise PrerequisiteError(
            f"the database cannot be reached: {error.orig}; check --database-url and that the server runs"
        ) from error


def _version(connection: Connection) -> int:
    if not inspect(connection).has_table("schema_version"):
        schema_version.create(connection)
        return 0
    return int(connection.execute(text("SELECT COALESCE(MAX(version), 0) FROM schema_version")).scalar_one())


def database_ms(connection: Connection) -> int:
    """Milliseconds since the epoch by the database's clock, the only one that all processes share."""
    statement = (
        "SELECT CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"
        if connection.dialect.name == "sqlite"
        else "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)"
    )
    return int(connection.execute(text(statement)).scalar_one())


def look_up(connection: Connection, statement: TextClause, values: dict[str, Any]) -> tuple[Any, ...] | None:
    """The first row that a statement finds. SQLite's driver is asked directly: through SQLAlchemy it takes
    six times as long."""
    if connection.dialect.name != "sqlite":
        row = connection.execute(statement, values).first()
        return None if row is None else tuple(row)
    driver = cast("sqlite3.Connection", connection.connection.driver_connection)
    try:
        return cast("tuple[Any, ...] | None", driver.execute(statement.text, values).fetchone())
    except sqlite3.Error as error:
        raise DBAPIError.instance(statement.text, values, error, sqlite3.Error) from error


def is_passing(error: DBAPIError) -> bool:
    """Whether the same transaction may well succeed when it is run again: a deadlock, a serialization
    failure, a busy file, a unique key that another transaction took meanwhile."""
    state = getattr(error.orig, "sqlstate", None)
    return (
        state in ("40001", "40P01", "55P03", "23505")
        or "locked" in str(error.orig)
        or "UNIQUE constraint" in str(error.orig)
    )
