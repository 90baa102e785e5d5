"""Whether Firn may do what it has to in the warehouse, and others may not."""

import os
import stat
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx

from infra.production.finding import Finding, ok, unknown, unsafe, warning
from infra.production.rooms import Rooms
from lake.errors import FirnError
from lake.settings import StorageSettings
from lake.storage import local_path, open_storage
from lake.tls import tls_context

NAME = "storage"
ANSWER_S = 10.0
CONTENT = b"firn doctor"


def look(rooms: Rooms) -> Iterator[Finding]:
    """Looks at a folder's mode; in S3 writes a small object, reads, lists and deletes it."""
    warehouse = rooms.catalog.warehouse.rstrip("/")
    if not warehouse:
        yield unknown(NAME, "catalog.warehouse is not set here; run this where the catalog does")
    elif warehouse.startswith("file:"):
        folder = local_path(warehouse)
        mode = folder.stat().st_mode if folder.exists() else None
        yield judge_folder(folder, mode, may_write=os.access(folder, os.W_OK))
    else:
        yield judge_rights(warehouse, _refused(rooms.storage, f"{warehouse}/firn-doctor-{uuid.uuid4()}"))
        if endpoint := rooms.storage.s3.endpoint:
            bucket = warehouse.partition("://")[2].partition("/")[0]
            address = f"{endpoint.rstrip('/')}/{bucket}?list-type=2&max-keys=1"
            answer = httpx.get(address, timeout=ANSWER_S, verify=tls_context())
            yield judge_strangers(bucket, answer.status_code)


def judge_folder(folder: Path, mode: int | None, *, may_write: bool) -> Finding:
    """`mode`: None where there is no such folder."""
    if mode is None:
        told = (
            f"there is no folder {folder}; make it, for Firn's user alone, and mount what is to hold the rows"
        )
        return warning(NAME, told)
    if mode & (stat.S_IROTH | stat.S_IWOTH | stat.S_IXOTH):
        return unsafe(
            NAME,
            f"everybody on this machine gets into {folder}, where all tenants' rows are; chmod o= {folder}",
        )
    if not may_write:
        told = (
            f"this user may not write to {folder}; run this as Firn's user, or give the folder to that user"
        )
        return warning(NAME, told)
    return ok(NAME, f"{folder} is Firn's alone")


def judge_rights(warehouse: str, refused: dict[str, str]) -> Finding:
    """`refused`: why, by what was tried."""
    if refused:
        told = "; ".join(f"{what}: {why}" for what, why in refused.items())
        return unsafe(NAME, f"Firn's credentials do not do at {warehouse}: {told}; allow it")
    return ok(NAME, f"objects below {warehouse} can be written, read, listed and deleted")


def judge_strangers(bucket: str, status: int) -> Finding:
    """`status`: of the answer to somebody without credentials who lists the bucket."""
    if status == 200:
        return unsafe(NAME, f"anybody may list the bucket {bucket}; take public access away")
    if status in (401, 403):
        return ok(NAME, f"nobody lists the bucket {bucket} without credentials")
    return unknown(
        NAME, f"the storage answers {status} to somebody without credentials; look at the bucket's policy"
    )


def _refused(settings: StorageSettings, uri: str) -> dict[str, str]:
    storage = open_storage(settings)
    acts: dict[str, Callable[[], object]] = {
        "write": lambda: storage.write_new(uri, CONTENT),
        "read": lambda: storage.read(uri),
        "list": lambda: list(storage.list(uri)),
        "delete": lambda: storage.delete([uri]),
    }
    refused = {}
    for what, act in acts.items():
        try:
            act()
        except FirnError as error:
            refused[what] = str(error)
    return refused
