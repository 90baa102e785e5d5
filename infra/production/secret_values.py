"""Whether secrets are what everybody tries first, are there at all, and whether others read their files."""

import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import BaseModel, SecretStr

from infra.production.finding import Finding, ok, unsafe, warning
from infra.production.rooms import Rooms
from lake.listening import is_loopback
from lake.settings.secret_files import files_of, secret_names

NAME = "secrets"
LENGTH_MIN = 12
# Of examples, images and tutorials.
KNOWN = frozenset(
    {"admin", "admin123", "changeit", "changeme", "default", "example", "firn", "guest", "kafka", "minio"}
    | {"minio123", "minioadmin", "passw0rd", "password", "postgres", "root", "s3cr3t", "secret", "test"}
    | {"token", "trino"}
)


def look(rooms: Rooms) -> Iterator[Finding]:
    """All secrets in the settings, and their files."""
    secrets = {
        f"{room.room}.{name}": value
        for room in rooms.all
        for name in secret_names(type(room))
        if not name.endswith(".options")
        for value in _values(_held(room, name))
    }
    url = secrets.pop("catalog.database_url", "")
    if password := urlsplit(url).password:
        secrets["catalog.database_url"] = password
    yield judge(secrets)
    yield judge_absent(_absent(rooms))
    keys = (rooms.catalog.tls.key, rooms.ingest.kafka.ssl_key, rooms.tls.key)
    named = [file for room in rooms.all for file in files_of(room)]
    files = [Path(file) for file in (*named, *keys) if file]
    yield judge_files({file: file.stat().st_mode for file in files})


def judge(secrets: Mapping[str, str]) -> Finding:
    """`secrets`: by their settings."""
    if known := [name for name, value in secrets.items() if value.lower() in KNOWN]:
        return unsafe(NAME, f"{', '.join(known)}: everybody knows this; replace it by a long random text")
    if short := [name for name, value in secrets.items() if len(value) < LENGTH_MIN]:
        return warning(
            NAME,
            f"{', '.join(short)}: shorter than {LENGTH_MIN} characters; replace it by a long random text",
        )
    return ok(NAME, f"none of {len(secrets)} is known or short")


def judge_absent(absent: list[str]) -> Finding:
    """`absent`: settings without which strangers are believed."""
    if absent:
        return unsafe(
            NAME, f"{', '.join(absent)} not set, though others reach what it guards; set it, from a file"
        )
    return ok(NAME, "none is missing")


def judge_files(modes: Mapping[Path, int]) -> Finding:
    """`modes`: of the files of secrets and private keys."""
    readable = [str(file) for file, mode in modes.items() if mode & (stat.S_IROTH | stat.S_IWOTH)]
    if readable:
        told = (
            f"everybody on this machine may read {', '.join(readable)}; take that right away: chmod o= FILE"
        )
        return unsafe(NAME, told)
    return ok(NAME, f"nobody else reads the {len(modes)} files")


def _absent(rooms: Rooms) -> list[str]:
    ingest = rooms.ingest
    brokers = [address.rpartition(":")[0] for address in ingest.kafka.bootstrap_servers.split(",")]
    guarded = {
        "ingest.internal_topics.signing_keys": (brokers, ingest.internal_topics.signing_keys),
        "ingest.http.token": ([ingest.node.host, ingest.serve.host], ingest.http.token),
    }
    return [name for name, (hosts, held) in guarded.items() if not held and not all(map(is_loopback, hosts))]


def _held(room: BaseModel, name: str) -> Any:
    held: Any = room
    for part in name.split("."):
        held = getattr(held, part)
    return held


def _values(held: Any) -> Iterator[str]:
    match held:
        case SecretStr():
            yield held.get_secret_value()
        case list() | tuple():
            for each in held:
                yield from _values(each)
