"""The state folder of a stack as a release has left it: warehouse, database of the catalog, Kafka's topics,
saved searches and exports, in one archive.

Metadata of tables names files by their whole addresses. So an archive is made, and opened, at one place.
"""

import shutil
import tarfile
from pathlib import Path

from infra.local import archives

FOLDER = Path(__file__).parent
PLACE = Path("/tmp/firn-release")
STACK, EXPECTED = "stack", "expected.json"
SEARCH, ADDRESS = "errors of today", {"tenant": "Acme-Shop", "query": "n:1"}
# Logs, sockets, and what is made anew.
LEFT_OUT = {"logs", "lock", "keys", "files"}


def name_of(version: str, database: str) -> str:
    """What a release's archive is called, of a catalog on this database."""
    return version if database == "sqlite" else f"{version}-{database}"


def archive(name: str) -> Path:
    """Where an archive is kept."""
    return FOLDER / f"{name}.tar.xz"


def names() -> list[str]:
    """The archives that are kept."""
    return sorted(path.name.removesuffix(".tar.xz") for path in FOLDER.glob("*.tar.xz"))


def pack(name: str) -> None:
    """Writes what lies at the place into an archive."""

    def kept(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        return None if Path(member.name).name in LEFT_OUT else member

    with tarfile.open(archive(name), "w:xz") as file:
        file.add(PLACE, arcname=".", filter=kept)


def unpack(name: str) -> None:
    """Puts the state of an archive back to its place."""
    shutil.rmtree(PLACE, ignore_errors=True)
    PLACE.mkdir(mode=0o700)
    archives.unpack(archive(name), PLACE)
