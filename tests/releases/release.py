"""The state folder of a stack as a release has left it: warehouse, database of the catalog, Kafka's topics,
saved searches and exports, in one archive.

Metadata of tables names files by their whole addresses. So an archive is made, and opened, at one place.
"""

import shutil
import tarfile
from pathlib import Path

FOLDER = Path(__file__).parent
PLACE = Path("/tmp/firn-release")
STACK, EXPECTED = "stack", "expected.json"
SEARCH, ADDRESS = "errors of today", {"tenant": "Acme-Shop", "query": "n:1"}
# Logs, sockets, and what is made anew.
LEFT_OUT = {"logs", "lock", "keys", "files"}


def archive(version: str) -> Path:
    """Where a release's archive is kept."""
    return FOLDER / f"{version}.tar.xz"


def versions() -> list[str]:
    """The releases that are kept."""
    return sorted(path.name.removesuffix(".tar.xz") for path in FOLDER.glob("*.tar.xz"))


def pack(version: str) -> None:
    """Writes what lies at the place into the release's archive."""

    def kept(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        return None if Path(member.name).name in LEFT_OUT else member

    with tarfile.open(archive(version), "w:xz") as file:
        file.add(PLACE, arcname=".", filter=kept)


def unpack(version: str) -> None:
    """Puts a release's state back to its place."""
    shutil.rmtree(PLACE, ignore_errors=True)
    PLACE.mkdir(mode=0o700)
    with tarfile.open(archive(version)) as file:
        file.extractall(PLACE, filter="data")
