"""The disk of the warehouse, a small file system of its own, fills up and is made larger."""

import errno
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.drills.support.scene import Scene, counted

SIZE, LARGER = "24m", "256m"


def play(scene: Scene) -> Mapping[str, object]:
    """The node waits and says so; when there is room it goes on by itself."""
    with disk(scene.stack.folder / "warehouse") as warehouse:
        scene.start()
        _fill(warehouse)
        scene.sees("FirnTablesFailing")
        scene.log_says("ingest", "tables.failing")
        scene.log_says("ingest", "disk_full")
        assert "disk_full" in scene.run("python -m ingest status")
        assert "100%" in scene.run("df -h WAREHOUSE", WAREHOUSE=str(warehouse))
        _mount("-o", f"remount,size={LARGER}", str(warehouse))
        scene.wait_for_rows()
        scene.log_says("ingest", "tables.take_rows")
        scene.all_is_quiet()
        found = scene.account()
        assert "no table is parked" in scene.run("python -m ingest parked list")
        scene.run("python -m ingest audit")
        scene.stack.stop()
    return counted(scene.flow, found)


@contextmanager
def disk(folder: Path) -> Iterator[Path]:
    """A file system of its own in a folder; needs the right to mount."""
    folder.mkdir(parents=True)
    _mount("-t", "tmpfs", "-o", f"size={SIZE}", "drill", str(folder))
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _mount(*arguments: str) -> None:
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"this drill mounts a small disk, for which it has to be root: {done.stderr}"


def _fill(folder: Path) -> None:
    """Writes until there is no room."""
    with (folder / "somebody-elses").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(64 * 1024))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
