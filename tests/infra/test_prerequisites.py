"""Java runtimes, missing programs, ports and log tails: what the supervisor tells before it starts
anything."""

import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.local import java, jvm_parts, log_tail, ports
from infra.local.java import CLASSIC, MODERN, Jdk
from infra.local.prerequisites import Missing, missing_java, require
from lake.errors import PrerequisiteError, UnavailableError

WRITE_JAR = 'for a in "$@"; do case $a in -DoutputDirectory=*) touch "${a#*=}/part.jar";; esac; done; '


def jdk(major: int) -> Jdk:
    return Jdk(Path(f"/opt/java-{major}/bin/java"), major, "test")


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ('openjdk version "24-ea" 2025-03-18', 24),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "21.0.2" 2024-01-16', 21),
        ("command not found", None),
    ],
)
def test_major_version_is_read_from_what_java_prints(text: str, major: int | None) -> None:
    """The major version is found in every spelling Java has used, and absent where there is none."""
    assert java.parse_major(text) == major


def test_first_suitable_java_is_chosen() -> None:
    """Kafka gets the first runtime of version 17 or 21, Trino the first of 24 or newer, whatever stands
    before it."""
    candidates = [jdk(11), jdk(25), jdk(21), jdk(17), jdk(24)]
    assert java.choose(candidates, CLASSIC) == jdk(21)
    assert java.choose(candidates, MODERN) == jdk(25)


def test_no_java_is_chosen_where_none_suits() -> None:
    """A runtime that is too old or too new is not taken."""
    assert java.choose([jdk(8), jdk(11), jdk(22), jdk(25)], CLASSIC) is None
    assert java.choose([jdk(17), jdk(21), jdk(23)], MODERN) is None


@pytest.fixture
def only_this_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A JAVA_HOME whose `java` says it is version 11."""
    program = tmp_path / "bin/java"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    java.installed.cache_clear()
    yield program
    java.installed.cache_clear()


@pytest.mark.long
def test_java_home_is_the_first_candidate(only_this_java: Path) -> None:
    """The runtime in JAVA_HOME comes before those the machine has elsewhere."""
    assert java.installed()[0] == Jdk(only_this_java, 11, "JAVA_HOME")


def test_missing_java_is_named_with_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message about a missing Java tells the wanted version and the versions that are there."""
    monkeypatch.setattr(java, "installed", lambda: (jdk(11),))
    (missing,) = missing_java(CLASSIC)
    assert "Java 17 or 21" in missing.what
    assert "11 (/opt/java-11/bin/java)" in missing.what
    assert missing.package == "openjdk-17-jre-headless"


def test_all_missing_things_are_in_one_message() -> None:
    """One error names everything that is missing and one command that installs it, each thing once."""
    things = [
        Missing("Maven", package="maven"),
        Missing("Java", package="jre"),
        Missing("Maven", package="maven"),
        Missing("Java 24", advice="make setup"),
    ]
    with pytest.raises(PrerequisiteError) as error:
        require(things)
    message = str(error.value)
    assert message.count("Maven") == 1
    assert "apt-get install --yes jre maven" in message
    assert "also: make setup" in message


def test_nothing_missing_is_no_error() -> None:
    """Where nothing is missing nothing is raised, and one thing alone is enough for an error."""
    require([])
    with pytest.raises(PrerequisiteError, match="Java"):
        require([Missing("Java", package="jre")])


def test_missing_maven_is_told_only_for_absent_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Maven is needed to download parts; for parts that are in the cache it is not."""
    monkeypatch.setenv("FIRN_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert [thing.package for thing in jvm_parts.missing("kafka")] == ["maven"]
    jvm_parts.folder("kafka").mkdir(parents=True)
    assert jvm_parts.missing("kafka") == []


def fake_maven(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = folder / "bin/mvn"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("FIRN_CACHE", str(folder / "cache"))


def test_failed_download_leaves_nothing_and_shows_mavens_last_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A download that fails half way is never taken for finished, and the error shows how Maven ended and
    what to do."""
    fake_maven(tmp_path, WRITE_JAR + 'echo "no route to host"; exit 1', monkeypatch)
    with pytest.raises(UnavailableError, match="no route to host") as error:
        jvm_parts.fetch("kafka", lambda _: None)
    assert "python -m infra fetch" in str(error.value)
    assert not jvm_parts.folder("kafka").exists()
    assert [path.name for path in jvm_parts.cache_folder().iterdir()] == ["kafka.lock"]


def test_leftover_of_a_killed_download_is_removed_and_a_second_fetch_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a killed download left is cleared away; parts that are there are not downloaded again."""
    fake_maven(tmp_path, WRITE_JAR, monkeypatch)
    shutil.copytree(jvm_parts.POMS, tmp_path / "poms")
    monkeypatch.setattr(jvm_parts, "POMS", tmp_path / "poms")
    shutil.rmtree(jvm_parts.write_hashes("kafka", lambda _: None))
    leftover = jvm_parts.cache_folder() / "tmp-kafka-dead"
    leftover.mkdir(parents=True)
    said: list[str] = []
    target = jvm_parts.fetch("kafka", said.append)
    assert [path.name for path in target.iterdir()] == ["part.jar"]
    assert not leftover.exists()
    shutil.rmtree(tmp_path / "bin")
    assert jvm_parts.fetch("kafka", said.append) == target
    assert len(said) == 2


def test_wanted_port_that_is_occupied_names_port_and_owner() -> None:
    """A port asked for that another process holds is one error with the port, its owner and what to do."""
    with socket.socket() as server:
        server.bind((ports.LOOPBACK, 0))
        server.listen()
        port = server.getsockname()[1]
        with pytest.raises(PrerequisiteError) as error:
            ports.choose("kafka", wanted=port, remembered=None)
    assert f"port {port}" in str(error.value)
    assert f"(pid {os.getpid()})" in str(error.value)
    assert "another port" in str(error.value)


def test_remembered_port_is_used_again_unless_it_is_taken() -> None:
    """A restarted service gets its old port, so that its clients find it; where that is taken it gets
    another."""
    free = ports.reserve_free()
    assert ports.choose("kafka", wanted=None, remembered=free) == free
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((ports.LOOPBACK, free))
        server.listen()
        assert ports.choose("kafka", wanted=None, remembered=free) != free


def test_reserved_ports_are_free_and_different() -> None:
    """Ports reserved one after the other differ, and a server can listen on each."""
    reserved = [ports.reserve_free() for _ in range(20)]
    assert len(set(reserved)) == 20
    assert all(ports.is_free(port) for port in reserved)


def test_failure_message_shows_the_end_of_this_run_and_advice(tmp_path: Path) -> None:
    """The message of a dead service shows the last 15 lines of its present run without stack frames, and what
    its words mean."""
    log = tmp_path / "kafka.log"
    log.write_text("an older run\n")
    start = log.stat().st_size
    with log.open("a") as file:
        file.writelines(f"line {n}\n" for n in range(30))
        file.write(
            "java.io.IOException: No space left on device\n\tat "
            "java.base/sun.nio.ch.FileDispatcherImpl.write0(Native Method)\n\t... 12 more\n"
        )
    message = log_tail.failure("kafka", "died", log, start=start)
    shown = [line for line in message.splitlines() if line.startswith("  | ")]
    assert message.startswith("kafka died.")
    assert len(shown) == 15
    assert shown[-1] == "  | java.io.IOException: No space left on device"
    assert "The disk is full" in message
    assert "older run" not in message


def test_failure_message_without_a_log_says_so(tmp_path: Path) -> None:
    """A service that wrote nothing gets a message that says its log is empty and how to go on."""
    message = log_tail.failure("trino", "died", tmp_path / "trino.log")
    assert "is empty" in message
    assert "doctor" in message
