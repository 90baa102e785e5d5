"""Services and Spark start from the classes that set-up recorded, and without them where there are none."""

from dataclasses import replace
from pathlib import Path

import pytest

from infra.local import class_archives, class_recording, java, jvm_parts
from infra.local.class_recording import NotMade
from infra.local.java import Jdk
from infra.local.services import optimize
from infra.local.supervisor import Stack
from lake.errors import UnavailableError
from lake.native_core import CACHE_VARIABLE
from lake.settings import OptimizeSettings


@pytest.fixture
def jdk() -> Jdk:
    return _java("kafka")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with folders of Kafka's and Spark's jars, empty ones, and none of others."""
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    for part in ("kafka", "spark"):
        jvm_parts.folder(part).mkdir(parents=True)
    return tmp_path


def test_another_java_and_other_jars_have_another_archive(jdk: Jdk, cache: Path, tmp_path: Path) -> None:
    first = class_archives.archive("kafka", jdk)
    assert class_archives.archive("kafka", jdk) == first
    assert class_archives.archive("spark", jdk) != first
    (jvm_parts.folder("kafka") / "another.jar").touch()
    second = class_archives.archive("kafka", jdk)
    assert second != first
    home = tmp_path / "java"
    (home / "bin").mkdir(parents=True)
    (home / "bin/java").touch()
    (home / "release").write_text('JAVA_VERSION="17.0.99"')
    another = replace(jdk, java=home / "bin/java")
    assert class_archives.archive("kafka", another) not in (first, second)
    assert (class_archives.keeps_classes(jdk), class_archives.keeps_classes(another)) == (True, False)


def test_only_an_archive_that_is_there_is_named(jdk: Jdk, cache: Path) -> None:
    archive = class_archives.archive("spark", jdk)
    given = OptimizeSettings.load().spark.java_options
    assert class_archives.options("spark") == ()
    assert optimize.environment()["FIRN_OPTIMIZE_SPARK__JAVA_OPTIONS"] == given
    archive.touch()
    option = f"-XX:SharedArchiveFile={archive}"
    assert class_archives.options("spark") == (option,)
    assert class_archives.options("kafka") == ()
    assert optimize.environment()["FIRN_OPTIMIZE_SPARK__JAVA_OPTIONS"] == f"{given} {option}"


def test_an_archive_appears_whole_or_it_is_told_why_there_is_none(
    jdk: Jdk, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def record(recording: str, *_: object) -> None:
        Path(recording.split()[0].removeprefix("-XX:ArchiveClassesAtExit=")).write_text("classes")

    def fail(*_: object) -> None:
        raise UnavailableError("Kafka does not start")

    monkeypatch.setattr(class_recording, "_run_service", fail)
    monkeypatch.setattr(class_recording, "_run_spark", record)
    made = class_recording.make(lambda _: None)
    spark = class_archives.archive("spark", jdk)
    assert made == {"kafka": NotMade("Kafka does not start"), "spark": spark}
    assert spark.read_text() == "classes"
    assert not list((cache / "jvm").glob("tmp-*"))

    def be_killed(_: str, recording: str, *__: object) -> None:
        record(recording)
        written = Path(recording.split()[0].removeprefix("-XX:ArchiveClassesAtExit="))
        written.write_bytes(bytes(64) + b"classes")  # Java writes the beginning last

    monkeypatch.setattr(class_recording, "_run_service", be_killed)
    assert isinstance(class_recording.make(lambda _: None)["kafka"], NotMade)
    monkeypatch.setattr(class_recording, "_run_service", lambda *_: None)  # one that leaves nothing
    monkeypatch.setattr(class_recording, "_run_spark", fail)  # not run again
    made = class_recording.make(lambda _: None)
    assert isinstance(made["kafka"], NotMade)
    assert made["spark"] == spark


@pytest.mark.stack
@pytest.mark.parametrize("service", ["kafka", "trino"])
def test_the_stack_starts_from_the_archive(stack: Stack, service: str) -> None:
    """The one that set-up has made is mapped into its memory, but where Java keeps no classes."""
    jdk = _java(service)
    maps = Path(f"/proc/{stack.pid(service)}/maps").read_text()
    assert (str(class_archives.archive(service, jdk)) in maps) == class_archives.keeps_classes(jdk)


def _java(part: str) -> Jdk:
    found = java.find(class_archives.NEEDS[part])
    assert found is not None
    return found
