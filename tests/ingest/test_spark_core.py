"""Tasks of the Spark engine do what the driver does about the native core."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import SparkFiles
from structlog.testing import capture_logs

from ingest.node.engines.spark_task import use_core, without_core
from ingest.node.engines.spark_task_spec import TaskResult, TaskSetup
from ingest.node.engines.spark_worker import CoreNotice
from lake import native_core
from lake.native_core import CORE_VARIABLE, LIBRARY
from lake.settings import IngestSettings, StorageSettings
from tests.ingest.support.own_process import in_a_process
from tests.stack.support.spark_cluster import OPTIONS, spark_machines

SETUP = TaskSetup(IngestSettings(), StorageSettings(), "file:///nowhere", ("127.0.0.1", 1), b"", LIBRARY)


@pytest.fixture(autouse=True)
def loads_anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As in a process that Spark has just started."""
    monkeypatch.setenv(CORE_VARIABLE, "")
    native_core.load.cache_clear()
    yield
    native_core.load.cache_clear()


def _brought(library: Path, monkeypatch: pytest.MonkeyPatch) -> TaskSetup:
    """Has Spark bring a library."""
    monkeypatch.setattr(SparkFiles, "get", lambda name: str(library.parent / name))
    return SETUP


@pytest.mark.core
def test_a_task_uses_the_core_that_spark_has_brought(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the driver, though nothing was built beside the archive of its packages."""
    built = native_core.built_library()
    setup = _brought(built, monkeypatch)
    monkeypatch.setattr(native_core, "SOURCES", Path("/nowhere"))
    use_core(setup)
    assert without_core(setup) is None
    assert native_core.told() == f"used: {built}"


def test_a_core_that_cannot_be_loaded_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One for another processor, say: the task does without."""
    (tmp_path / LIBRARY).write_bytes(b"\x7fELF of something else")
    setup = _brought(tmp_path / LIBRARY, monkeypatch)
    use_core(setup)
    assert "cannot be loaded" in (without_core(setup) or "")


def test_what_an_executor_says_itself_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """FIRN_CORE of its environment goes before what Spark brings."""
    monkeypatch.setenv(CORE_VARIABLE, native_core.OFF)
    use_core(SETUP)
    assert without_core(SETUP) == "FIRN_CORE=off"


def test_a_driver_without_a_core_has_tasks_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """That is nothing to tell of."""
    setup = TaskSetup(SETUP.settings, SETUP.storage, SETUP.warehouse, SETUP.address, SETUP.key)
    use_core(setup)
    assert (without_core(setup), native_core.told()) == (None, "not used: FIRN_CORE=off")


def test_the_driver_tells_of_it_once() -> None:
    """With the reasons of a job's tasks; where all have the core, nothing is said."""
    notice, alien = CoreNotice(), TaskResult(without_core="of another kind")
    with capture_logs() as logs:
        notice.tell([TaskResult()])
        assert logs == []
        notice.tell([TaskResult(), alien, alien])
        notice.tell([alien])
    assert [(each["event"], each["reasons"]) for each in logs] == [("tasks.in_python", ["of another kind"])]


@pytest.mark.stack
@pytest.mark.prove
@pytest.mark.core
@pytest.mark.timeout(600)
def test_tasks_on_a_cluster_get_the_core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a standalone cluster, by Spark's own files."""
    monkeypatch.delenv(CORE_VARIABLE)
    with spark_machines(tmp_path) as machines:
        settings = {"spark__master": machines.master, "spark__options": OPTIONS}
        told = in_a_process("core_of_tasks", json.dumps(settings))["told"]
    for core, reason in told:
        assert core.startswith("used: ")
        assert Path(core).name == LIBRARY
        assert reason is None
