"""The state file, and telling our processes from others'."""

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from infra.local import jvm_parts, processes
from infra.local import state as state_file
from infra.local.state import ServiceRecord, StackState
from infra.local.supervisor import Stack
from lake.errors import NotFoundError, SettingsError

SLEEPER = (sys.executable, "-c", "import sys; print('up', flush=True); sys.stdin.read()")


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """A living process that no stack started."""
    process = subprocess.Popen(SLEEPER, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.kill()
    process.communicate()


def launched(folder: Path, name: str, code: str) -> tuple[ServiceRecord, subprocess.Popen[bytes]]:
    """A process started as the supervisor starts one, and the record of it before its pid is noted."""
    record = ServiceRecord(name).planned(ports={}, environment={}, log_start=0)
    process = processes.spawn(
        (sys.executable, "-c", code), launch=record.launch, environment={}, folder=folder, log=folder / "log"
    )
    return record, process


FOREVER = "import threading; threading.Event().wait()"


def test_state_survives_writing_and_reading(tmp_path: Path) -> None:
    """What is written to the state file is read back the same, and only the owner may read it."""
    record = ServiceRecord(
        "kafka", "kafka-1-ab", 12, 1.5, {"port": 9}, "127.0.0.1:9", 7, {"FIRN_X": "y"}, {"A": "b"}
    )
    state = StackState(warehouse="file:///w", database="sqlite").with_record(record)
    state_file.save(tmp_path, state)
    assert state_file.load(tmp_path) == state
    assert stat.S_IMODE((tmp_path / state_file.FILE).stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [state_file.FILE]


def test_variables_of_a_stack_from_before_are_read_under_their_names_of_today(tmp_path: Path) -> None:
    """So the stack keeps its keys, and no process is given a name that it refuses."""
    exports = {"FIRN_INGEST_TOPIC_KEYS": '["k"]', "FIRN_STORAGE_S3_ENDPOINT": "http://127.0.0.1:9"}
    record = ServiceRecord("kafka", exports=exports, environment={"FIRN_INGEST_SERVE_TOKEN_FILE": "t"})
    state_file.save(tmp_path, StackState().with_record(record))
    found = state_file.load(tmp_path).record("kafka")
    assert found.exports == {
        "FIRN_INGEST_INTERNAL_TOPICS__SIGNING_KEYS": '["k"]',
        "FIRN_STORAGE_S3__ENDPOINT": "http://127.0.0.1:9",
    }
    assert found.environment == {"FIRN_INGEST_HTTP__TOKEN_FILE": "t"}


def test_folder_without_a_state_file_is_an_empty_stack(tmp_path: Path) -> None:
    """A stack that was never started knows no service."""
    assert state_file.load(tmp_path) == StackState()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"version": 1}',
        '{"version": 1, "services": {"kafka": {"unknown": 1}}}',
        '{"version": 99, "services": {}}',
    ],
)
def test_damaged_state_file_is_one_clear_error(tmp_path: Path, text: str) -> None:
    """A state file that cannot be understood is an error that names the file and what to do, not a
    traceback."""
    (tmp_path / state_file.FILE).write_text(text)
    with pytest.raises(SettingsError, match=r"stack\.json .* delete the file"):
        state_file.load(tmp_path)


def test_dead_pid_is_not_running(stranger: subprocess.Popen[bytes]) -> None:
    """A record whose process has ended has no leader and no members."""
    record = ServiceRecord("kafka", "kafka-1-x", stranger.pid, processes.created_at(stranger.pid))
    assert processes.leader(record) is not None
    stranger.kill()
    stranger.wait()
    assert processes.leader(record) is None
    assert processes.members(record) == []


def test_reused_pid_is_never_touched(tmp_path: Path, stranger: subprocess.Popen[bytes]) -> None:
    """A living process that has the recorded pid but another start time is somebody else's: not running, and
    `stop` leaves it alone."""
    record = ServiceRecord(
        "kafka", "kafka-1-x", stranger.pid, processes.created_at(stranger.pid) - 3600, address="127.0.0.1:1"
    )
    state_file.save(tmp_path, StackState().with_record(record))
    stack = Stack(tmp_path)
    assert not stack.running("kafka")
    assert stack.died() == ["kafka"]
    stack.stop()
    assert stranger.poll() is None
    assert stack.died() == []


def test_process_whose_pid_was_never_noted_is_found_and_ended(tmp_path: Path) -> None:
    """A supervisor that dies between starting a process and noting its pid leaves no unknown process: the
    launch finds it."""
    record, process = launched(tmp_path, "kafka", FOREVER)
    state_file.save(tmp_path, StackState().with_record(record))
    assert record.pid == 0
    Stack(tmp_path).stop()
    assert process.poll() is not None


def test_children_of_a_killed_leader_are_ended(tmp_path: Path) -> None:
    """Children that outlive their killed parent are still known as ours, and are ended with it."""
    code = (
        f"import subprocess, sys; c = subprocess.Popen([sys.executable, '-c', {FOREVER!r}]); print(c.pid, "
        "flush=True); c.wait()"
    )
    record, process = launched(tmp_path, "kafka", code)
    record = replace(record, pid=process.pid, created=processes.created_at(process.pid))
    while not (tmp_path / "log").read_text().endswith("\n"):
        assert process.poll() is None
    child = psutil.Process(int((tmp_path / "log").read_text()))
    process.kill()
    process.wait()
    assert [member.pid for member in processes.members(record)] == [child.pid]
    state_file.save(tmp_path, StackState().with_record(record))
    Stack(tmp_path).stop()
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_process_that_ignores_sigterm_is_killed_after_its_grace(tmp_path: Path) -> None:
    """A process that does not end politely gets SIGKILL once its grace is over."""
    code = (
        f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); {FOREVER}"
    )
    record, process = launched(tmp_path, "kafka", code)
    record = replace(record, pid=process.pid, created=processes.created_at(process.pid))
    while "deaf" not in (tmp_path / "log").read_text():
        assert process.poll() is None
    assert processes.end(record, grace_s=0.2) == 1
    assert processes.members(record) == []


def test_own_process_is_never_a_member(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever ends a launch does not end itself."""
    record = ServiceRecord("watchdog", "watchdog-1-x", os.getpid(), processes.created_at(os.getpid()))
    assert os.getpid() not in [process.pid for process in processes.members(record)]


def test_unknown_service_is_named_with_the_known_ones(tmp_path: Path) -> None:
    """A misspelt service is an error that lists the services there are."""
    with pytest.raises(SettingsError, match=r"kafca.*postgres, s3, kafka, catalog, trino, ingest"):
        Stack(tmp_path).start("kafca")


def test_service_that_was_never_started_has_no_address(tmp_path: Path) -> None:
    """Asking for the address or pid of a service that was not started says how to start it."""
    with pytest.raises(NotFoundError, match="python -m infra up kafka"):
        Stack(tmp_path).address("kafka")
    with pytest.raises(NotFoundError, match="python -m infra up kafka"):
        Stack(tmp_path).pid("kafka")


def test_what_another_has_started_is_not_ended(tmp_path: Path) -> None:
    """A service that was lent has its process in the state, and no launch of this stack's."""
    stack = Stack(tmp_path)
    beside = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    try:
        created = psutil.Process(beside.pid).create_time()
        lent = replace(stack.read().record("kafka"), pid=beside.pid, created=created)
        state_file.save(tmp_path, stack.read().with_record(lent))
        assert stack.running("kafka")
        with pytest.raises(NotFoundError, match="kafka was not started by this stack"):
            stack.kill("kafka")
        stack.stop()
        assert beside.poll() is None
    finally:
        beside.kill()
        beside.communicate()


def test_stopping_a_stack_that_never_ran_does_nothing(tmp_path: Path) -> None:
    """`stop` of a folder that does not exist neither fails nor creates it."""
    Stack(tmp_path / "absent").stop()
    assert not (tmp_path / "absent").exists()


def test_warehouse_of_a_stack_cannot_change(tmp_path: Path) -> None:
    """A stack keeps the warehouse its catalog first started with; another one is refused before anything
    starts."""
    state_file.save(
        tmp_path,
        StackState(warehouse="file:///first").with_record(
            ServiceRecord("catalog", address="http://127.0.0.1:5")
        ),
    )
    with pytest.raises(SettingsError, match="file:///first"):
        Stack(tmp_path, warehouse="/second").start("kafka")


def test_warehouse_in_another_bucket_is_refused(tmp_path: Path) -> None:
    """The local S3 has one bucket, and a warehouse elsewhere is refused with its name."""
    with pytest.raises(SettingsError, match="firn-warehouse"):
        Stack(tmp_path, warehouse="s3://other/prefix")


def test_environment_joins_what_the_services_export(tmp_path: Path) -> None:
    """The environment of a stack has what each service exports, and where the stack is."""
    state = StackState(catalog_uri="http://127.0.0.1:5").with_record(
        ServiceRecord("kafka", exports={"FIRN_INGEST_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:9"})
    )
    state_file.save(tmp_path, state)
    variables = Stack(tmp_path).environment()
    assert variables["FIRN_INGEST_KAFKA__BOOTSTRAP_SERVERS"] == "127.0.0.1:9"
    assert variables["FIRN_INGEST_CATALOG__URI"] == "http://127.0.0.1:5"
    assert variables["FIRN_INFRA_STATE"] == str(tmp_path)


def test_a_watchdog_waits_without_what_it_does_not_need() -> None:
    """One runs beside every stack that is tied to a process: it knows neither settings nor HTTP yet."""
    program = (
        "import sys, infra.local.watchdog\nprint([each for each in sys.argv[1:] if each in sys.modules])"
    )
    command = (sys.executable, "-c", program, "lake.settings", "pydantic", "httpx", "infra.local.supervisor")
    told = subprocess.run(command, cwd=jvm_parts.REPOSITORY, capture_output=True, text=True, check=True)
    assert told.stdout == "[]\n"
