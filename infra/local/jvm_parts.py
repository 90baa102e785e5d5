"""JVM parts (Kafka, Trino, s3proxy, Spark's jars): one pom per service, copied by Maven into a cache folder
outside git.

The folder's name carries the hash of the pom and of the list of its files' hashes, so another version gets
another folder. Parts are copied to a temporary folder, compared with the list (see part_hashes.py), and
renamed when complete: a folder that exists is whole, and holds what was listed.
"""

import hashlib
import os
import re
import shutil
import subprocess
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

from infra.local import part_hashes
from infra.local.archives import unpack
from infra.local.cache_folders import only_one, scratch_folder
from infra.local.prerequisites import Missing, require
from lake import native_core
from lake.errors import PrerequisiteError, UnavailableError
from lake.native_core import CACHE_VARIABLE

REPOSITORY = Path(__file__).resolve().parents[2]
POMS = REPOSITORY / "infra/poms"
SERVICES = ("kafka", "trino", "s3", "spark")
TRINO_PASSWORD = "trino-password"  # noqa: S105 - a name; fetched when a Trino with users starts
# Fetched when they start: only tests ask for them.
REGISTRY = "registry"
CONNECT = "connect"
KEYCLOAK = "keycloak"
FLINK = "flink"
ALL = (*SERVICES, TRINO_PASSWORD, REGISTRY, CONNECT, KEYCLOAK, FLINK)
FREE_BYTES_MIN = 3 * 1024**3
MAVEN_TIMEOUT_S = 1800.0
OUTPUT_LINES = 12
Say = Callable[[str], None]


def cache_folder() -> Path:
    """Where all JVM parts live."""
    return native_core.cache_folder() / "jvm"


def folder(service: str) -> Path:
    """Where the parts of a service are or would be; exists only when complete."""
    pom, listed = POMS / f"{service}.xml", part_hashes.list_file(POMS, service)
    text = pom.read_bytes() + (listed.read_bytes() if listed.exists() else b"")
    return cache_folder() / f"{service}-{hashlib.sha256(text).hexdigest()[:12]}"


def missing(service: str) -> list[Missing]:
    """What the machine lacks to get the parts of a service; nothing is needed for parts that are already
    there."""
    if folder(service).is_dir() or shutil.which("mvn"):
        return []
    return [Missing(f"Maven (`mvn`), to download {service}", package="maven")]


def fetch(service: str, say: Say) -> Path:
    """The folder with the parts of a service, downloaded if absent.

    Raises PrerequisiteError without Maven or disk space and where a file is another one than is listed,
    UnavailableError with the end of Maven's output where it fails.
    """
    target = folder(service)
    if target.is_dir():
        return target
    require(missing(service))
    target.parent.mkdir(parents=True, exist_ok=True)
    with only_one(target.parent / f"{service}.lock"):
        if not target.is_dir():
            _check_disk(target.parent, service)
            say(f"downloading {service} with Maven into {target} (once per version) ...")
            with scratch_folder(service, target.parent) as scratch:
                _run_maven(service, scratch)
                part_hashes.check(POMS, service, scratch)
                _install(service, scratch, target)
            say(f"{service} is downloaded")
    return target


def write_hashes(service: str, say: Say) -> Path:
    """Downloads the parts of a service whatever they hold, and lists what they are: for a change of versions.
    Raises as `fetch`."""
    cache = cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    with only_one(cache / f"{service}.lock"), scratch_folder(service, cache) as scratch:
        _check_disk(cache, service)
        say(f"downloading {service} with Maven, to list its files ...")
        _run_maven(service, scratch)
        part_hashes.write(POMS, service, scratch)
        target = folder(service)
        if not target.is_dir():
            _install(service, scratch, target)
    return target


def _install(service: str, scratch: Path, target: Path) -> None:
    if service == "trino":
        _unpack_trino(scratch)
        _replace_jars(scratch / "newer", scratch / "server")
    elif service == TRINO_PASSWORD:
        _unpack_plugin(scratch, "trino-password-authenticators-*.zip", scratch / "plugin")
        _replace_jars(scratch / "newer", scratch / "plugin")
    elif service == REGISTRY:
        _unpack_registry(scratch)
    elif service == CONNECT:
        _unpack_connectors(scratch)
    elif service == KEYCLOAK:
        _unpack_keycloak(scratch)
    os.rename(scratch, target)


def _run_maven(service: str, output: Path) -> None:
    quiet = ("-q", "--batch-mode", "--no-transfer-progress", "-Dstyle.color=never")
    command: Sequence[str] = (
        "mvn",
        *quiet,
        "-f",
        str(POMS / f"{service}.xml"),
        f"-DoutputDirectory={output}",
        "generate-resources",
    )
    try:
        answer = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=MAVEN_TIMEOUT_S,
            check=False,
        )
        text, failed = answer.stdout, answer.returncode != 0
    except subprocess.TimeoutExpired as error:
        printed = error.stdout or b""
        text, failed = (
            (
                f"{printed.decode(errors='replace') if isinstance(printed, bytes) else printed}\ngave up "
                "after "
                f"{MAVEN_TIMEOUT_S:.0f} s"
            ),
            True,
        )
    if failed:
        lines = "\n".join(f"  | {line}" for line in text.strip().splitlines()[-OUTPUT_LINES:])
        raise UnavailableError(
            f"Maven could not download the parts of {service}. Last lines of its output:\n{lines}\n"
            "Check the network and Maven's own settings (a mirror or proxy goes into its settings.xml), then "
            "run `python -m infra fetch` again: "
            "what is already downloaded is kept."
        )


def _unpack_trino(scratch: Path) -> None:
    """Turns the two archives into `server/` with the Iceberg plugin in `server/plugin/iceberg`."""
    (server_archive,) = scratch.glob("trino-server-core-*.tar.gz")
    unpack(server_archive, scratch / "server.d")
    (server,) = (scratch / "server.d").iterdir()
    server.rename(scratch / "server")
    shutil.rmtree(scratch / "server/plugin", ignore_errors=True)
    (scratch / "server/plugin").mkdir()
    _unpack_plugin(scratch, "trino-iceberg-*.zip", scratch / "server/plugin/iceberg")
    (scratch / "server.d").rmdir()
    server_archive.unlink()


def _unpack_registry(scratch: Path) -> None:
    """Turns the archive into `server/`."""
    (archive,) = scratch.glob("apicurio-registry-app-*-all.tar.gz")
    unpack(archive, scratch / "server")
    archive.unlink()


def _unpack_keycloak(scratch: Path) -> None:
    """Turns the archive into `server/`."""
    (archive,) = scratch.glob("keycloak-quarkus-dist-*.tar.gz")
    unpack(archive, scratch / "unpacked")
    (server,) = (scratch / "unpacked").iterdir()
    server.rename(scratch / "server")
    (scratch / "unpacked").rmdir()
    archive.unlink()


def _unpack_connectors(scratch: Path) -> None:
    """Turns the archive of each connector into a folder of `plugins/`, apart from the worker's own jars."""
    for archive in scratch.glob("*-plugin.tar.gz"):
        unpack(archive, scratch / "plugins")
        archive.unlink()


def _unpack_plugin(scratch: Path, archive_name: str, target: Path) -> None:
    (plugin_archive,) = scratch.glob(archive_name)
    with zipfile.ZipFile(
        plugin_archive
    ) as archive:  # shutil.unpack_archive leaves out jars with dots in a row in their name, silently
        archive.extractall(scratch / "plugin.d")
    (plugin,) = (scratch / "plugin.d").iterdir()
    plugin.rename(target)
    (scratch / "plugin.d").rmdir()
    plugin_archive.unlink()


def _replace_jars(newer: Path, unpacked: Path) -> None:
    """Puts each newer jar in place of all of its name in a folder, whatever their version. Raises
    PrerequisiteError where one replaces nothing."""
    versions = {jar: re.fullmatch(r"(.+?)-(\d[^/]*)\.jar", jar.name) for jar in newer.iterdir()}
    for jar, named in versions.items():
        assert named is not None, f"{jar.name} carries no version"
        older = re.compile(rf"((?:.*_)?{re.escape(named[1])}-)\d[^/]*\.jar")
        found = [(path, match) for path in unpacked.rglob("*.jar") if (match := older.fullmatch(path.name))]
        if not found:
            raise PrerequisiteError(
                f"{jar.name} replaces nothing in {unpacked.name}: take it out of the pom in infra/poms"
            )
        for path, match in found:
            path.unlink()
            shutil.copyfile(jar, path.with_name(f"{match[1]}{named[2]}.jar"))
    shutil.rmtree(newer)


def _check_disk(where: Path, service: str) -> None:
    free = shutil.disk_usage(where).free
    if free < FREE_BYTES_MIN:
        raise PrerequisiteError(
            f"the disk of {where} has {free / 2**30:.1f} GiB free, too little to download {service} safely "
            f"({FREE_BYTES_MIN / 2**30:.0f} GiB). "
            f"Free some space, or point {CACHE_VARIABLE} at a folder on another disk"
        )
