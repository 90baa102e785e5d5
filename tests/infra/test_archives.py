"""Archives of JVM parts and of releases are unpacked by whatever Python 3.11 there is."""

import importlib
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from infra.local import archives


@pytest.fixture(params=["as it is", "of Debian 12"])
def unpack_of(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[Path, Path], None]]:
    """3.11.2 has no filters."""
    if request.param == "of Debian 12":
        monkeypatch.delattr(tarfile, "data_filter", raising=False)

        def extract_all(self: tarfile.TarFile, path: Path) -> None:
            plain(self, path)

        plain = tarfile.TarFile.extractall
        monkeypatch.setattr(tarfile.TarFile, "extractall", extract_all)
    yield importlib.reload(archives).unpack
    monkeypatch.undo()
    importlib.reload(archives)


def test_an_archive_comes_back_as_it_was(unpack_of: Callable[[Path, Path], None], tmp_path: Path) -> None:
    """With its folders, and what may run."""
    script = tmp_path / "made/bin/run"
    script.parent.mkdir(parents=True)
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    with tarfile.open(tmp_path / "made.tar.gz", "w:gz") as file:
        file.add(tmp_path / "made", arcname="made")
    unpack_of(tmp_path / "made.tar.gz", tmp_path / "there")
    again = tmp_path / "there/made/bin/run"
    assert (again.read_text(), again.stat().st_mode & 0o777) == ("#!/bin/sh\n", 0o755)
