"""Folders of a warehouse on a disk: made by whoever writes, pruned once they have been empty for long."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lake.storage import open_storage

LONG_AGO = datetime.now(UTC) - timedelta(days=30)
BEFORE = datetime.now(UTC) - timedelta(days=7)


def aged(folder: Path) -> Path:
    """A folder that was last changed long ago."""
    folder.mkdir(parents=True, exist_ok=True)
    os.utime(folder, (LONG_AGO.timestamp(),) * 2)
    return folder


def pruned(root: Path) -> int:
    return open_storage().prune(f"file://{root}", lambda changed: changed < BEFORE)


def test_what_has_been_empty_for_long_goes_and_nothing_else(tmp_path: Path) -> None:
    """A link to a folder elsewhere is something; what it leads to is not looked at."""
    root, elsewhere = tmp_path / "table", aged(tmp_path / "elsewhere" / "empty").parent
    young, full, linked = root / "young", root / "full", root / "linked"
    for folder in (young, full, linked):
        folder.mkdir(parents=True)
    (full / "file").write_bytes(b"x")
    (linked / "there").symlink_to(elsewhere)
    for folder in (full, linked):
        aged(folder)
    gone = aged(root / "empty")
    assert pruned(root) == 1
    assert not gone.exists()
    assert all(folder.exists() for folder in (young, full, linked, elsewhere / "empty"))
    assert pruned(tmp_path / "not there") == 0


def test_who_writes_into_a_folder_that_is_pruned_meanwhile_makes_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at the folder above and the new folder in it."""
    root, mkdir = aged(tmp_path / "table" / "data").parent, os.mkdir

    def after_pruning(path: str, mode: int = 0o777) -> None:
        monkeypatch.setattr(os, "mkdir", mkdir)
        assert pruned(root) == 1
        mkdir(path, mode)

    monkeypatch.setattr(os, "mkdir", after_pruning)
    storage, uri = open_storage(), f"file://{root}/data/492762/file"
    storage.write_new(uri, b"x")
    storage.sync([uri])
    assert storage.read(uri) == b"x"
