"""The native core's library: built once per version, and where that fails Firn says so and does without."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.__main__ import show_core
from infra.local import core_build, doctor
from lake import native_core
from lake.native_core import Absent, Core

WRITE_LIBRARY = (
    'while [ $# -gt 0 ]; do [ "$1" = --target-dir ] && out=$2; shift; done; mkdir -p "$out/release"; '
)


@pytest.fixture(autouse=True)
def loads_anew() -> Iterator[None]:
    """What this process has loaded does not count here, nor afterwards what it finds here."""
    native_core.load.cache_clear()
    yield
    native_core.load.cache_clear()


def fake_cargo(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = folder / "bin/cargo"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("FIRN_CACHE", str(folder / "cache"))
    monkeypatch.delenv("FIRN_CORE", raising=False)


def test_a_library_is_built_once_per_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It appears whole, beside the leftovers of nobody; other sources get another folder."""
    fake_cargo(tmp_path, WRITE_LIBRARY + 'echo made > "$out/release/libfirn_core.so"', monkeypatch)
    said: list[str] = []
    built = core_build.build(said.append)
    assert isinstance(built, Path)
    assert built.read_text() == "made\n"
    assert {path.name for path in built.parents[1].iterdir()} == {built.parent.name, "core.lock"}
    shutil.rmtree(tmp_path / "bin")
    assert core_build.build(said.append) == built
    assert len(said) == 1
    other = shutil.copytree(native_core.SOURCES, tmp_path / "core", ignore=shutil.ignore_patterns("target"))
    (other / "src/lib.rs").write_text("// other\n")
    monkeypatch.setattr(native_core, "SOURCES", other)
    assert native_core.built_library() != built


def test_a_failed_build_is_told_and_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The end of cargo's output is shown, nothing is left behind, and the next run tries again."""
    fake_cargo(tmp_path, 'echo "error: rustc 1.63 is too old"; exit 101', monkeypatch)
    built = core_build.build(lambda _: None)
    assert isinstance(built, Absent)
    assert not native_core.built_library().parent.exists()
    show_core(built)
    told = capsys.readouterr().err
    assert "not built, and Firn does its work in Python" in told
    assert "rustc 1.63 is too old" in told
    assert "not built" in native_core.told()


def test_without_cargo_its_packages_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason says what brings it."""
    monkeypatch.setenv("FIRN_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    built = core_build.build(lambda _: None)
    assert isinstance(built, Absent)
    assert "cargo-web" in built.reason


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        ("off", "FIRN_CORE=off"),
        ("/nowhere/libfirn_core.so", "which is no file"),
        (__file__, "cannot be loaded"),
    ],
)
def test_a_core_that_cannot_be_used_has_a_reason(
    wanted: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever FIRN_CORE names, a process starts, and doctor says why it does without."""
    monkeypatch.setenv("FIRN_CORE", wanted)
    core = native_core.load()
    assert isinstance(core, Absent)
    assert reason in core.reason
    assert any(reason in finding.found for finding in doctor.examine(Path()))


def test_settings_that_are_wrong_leave_ingestion_without_a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache's folder is a setting of the stack on one machine, which keeps nobody from starting."""
    monkeypatch.delenv("FIRN_CORE", raising=False)
    monkeypatch.delenv("FIRN_CACHE", raising=False)
    monkeypatch.setenv("FIRN_INFRA_READY_TIMEOUT_FACTOR", "none")
    core = native_core.load()
    assert isinstance(core, Absent)
    assert "ready_timeout_factor" in core.reason


def test_what_setup_has_built_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where `make setup` has found a cargo, the library is there, of these sources, and of this interface;
    another one is refused. Where it has found none that is told."""
    monkeypatch.delenv("FIRN_CORE", raising=False)
    core = native_core.load()
    if not (native_core.cache_folder() / "core").is_dir():
        assert isinstance(core, Absent)
        assert "make setup builds it" in core.reason
        return
    assert isinstance(core, Core), core.reason
    native_core.load.cache_clear()
    monkeypatch.setattr(native_core, "VERSION", native_core.VERSION + 1)
    refused = native_core.load()
    assert isinstance(refused, Absent)
    assert "build it anew" in refused.reason
