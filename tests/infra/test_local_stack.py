"""The supervisor with real services: they start, answer, survive restarts, and nothing of them stays
behind."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import obstore
import psutil
import psycopg
import pytest
import trino
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from obstore.store import S3Store

from infra.local import java
from infra.local.ports import LOOPBACK
from infra.local.processes import LAUNCH_VARIABLE, wait_ended
from infra.local.service import host_port
from infra.local.services import SERVICES
from infra.local.supervisor import Stack
from tests.stack.support.forked import run_room

pytestmark = pytest.mark.stack

REPOSITORY = Path(__file__).parents[2]
ANSWER_S = 30.0


@contextmanager
def infra(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """`python -m infra ...` as a child process, its output in one pipe; killed at the end if it still
    runs."""
    command = (sys.executable, "-m", "infra", *arguments)
    process = subprocess.Popen(
        command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def run_infra(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_room("infra", *arguments, environment=os.environ, timeout_s=120)


def read_until(process: subprocess.Popen[str], wanted: str) -> str:
    """Reads the process's output up to the first line that holds a text; fails where it ends before."""
    assert process.stdout is not None
    seen = ""
    for line in process.stdout:
        seen += line
        if wanted in line:
            return seen
    raise AssertionError(f"{wanted!r} never came: {seen}")


def of_stack(folder: Path) -> list[psutil.Process]:
    """Every living process that was started for a stack: those whose environment names a launch and whose
    words name its folder."""
    found = []
    for process in psutil.process_iter():
        try:
            ours = LAUNCH_VARIABLE in process.environ() and process.status() != psutil.STATUS_ZOMBIE
            if ours and (
                str(folder) in " ".join(process.cmdline())
                or process.environ().get("FIRN_INFRA_STATE") == str(folder)
            ):
                found.append(process)
        except psutil.Error:
            continue
    return found


def all_gone(processes: Sequence[psutil.Process]) -> bool:
    return not wait_ended(processes, timeout_s=ANSWER_S)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A state folder whose stack is stopped at the end, also when the test fails."""
    yield tmp_path
    Stack(tmp_path).stop()


@pytest.fixture(scope="module")
def own_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Kafka, PostgreSQL and S3, started together once for this module, whose tests kill them. Trino, which
    none of them kills, is that of the shared stack."""
    with Stack(tmp_path_factory.mktemp("stack"), warehouse="s3://firn-warehouse/tables", tied=True) as stack:
        stack.start("kafka", "postgres", "s3")
        yield stack


def test_each_service_answers_at_its_address(own_stack: Stack, stack: Stack) -> None:
    """After `start` returns, every service answers at the address its stack tells."""
    for of, names in ((own_stack, ("kafka", "postgres", "s3")), (stack, ("kafka", "catalog", "trino"))):
        for name in names:
            assert of.running(name)
            assert SERVICES[name].probe(of.address(name)) is None
            assert host_port(of.address(name))[0] == LOOPBACK
        of.check()


def test_trino_runs_queries_and_knows_the_catalog_lake(stack: Stack) -> None:
    """Trino computes right after the start, and has the catalog `lake`."""
    host, port = host_port(stack.address("trino"))
    connection: Any = trino.dbapi.Connection(host=host, port=port, user="test")
    cursor = connection.cursor()
    cursor.execute("SELECT sum(n) FROM UNNEST(sequence(1, 10)) AS t(n)")
    assert cursor.fetchall() == [[55]]
    cursor.execute("SHOW CATALOGS")
    assert ["lake"] in cursor.fetchall()


def test_bucket_of_the_warehouse_takes_files_with_the_exported_keys(own_stack: Stack) -> None:
    """The exported S3 settings open the bucket of the warehouse for writing and reading."""
    variables = own_stack.environment()
    store = S3Store(
        "firn-warehouse",
        endpoint=variables["FIRN_STORAGE_S3__ENDPOINT"],
        region=variables["FIRN_STORAGE_S3__REGION"],
        access_key_id=variables["FIRN_STORAGE_S3__ACCESS_KEY_ID"],
        secret_access_key=variables["FIRN_STORAGE_S3__SECRET_ACCESS_KEY"],
        client_options={"allow_http": True},
    )
    obstore.put(store, "tables/one", b"bytes")
    assert bytes(obstore.get(store, "tables/one").bytes()) == b"bytes"


def test_services_listen_on_loopback_only(own_stack: Stack, stack: Stack, services: Stack) -> None:
    """No service of a stack can be reached from another machine."""
    listening = [
        connection.laddr.ip
        for folder in (own_stack.folder, stack.folder, services.folder)
        for process in of_stack(folder)
        for connection in process.net_connections(kind="inet")
        if connection.status == psutil.CONN_LISTEN and connection.laddr
    ]
    assert len(listening) >= 7
    assert set(listening) <= {LOOPBACK, f"::ffff:{LOOPBACK}"}


def test_killed_kafka_comes_back_at_its_address_with_its_messages(own_stack: Stack) -> None:
    """After SIGKILL and a new start Kafka has its old address and every acknowledged message, a large one
    too."""
    address = own_stack.address("kafka")
    topic = NewTopic("kept", 1, 1, config={"max.message.bytes": str(20 * 2**20)})
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([topic])["kept"].result(ANSWER_S)
    producer = Producer({"bootstrap.servers": address, "acks": "all", "message.max.bytes": 20 * 2**20})
    for body in (b"small", b"x" * 15 * 2**20):
        producer.produce("kept", body)
    assert producer.flush(ANSWER_S) == 0
    pid = own_stack.pid("kafka")
    own_stack.kill("kafka")
    assert not own_stack.running("kafka")
    own_stack.start("kafka")
    assert own_stack.address("kafka") == address
    assert own_stack.pid("kafka") != pid
    consumer = Consumer({"bootstrap.servers": address, "group.id": "test", "auto.offset.reset": "earliest"})
    consumer.subscribe(["kept"])
    sizes = [len(message.value() or b"") for message in consumer.consume(2, timeout=ANSWER_S)]
    consumer.close()
    assert sizes == [5, 15 * 2**20]


def test_postgres_keeps_rows_over_a_crash_and_syncs_its_writes(own_stack: Stack) -> None:
    """PostgreSQL is durable: fsync is on, and a committed row is there after SIGKILL and a new start."""
    url = own_stack.address("postgres").replace("+psycopg", "")
    with psycopg.connect(url) as connection:
        assert connection.execute("SHOW fsync").fetchone() == ("on",)
        connection.execute("CREATE TABLE kept AS SELECT 42 AS n")
    own_stack.kill("postgres")
    own_stack.start("postgres")
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT n FROM kept").fetchone() == (42,)


def test_starting_what_runs_changes_nothing(own_stack: Stack) -> None:
    """A second start of a running service leaves its process alone."""
    pid = own_stack.pid("s3")
    own_stack.start("s3")
    assert own_stack.pid("s3") == pid


@pytest.mark.prove
def test_two_stacks_run_side_by_side(own_stack: Stack, tmp_path: Path) -> None:
    """A second stack takes other ports, and stopping it leaves the first one alone."""
    with Stack(tmp_path, tied=True) as second:
        second.start("s3")
        assert second.address("s3") != own_stack.address("s3")
        process = psutil.Process(second.pid("s3"))
        second.stop()
        assert all_gone([process])
    assert own_stack.running("s3")


def test_stack_runs_on_after_up_and_down_stops_it(folder: Path) -> None:
    """`up` leaves services running, `status` shows them ready, `logs` shows their lines, `down` stops every
    process."""
    up = run_infra("up", "s3", "--state", str(folder))
    assert up.returncode == 0, up.stderr
    started = of_stack(folder)
    assert started
    status = run_infra("status", "--state", str(folder))
    assert status.returncode == 0
    assert re.search(r"s3 .*ready.*http://127\.0\.0\.1:\d+.*MB", status.stdout)
    assert "Started" in run_infra("logs", "s3", "-n", "200", "--state", str(folder)).stdout
    assert run_infra("down", "--state", str(folder)).returncode == 0
    assert all_gone(started)
    assert of_stack(folder) == []


SUPERVISOR = """
import sys, threading
from pathlib import Path
from infra.local.supervisor import Stack
Stack(Path(sys.argv[1])).start("postgres", "s3")
print("all up", file=sys.stderr, flush=True)
threading.Event().wait()
"""


@contextmanager
def supervisor(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A program of its own that starts PostgreSQL and S3 through the API and stays."""
    command = (sys.executable, "-c", SUPERVISOR, str(folder))
    process = subprocess.Popen(
        command, cwd=REPOSITORY, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    process.stdout, process.stderr = process.stderr, None
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    "moment",
    [
        pytest.param("postgres starts", marks=pytest.mark.prove),
        pytest.param("s3 starts", marks=pytest.mark.prove),
        "all up",
    ],
)
def test_down_after_a_killed_supervisor_stops_exactly_what_it_started(folder: Path, moment: str) -> None:
    """Whenever the supervisor is killed, a later `down` ends all it started, and no process of anybody
    else."""
    with (
        subprocess.Popen(
            (sys.executable, "-c", "import sys; sys.stdin.read()"), stdin=subprocess.PIPE
        ) as stranger,
        supervisor(folder) as process,
    ):
        read_until(process, moment)
        process.kill()
        process.wait(timeout=ANSWER_S)
        left = of_stack(folder)
        assert left, "the services outlive the supervisor"
        down = run_infra("down", "--state", str(folder))
        assert down.returncode == 0, down.stderr
        assert all_gone(left)
        assert of_stack(folder) == []
        assert stranger.poll() is None
        stranger.kill()


@pytest.mark.prove
def test_killed_foreground_command_leaves_nothing_behind(folder: Path) -> None:
    """The watchdog of `up --foreground` stops the services even when the command is killed by SIGKILL."""
    with infra("up", "s3", "--foreground", "--state", str(folder)) as process:
        read_until(process, "Ctrl-C stops everything")
        started = of_stack(folder)
        assert len(started) == 2
        process.kill()
        assert all_gone(started)


@pytest.mark.parametrize(
    ("moment", "wanted"), [("s3 starts", signal.SIGTERM), ("Ctrl-C stops everything", signal.SIGINT)]
)
def test_interrupted_foreground_command_stops_what_it_started(
    folder: Path, wanted: signal.Signals, moment: str
) -> None:
    """Ctrl-C and SIGTERM stop every service, during the start and after it, with the exit code usual for the
    signal."""
    with infra("up", "s3", "--foreground", "--state", str(folder)) as process:
        read_until(process, moment)
        started = of_stack(folder)
        process.send_signal(wanted)
        rest, _ = process.communicate(timeout=ANSWER_S)
        assert process.returncode == 128 + wanted, rest
        assert "Traceback" not in rest
        assert all_gone(started)
        assert of_stack(folder) == []


def test_death_of_a_service_ends_the_foreground_command_with_its_log(folder: Path) -> None:
    """When a service dies, `up --foreground` says so with the end of its log, stops the rest and exits with
    2."""
    with infra("up", "s3", "--foreground", "--state", str(folder)) as process:
        read_until(process, "Ctrl-C stops everything")
        os.kill(Stack(folder).pid("s3"), signal.SIGKILL)
        rest, _ = process.communicate(timeout=ANSWER_S)
    assert process.returncode == 2
    assert "s3 died." in rest
    assert "  | " in rest
    assert of_stack(folder) == []


def test_occupied_port_is_one_message_and_nothing_stays(folder: Path) -> None:
    """A port asked for that is taken ends `up` with one message naming port and owner, and stops what was
    started before."""
    with socket.socket() as server:
        server.bind((LOOPBACK, 0))
        server.listen()
        port = server.getsockname()[1]
        up = run_infra("up", "postgres", "s3", "--port", f"s3={port}", "--state", str(folder))
    assert up.returncode == 2
    assert f"port {port}" in up.stderr
    assert f"(pid {os.getpid()})" in up.stderr
    assert "Traceback" not in up.stderr
    assert of_stack(folder) == []


def test_service_that_fails_to_start_shows_its_log(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that dies while starting is one message with the last lines of its log and what to do."""
    real = java.find(java.CLASSIC)
    assert real
    program = folder / "java-home/bin/java"
    program.parent.mkdir(parents=True)
    program.write_text(
        f'#!/bin/sh\n[ "$1" = -version ] && exec {real.java} -version\necho \'the words of the '
        "service'\nexit 3\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(folder / "java-home"))
    up = run_infra("up", "s3", "--state", str(folder))
    assert up.returncode == 2
    assert "s3 stopped with exit code 3 while starting" in up.stderr
    assert "  | the words of the service" in up.stderr
    assert of_stack(folder) == []


@pytest.mark.prove
def test_damaged_data_folder_fails_with_the_services_own_words(folder: Path) -> None:
    """PostgreSQL over a folder it cannot use ends in one message that carries PostgreSQL's own complaint."""
    with Stack(folder, tied=True) as stack:
        stack.start("postgres")
        stack.stop("postgres")
        (folder / "postgres/data/PG_VERSION").write_text("9\n")
        up = run_infra("up", "postgres", "--state", str(folder))
    assert up.returncode == 2
    assert "incompatible" in up.stderr
