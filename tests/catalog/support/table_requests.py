"""Bodies of requests that many tests send."""

import random
import time
from typing import Any

Json = dict[str, Any]
NOWHERE = "file:///nowhere"

JSON = {"Content-Type": "application/json"}  # for bodies that are sent as bytes
SCHEMA: Json = {
    "type": "struct",
    "fields": [
        {"id": 1, "name": "timestamp", "type": "timestamptz", "required": False},
        {"id": 2, "name": "message", "type": "string", "required": False},
        {
            "id": 3,
            "name": "errors",
            "required": False,
            "type": {"type": "list", "element-id": 4, "element": "string", "element-required": False},
        },
    ],
}
SPEC: Json = {"spec-id": 0, "fields": [{"source-id": 1, "transform": "hour", "name": "timestamp_hour"}]}


def create_body(name: str, **fields: Any) -> Json:
    """The body of createTable."""
    return {"name": name, "schema": SCHEMA, "partition-spec": SPEC, "properties": {}, **fields}


def append(
    parent: int | None,
    sequence_number: int,
    *,
    snapshot_id: int | None = None,
    summary: dict[str, str] | None = None,
    folder: str = NOWHERE,
) -> list[Json]:
    """The updates of an append to main. `folder`: where its manifest list would lie."""
    snapshot = {
        "snapshot-id": snapshot_id or random.getrandbits(62),
        "sequence-number": sequence_number,
        "timestamp-ms": int(time.time() * 1000),
        "manifest-list": f"{folder}/snap.avro",
        "summary": {"operation": "append", **(summary or {})},
        "schema-id": 0,
    }
    if parent is not None:
        snapshot["parent-snapshot-id"] = parent
    ref = {
        "action": "set-snapshot-ref",
        "ref-name": "main",
        "type": "branch",
        "snapshot-id": snapshot["snapshot-id"],
    }
    return [{"action": "add-snapshot", "snapshot": snapshot}, ref]


def main_is(snapshot_id: int | None) -> Json:
    """The requirement that main points at a snapshot, or at none."""
    return {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": snapshot_id}
