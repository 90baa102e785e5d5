"""State: what the stack, the catalog and the search API write down is for their owner alone."""

import os
import stat
from contextlib import suppress
from pathlib import Path

import pytest

from catalog.store.database import Database, migrate
from infra.local.supervisor import Stack
from lake.private_files import OTHERS, private_file, private_folder
from tests.query.support.guarded import Guarded

pytestmark = pytest.mark.finding(29)


def modes(folder: Path) -> dict[Path, int]:
    """The kind and permissions of all that lies in a folder and of itself, links aside; services that run
    remove some of it meanwhile."""
    found = dict[Path, int]()
    for at, folders, files in os.walk(folder):
        for path in (Path(at), *(Path(at, name) for name in (*folders, *files))):
            with suppress(FileNotFoundError):
                found[path] = path.lstat().st_mode
    return {path: mode for path, mode in found.items() if not stat.S_ISLNK(mode)}


def open_to_others(folder: Path) -> list[Path]:
    """Files and folders that somebody else could read or write, had they a way to the folder itself."""
    return [path for path, mode in modes(folder).items() if mode & OTHERS]


def reachable(folder: Path) -> list[Path]:
    """Of those, the ones that no closed folder stands before, `folder` itself counted."""
    found = modes(folder)
    closed = {path for path, mode in found.items() if stat.S_ISDIR(mode) and not mode & OTHERS}
    return [path for path, mode in found.items() if mode & OTHERS and not closed & {path, *path.parents}]


@pytest.mark.stack
def test_no_file_of_the_stack_is_open_to_others(stack: Stack, services: Stack) -> None:
    """State file, database with its log, logs, configurations, the data of Kafka and Trino: each one is
    closed by itself, not only by a folder above it.

    In the warehouse tests write too, with permissions of their own: there it is the folder above that counts.
    """
    names = {path.name for of in (stack, services) for path in modes(of.folder)}
    assert {
        "stack.json",
        "catalog.db",
        "catalog.db-wal",
        "catalog.log",
        "kafka.log",
        "server.properties",
        "lake.properties",
        "trino.log",
        "lock",
    } <= names
    warehouse = stack.folder / "warehouse"
    assert [path for path in open_to_others(stack.folder) if warehouse not in (path, *path.parents)] == []
    assert reachable(stack.folder) == []
    assert open_to_others(services.folder) == []


@pytest.mark.stack
def test_nobody_reaches_the_state_of_the_search_api(keyed: Guarded) -> None:
    """Exports, saved searches, erasures and counts lie below a folder that is closed."""
    keyed.ask("PUT", "/v1/saved-searches/private", "mine", json={"address": {"q": "x"}}).raise_for_status()
    state = keyed.folder / "state"
    assert any(path.is_file() for path in state.rglob("*"))
    assert reachable(state) == []


def test_a_database_is_closed_whatever_the_umask(tmp_path: Path) -> None:
    """A new one with what SQLite puts beside it, and one that an older version left open."""
    before = os.umask(0)
    try:
        path = tmp_path / "state" / "catalog.db"
        database = Database(f"sqlite:///{path}")
        migrate(database)
        made = {
            each.name: stat.S_IMODE(each.stat().st_mode) for each in (path.parent, *path.parent.iterdir())
        }
        assert made == {"state": 0o700, "catalog.db": 0o600, "catalog.db-wal": 0o600, "catalog.db-shm": 0o600}
        for each in path.parent.iterdir():
            each.chmod(0o644)
        Database(f"sqlite:///{path}").close()
        assert {stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()} == {0o600}
        database.close()
    finally:
        os.umask(before)


def test_a_stack_of_an_older_version_is_closed(tmp_path: Path) -> None:
    """A folder that holds a stack is closed at its next use; one that holds other things keeps its
    permissions."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for folder in (ours, theirs):
        folder.mkdir()
        folder.chmod(0o755)
    (ours / "stack.json").write_text('{"version":1,"services":{}}')
    Stack(ours).stop()
    Stack(theirs).stop()
    assert stat.S_IMODE(ours.stat().st_mode) == 0o700
    assert stat.S_IMODE(theirs.stat().st_mode) == 0o755
    assert stat.S_IMODE((theirs / "lock").stat().st_mode) == 0o600


def test_private_files_are_made_closed_and_closed_where_they_are(tmp_path: Path) -> None:
    """Whatever the umask; content stays; what is no folder is said."""
    before = os.umask(0)
    try:
        folder = private_folder(tmp_path / "a" / "b")
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert private_folder(folder) == folder
        kept = folder / "kept"
        kept.write_text("content")
        assert stat.S_IMODE(kept.stat().st_mode) == 0o666
        assert private_file(kept).read_text() == "content"
        assert {stat.S_IMODE(private_file(folder / name).stat().st_mode) for name in ("kept", "new")} == {
            0o600
        }
        with pytest.raises(FileExistsError):
            private_folder(kept)
    finally:
        os.umask(before)


def test_an_open_file_is_seen(tmp_path: Path) -> None:
    """The look at permissions itself."""
    tmp_path.chmod(0o755)
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    for file in (tmp_path / "open", closed / "behind"):
        file.write_text("x")
        file.chmod(0o644)
    assert set(open_to_others(tmp_path)) == {tmp_path, tmp_path / "open", closed / "behind"}
    assert set(reachable(tmp_path)) == {tmp_path, tmp_path / "open"}
