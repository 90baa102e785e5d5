"""Puffin files, which hold blobs beside a table's data (Puffin spec): written only, since manifests say where
each deletion vector lies."""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import orjson

MAGIC = b"PFA1"
_END = struct.Struct("<iI")  # bytes of the footer's JSON; flags: none, the JSON is not compressed
# Of a blob that is written before the snapshot that it belongs to is known (Puffin spec, "BlobMetadata").
_INHERITED = -1


@dataclass(frozen=True, slots=True)
class Blob:
    """One blob, not compressed. `fields`: ids of the columns that it is about."""

    kind: str
    data: bytes
    fields: Sequence[int]
    properties: Mapping[str, str] = field(default_factory=dict)


def encode_puffin(blobs: Sequence[Blob]) -> tuple[bytes, list[int]]:
    """The bytes of a file, and where in it each blob begins."""
    parts, offsets, at = [MAGIC], list[int](), len(MAGIC)
    for blob in blobs:
        parts.append(blob.data)
        offsets.append(at)
        at += len(blob.data)
    told = [_metadata(blob, offset) for blob, offset in zip(blobs, offsets, strict=True)]
    footer = orjson.dumps({"blobs": told, "properties": {"created-by": "Firn"}})
    return b"".join([*parts, MAGIC, footer, _END.pack(len(footer), 0), MAGIC]), offsets


def _metadata(blob: Blob, offset: int) -> dict[str, object]:
    return {
        "type": blob.kind,
        "fields": list(blob.fields),
        "snapshot-id": _INHERITED,
        "sequence-number": _INHERITED,
        "offset": offset,
        "length": len(blob.data),
        "properties": dict(blob.properties),
    }
