"""Two tenants' tables behind a catalog that asks for keys, and what a hostile holder of a key to one of them
sends and leaves on the disk."""

import os
import random
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import orjson

from lake.avro import text
from lake.catalog_client import CatalogClient
from lake.commit import TableState, load_state, state_of
from lake.manifest import ManifestEntry, Status, write_manifest
from lake.manifest_list import ManifestFile, ManifestList, write_manifest_list
from lake.snapshot import new_snapshot_id, snapshot_json
from lake.storage import AnyStorage, local_path, open_storage
from lake.table_files import load_manifest
from tests.catalog.conftest import Server
from tests.query.support.guarded import START
from tests.query.support.log_table import LogTable

Json = dict[str, Any]
ROUTES = ("table", "transaction", "batch")
# Where a commit names a file: in the request itself, in the manifest list, in a manifest.
IN_REQUEST = ("manifest-list", "manifests", "statistics", "partition-statistics")
SECRET = "secret-of-the-other-tenant"
SPARSE_BYTES = 700 * 1024 * 1024


@dataclass
class Hostile:
    """`mine` is the attacker's table, `theirs` the other tenant's; `keys`: admin, room, mine (bound, write),
    reader (bound, read)."""

    server: Server
    keys: dict[str, str]
    mine: LogTable
    theirs: LogTable
    outside: Path
    storage: AnyStorage = field(default_factory=open_storage)

    def http(self, key: str) -> httpx.Client:
        """A client with one of the keys."""
        return self.server.client(headers={"Authorization": f"Bearer {self.keys[key]}"}, trust_env=False)

    def metadata(self, table: LogTable) -> Json:
        """A table's metadata as it is."""
        metadata: Json = table.catalog.load_table(table.name)["metadata"]
        return metadata

    def state(self, table: LogTable) -> TableState:
        """What a committer knows of a table."""
        state = load_state(table.catalog, self.storage, table.name)
        assert state is not None
        return state

    def files(self) -> dict[str, bytes]:
        """Every file of the other tenant's table and outside of the warehouse, with its content."""
        roots = [local_path(self.state(self.theirs).location), self.outside]
        return {
            str(path): path.read_bytes()
            for root in roots
            for path in sorted(root.rglob("*"))
            if path.is_file() and path.stat().st_size < 10**7
        }


def start_hostile(folder: Path) -> Hostile:
    """Starts the catalog; ends with `server.stop()`."""
    server = Server(
        folder,
        f"sqlite:///{folder}/catalog.db",
        arguments=[],
        environment={"FIRN_CATALOG_ALLOWED_LOCATIONS": "[]"},
    )
    made = server.run("key", "create", "--scope", "admin")
    made.check_returncode()
    keys = {"admin": made.stdout.strip()}
    server.start()
    client = CatalogClient(server.url, token=keys["admin"])
    mine, theirs = LogTable(client, "a"), LogTable(client, "b")
    for table, message in ((mine, "of mine"), (theirs, SECRET)):
        table.append([{"timestamp": START, "message": f"{message} {at}"} for at in range(5)])
    keys["room"] = str(client.post("/firn/v1/keys", {"scope": "write"})["key"])
    for name, scope in (("mine", "write"), ("reader", "read")):
        keys[name] = str(client.post("/firn/v1/keys", {"scope": scope, "namespace": ["a"]})["key"])
    outside = folder / "outside"
    outside.mkdir()
    (outside / "secret.avro").write_text(SECRET)
    return Hostile(server, keys, mine, theirs, outside)


def foreign_uris(world: Hostile) -> list[str]:
    """Files that are not the attacker's, in every spelling that may deceive a check."""
    own, theirs = world.state(world.mine), world.state(world.theirs)
    (manifest,) = theirs.manifests[:1]
    entry = load_manifest(world.storage, manifest, theirs.table_location)[0]
    theirs_list = str(world.metadata(world.theirs)["snapshots"][-1]["manifest-list"])
    targets = [
        theirs_list,
        manifest.uri,
        entry.file.uri,
        f"file://{world.outside}/secret.avro",
        "file:///etc/passwd",
    ]
    found = [
        "file:///dev/zero",
        "file:///proc/self/environ",
        "s3://bucket/x.avro",
        "s3://key:secret@bucket/x.avro",
        "http://127.0.0.1/x.avro",
        "hdfs://x/y",
    ]
    found += [
        f"{own.location}0/metadata/x.avro",
        own.location,
        f"{own.location}/",
        f"{own.location}/metadata/",
        "",
        "x.avro",
        "data:,x",
        "file:",
    ]
    for uri in targets:
        path = str(local_path(uri))
        up = f"{'../' * own.location.count('/')}{path.lstrip('/')}"
        found += [
            uri,
            path,
            f"file:{path}",
            f"file://localhost{path}",
            f"FILE://{path}",
            f"file://user@host{path}",
            f"file:////{path}",
            f"s3a://{path}",
        ]
        found += [
            f"{own.location}/{up}",
            f"{own.location}/metadata/{up.replace('..', '%2e%2e')}",
            f"{own.location}/{up.replace('../', '..%2f')}",
        ]
        found += [
            f"{own.location}/metadata/{up.replace('..', '%252e%252e')}",
            f"{own.location}/./{up}",
            f"{own.location}//{path}",
            f"{own.location}/\\{path}",
        ]
        found += [
            f"{own.location}/metadata/../../../{uri.split('/')[-1]}",
            f"{own.location}/metadata/x?{path}",
            f"{own.location}/metadata/x#{path}",
            f"{uri}\x00",
        ]
    return found


def hostile_files(world: Hostile) -> list[str]:
    """Files below the attacker's own location that must not be read: links, a pipe, what never ends, what is
    huge, what unpacks to much."""
    state = world.state(world.mine)
    folder = local_path(state.location) / "metadata"
    theirs = local_path(world.state(world.theirs).location)
    links = {
        "link.avro": world.outside / "secret.avro",
        "theirs.avro": next((theirs / "metadata").glob("snap-*")),
        "zero.avro": Path("/dev/zero"),
    }
    for name, target in links.items():
        (folder / name).symlink_to(target)
    (folder / "folder").symlink_to(theirs / "metadata")
    os.mkfifo(folder / "pipe.avro")
    with (folder / "sparse.avro").open("wb") as file:
        file.truncate(SPARSE_BYTES)
    crafted = {
        "bomb.avro": _bomb(),
        "nothings.avro": _nothings(),
        "deep.avro": _deep(),
        "cut.avro": b"Obj\x01\x04",
        "text.avro": b"no avro",
    }
    for name, data in crafted.items():
        (folder / name).write_bytes(data)
    names = [
        *links,
        "pipe.avro",
        "sparse.avro",
        *crafted,
        f"folder/{next((theirs / 'metadata').glob('snap-*')).name}",
        "missing.avro",
    ]
    return [f"{state.location}/metadata/{name}" for name in names]


def _container(schema: Json, codec: str, blocks: Sequence[tuple[int, bytes]]) -> bytes:
    def number(value: int) -> bytes:
        zigzag, out = value << 1, bytearray()
        while zigzag > 0x7F:
            out.append(zigzag & 0x7F | 0x80)
            zigzag >>= 7
        return bytes([*out, zigzag])

    head = text("avro.codec") + text(codec) + text("avro.schema") + text(orjson.dumps(schema).decode())
    body = b"".join(number(count) + number(len(data)) + data + b"s" * 16 for count, data in blocks)
    return b"Obj\x01" + number(2) + head + b"\x00" + b"s" * 16 + body


def _bomb() -> bytes:
    """A megabyte that unpacks to a gigabyte."""
    pack = zlib.compressobj(9, wbits=-zlib.MAX_WBITS)
    packed = b"".join([*(pack.compress(bytes(2**20)) for _ in range(1024)), pack.flush()])
    return _container(
        {"type": "record", "name": "r", "fields": [{"name": "manifest_path", "type": "string"}]},
        "deflate",
        [(2**30, packed)],
    )


def _nothings() -> bytes:
    """A list of a trillion values of no bytes each."""
    schema = {
        "type": "record",
        "name": "r",
        "fields": [{"name": "x", "type": {"type": "array", "items": "null"}}],
    }
    return _container(schema, "null", [(1, b"\x80\x80\x80\x80\x80\x80\x20\x00")])


def _deep() -> bytes:
    """A record in a record in a record, as deep as the file is long."""
    schema = {"type": "record", "name": "r", "fields": [{"name": "x", "type": ["null", "r"]}]}
    return _container(schema, "null", [(1, b"\x02" * 10**6 + b"\x00")])


@dataclass
class Crafted:
    """What a commit brings: its updates, the files it needs, and the metadata that a catalog without checks
    would have made of it."""

    updates: list[Json]
    metadata: Json


def craft(world: Hostile, layer: str, uri: str, rng: random.Random) -> Crafted:
    """A commit to the attacker's table in which one layer names `uri`; everything else in it is as it should
    be."""
    state, metadata = world.state(world.mine), world.metadata(world.mine)
    name = f"{rng.getrandbits(64):016x}"
    manifest_list = f"{state.location}/metadata/{name}-list.avro"
    if layer in ("manifest", "data file", "delete file", "good"):
        lines = [state.manifests[-1], _manifest(world, state, layer, uri, name)]
        data = write_manifest_list(
            ManifestList.of(lines),
            snapshot_id=1,
            parent_id=state.head,
            sequence_number=state.sequence_number + 1,
        )
        world.storage.write(manifest_list, data)
    statistics = {"snapshot-id": state.head, "statistics-path": uri, "file-size-in-bytes": 1}
    match layer:
        case "statistics":
            return Crafted(
                [
                    {
                        "action": "set-statistics",
                        "statistics": {**statistics, "file-footer-size-in-bytes": 1, "blob-metadata": []},
                    }
                ],
                metadata,
            )
        case "partition-statistics":
            return Crafted(
                [{"action": "set-partition-statistics", "partition-statistics": statistics}], metadata
            )
    snapshot = snapshot_json(
        snapshot_id=new_snapshot_id(),
        parent_id=state.head,
        sequence_number=state.sequence_number + 1,
        timestamp_ms=int(time.time() * 1000),
        manifest_list=uri if layer == "manifest-list" else manifest_list,
        summary={"operation": "append"},
        schema_id=state.schema.id,
    )
    if layer == "manifests":
        del snapshot["manifest-list"]
        snapshot["manifests"] = [uri]
    ref = {
        "action": "set-snapshot-ref",
        "ref-name": "main",
        "type": "branch",
        "snapshot-id": snapshot["snapshot-id"],
    }
    after = {
        **metadata,
        "snapshots": [*metadata["snapshots"], snapshot],
        "current-snapshot-id": snapshot["snapshot-id"],
    }
    return Crafted([{"action": "add-snapshot", "snapshot": snapshot}, ref], after)


def _manifest(world: Hostile, state: TableState, layer: str, uri: str, name: str) -> ManifestFile:
    """The line of a new manifest, which lies where it should unless the layer is `manifest`."""
    first = load_manifest(world.storage, state.manifests[-1], state.table_location)[0]
    content = 1 if layer == "delete file" else 0
    file = replace(
        first.file, content=content, uri=uri if layer in ("data file", "delete file") else first.file.uri
    )
    own = f"{state.location}/metadata/{name}-m.avro"
    data, line = write_manifest(
        own,
        [ManifestEntry(Status.ADDED, file)],
        schema=state.schema.json,
        spec=state.spec,
        snapshot_id=1,
        sequence_number=state.sequence_number + 1,
    )
    world.storage.write(own, data)
    return replace(line, uri=uri) if layer == "manifest" else line


def send(
    client: httpx.Client,
    route: str,
    updates: Sequence[Mapping[str, Any]],
    namespace: str = "a",
    name: str = "logs",
) -> tuple[int, str]:
    """Commits by one of the routes: (status as if it had been the table's own route, the answer's text)."""
    body = {
        "identifier": {"namespace": [namespace], "name": name},
        "requirements": [],
        "updates": list(updates),
    }
    match route:
        case "table":
            response = client.post(f"/v1/namespaces/{namespace}/tables/{name}", json=body)
            return response.status_code, response.text
        case "transaction":
            response = client.post("/v1/transactions/commit", json={"table-changes": [body]})
            return response.status_code, response.text
    response = client.post("/firn/v1/commits", json={"commits": [body]})
    assert response.status_code == 200, response.text
    (result,) = response.json()["results"]
    return 200 if result["status"] == "committed" else result["error"]["code"], response.text


class Watched(AnyStorage):
    """The storage, with what was read and deleted."""

    def __init__(self) -> None:
        super().__init__(open_storage()._settings)
        self.read_bytes: dict[str, int] = {}
        self.deleted: list[str] = []

    def read(self, uri: str, *, bytes_max: int | None = None, root: str | None = None) -> bytes:
        assert bytes_max is not None, f"{uri} is read without a bound"
        assert root is not None, f"{uri} is read wherever a link leads"
        data = super().read(uri, bytes_max=bytes_max, root=root)
        self.read_bytes[uri] = len(data)
        return data

    def delete(self, uris: Any, *, root: str | None = None) -> None:
        self.deleted += uris


Reader = Callable[[Json, Watched], object]


def loaded(metadata: Json, storage: Watched, table: LogTable) -> TableState:
    """The state of metadata that a hostile commit would have made."""
    return state_of(metadata, table.name, storage)
