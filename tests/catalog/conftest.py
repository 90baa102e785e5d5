"""A live catalog on SQLite and on PostgreSQL, each test with a warehouse of its own."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from catalog.store.database import Database, schema
from infra.local import java, jvm_parts
from lake.spark_session import SparkOptions, open_session
from tests.catalog.support.engines import SPARK_EXTENSIONS
from tests.catalog.support.table_requests import NOWHERE
from tests.stack.support.forked import RoomProcess, run_room, start_room

REPOSITORY = Path(__file__).resolve().parents[2]
# Tests kill the catalog, never this server or its machine, so nothing has to reach the disk at once.
UNSYNCED = (
    *("-c", "max_connections=200"),
    *("-c", "fsync=off"),
    *("-c", "synchronous_commit=off"),
    *("-c", "full_page_writes=off"),
)
START_TIMEOUT_S = 60.0
VERB_S = 120.0
# Most tests of the protocol commit snapshots whose files nobody reads: an administrator may name them there.
ALLOWED = {"FIRN_CATALOG_ALLOWED_LOCATIONS": f'["{NOWHERE}"]'}


def wait_until(condition: Callable[[], Any], what: str, timeout_s: float = START_TIMEOUT_S) -> Any:
    """Polls until a condition holds; fails with a sentence when it does not in time."""
    deadline = time.monotonic() + timeout_s
    pause = threading.Event()
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        pause.wait(0.02)
    raise AssertionError(f"{what} did not happen within {timeout_s} s")


@dataclass
class Server:
    """One `python -m catalog serve` process; `restart` keeps database and warehouse."""

    folder: Path
    database_url: str
    arguments: list[str] = field(default_factory=lambda: ["--anonymous"])
    environment: dict[str, str] = field(default_factory=dict)
    elsewhere: str | None = None
    process: RoomProcess | None = None
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def warehouse(self) -> str:
        return self.elsewhere or f"file://{self.folder}/warehouse"

    def run(self, *arguments: str, warehouse: bool = False) -> subprocess.CompletedProcess[str]:
        """A verb of the catalog over this database, and over the warehouse where asked for."""
        over = ["--database-url", self.database_url]
        over += ["--warehouse", self.warehouse] if warehouse else []
        return run_room("catalog", *arguments, *over, environment=os.environ, timeout_s=VERB_S)

    def start(self) -> "Server":
        port_file = self.folder / "port"
        port_file.unlink(missing_ok=True)
        flags = ["--database-url", self.database_url, "--port", "0", "--port-file", str(port_file)]
        flags += [] if "--control" in self.arguments else ["--warehouse", self.warehouse]
        variables = {**os.environ, **ALLOWED, **self.environment}
        arguments = ("serve", *flags, *self.arguments)
        log = self.folder / "server.log"
        process = self.process = start_room("catalog", *arguments, environment=variables, log=log)

        def listening() -> bool:
            assert process.poll() is None, (
                f"the catalog ended with {process.returncode}:\n{self.log()[-3000:]}"
            )
            return port_file.exists()

        wait_until(listening, "the catalog's start")
        self.port = int(port_file.read_text())
        return self

    def log(self) -> str:
        return (self.folder / "server.log").read_text(errors="replace")

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def client(self, **options: Any) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=60, **options)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def postgres_binary(name: str) -> str:
    """A PostgreSQL 15 or later server program, from PATH or where Debian puts it."""
    found = shutil.which(name)
    places = [
        *sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True),
        *([Path(found)] if found else []),
    ]
    assert places, f"{name} is missing: apt-get install postgresql"
    return str(places[0])


@dataclass(frozen=True)
class Postgres:
    """A PostgreSQL server of this test run."""

    port: int

    def new_database(self, name: str, *, copy_of: str = "template0") -> str:
        """The URL of a database that is empty, or as another one is now, to which nobody may be connected."""
        with psycopg.connect(
            host="127.0.0.1", port=self.port, user="postgres", dbname="postgres", autocommit=True
        ) as connection:
            connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{copy_of}"'.encode())
        return f"postgresql+psycopg://postgres@127.0.0.1:{self.port}/{name}"


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """PostgreSQL on a free port; started as user `postgres` when the tests run as root, which the server
    refuses."""
    folder = Path(tempfile.mkdtemp(prefix="firn-pg-"))
    user: dict[str, Any] = {}
    if os.geteuid() == 0:
        account = pwd.getpwnam("postgres")
        os.chown(folder, account.pw_uid, account.pw_gid)
        user = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
    data, port = folder / "data", free_port()
    arguments = [
        postgres_binary("initdb"),
        "-D",
        str(data),
        "-U",
        "postgres",
        "-A",
        "trust",
        "-E",
        "UTF8",
        "--locale=C.UTF-8",
        "-N",
    ]
    subprocess.run(arguments, check=True, capture_output=True, cwd=folder, **user)
    options = ["-k", str(folder), "-h", "127.0.0.1", "-p", str(port), *UNSYNCED]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [postgres_binary("postgres"), "-D", str(data), *options],
            stdout=log,
            stderr=log,
            cwd=folder,
            **user,
        )
    try:

        def ready() -> bool:
            assert process.poll() is None, (folder / "log").read_text()[-3000:]
            try:
                psycopg.connect(
                    host="127.0.0.1", port=port, user="postgres", dbname="postgres", connect_timeout=2
                ).close()
            except psycopg.OperationalError:
                return False
            return True

        wait_until(ready, "the start of PostgreSQL")
        yield Postgres(port)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A SparkSession of this process with Iceberg's extensions; each test tells it of its catalog."""
    jdk = java.find(java.CLASSIC)
    assert jdk is not None, "Spark needs Java 17 or 21"
    options = SparkOptions(
        "firn-tests",
        jars=jvm_parts.folder("spark"),
        java_home=jdk.java.parents[1],
        packages=(),
        more=SPARK_EXTENSIONS,
    )
    session = open_session(options)
    yield session
    session.stop()


# Of tests that show something else than what differs between databases; `make prove` has the other one.
ON_SQLITE = pytest.mark.parametrize(
    "database_kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.prove)]
)


@pytest.fixture(params=["sqlite", "postgres"])
def database_kind(request: pytest.FixtureRequest) -> str:
    """Whatever a database may have its own way with runs on both."""
    kind: str = request.param
    return kind


def new_database_url(kind: str, folder: Path, request: pytest.FixtureRequest) -> str:
    """An empty database of a kind."""
    if kind == "sqlite":
        return f"sqlite:///{folder}/catalog.db"
    server: Postgres = request.getfixturevalue("postgres")
    return server.new_database(f"t{os.urandom(6).hex()}")


def dump(server: Server, request: pytest.FixtureRequest) -> str:
    """The URL of a database that stays as this one of a stopped server is now."""
    if server.database_url.startswith("sqlite"):
        copy = server.folder / f"dump-{os.urandom(4).hex()}.db"
        shutil.copy(server.database_url.removeprefix("sqlite:///"), copy)
        return f"sqlite:///{copy}"
    running: Postgres = request.getfixturevalue("postgres")
    return running.new_database(f"dump{os.urandom(6).hex()}", copy_of=server.database_url.rsplit("/", 1)[1])


@pytest.fixture
def database_url(database_kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """An empty database of each kind."""
    return new_database_url(database_kind, tmp_path, request)


@pytest.fixture
def own_server(database_url: str, tmp_path: Path) -> Iterator[Server]:
    """A live catalog of this test alone, which may stop or kill it."""
    running = Server(tmp_path, database_url)
    try:
        yield running.start()
    finally:
        running.stop()


@pytest.fixture(scope="session")
def shared_servers() -> Iterator[dict[str, Server]]:
    """One live catalog per kind of database for all tests that leave it running."""
    running: dict[str, Server] = {}
    yield running
    for server in running.values():
        server.stop()
        shutil.rmtree(server.folder, ignore_errors=True)


@pytest.fixture
def server(database_kind: str, shared_servers: dict[str, Server], request: pytest.FixtureRequest) -> Server:
    """A live catalog that is empty and lets everybody in."""
    if database_kind not in shared_servers:
        folder = Path(tempfile.mkdtemp(prefix="firn-catalog-"))
        shared_servers[database_kind] = Server(
            folder, new_database_url(database_kind, folder, request)
        ).start()
    running = shared_servers[database_kind]
    empty_database(running)
    return running


def empty_database(server: Server) -> None:
    """Takes everything out of a live catalog's database, which it may lose at any time: it keeps only files
    in memory."""
    database = Database(server.database_url)
    with database.write() as connection:
        for table in reversed(schema.sorted_tables):
            if table.name != "schema_version":
                connection.execute(table.delete())
    database.close()


@pytest.fixture
def client(server: Server) -> Iterator[httpx.Client]:
    """An HTTP client of the live catalog."""
    with server.client() as client:
        yield client
