"""Counts what lies in each partition of a table from its manifests: the truth behind the dirty-partition
index."""

from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import structlog
from sqlalchemy import text

from catalog.commit.dirty_partitions import Counts, encode_part, replace_counts, uncounted
from catalog.commit.schemas import Field, check_schema
from catalog.commit.table_changes import read_metadata
from catalog.commit.table_metadata import normalised
from catalog.store.database import Database
from catalog.store.metadata_store import MetadataStore, parse_metadata
from lake.avro import read_container
from lake.avro_bounds import BLOCK_BYTES_MAX
from lake.errors import FirnError, ProtocolError
from lake.manifest import ENTRY_BLOCK_BYTES_MAX
from lake.table_location import TableLocation

log = structlog.get_logger()
Json = dict[str, Any]
TABLES_AT_ONCE = 50
TRIES_MAX = 5
_DELETED = 2
_EPOCH = date(1970, 1, 1)


def count_partitions(metadata: Json, read: Callable[[str], bytes]) -> dict[str, Counts]:
    """Live files of the head of main, by partition path as Iceberg's summaries spell it. Raises what `read`
    raises, or ProtocolError."""
    head = metadata.get("current-snapshot-id")
    snapshot = next((item for item in metadata["snapshots"] if item["snapshot-id"] == head), None)
    if snapshot is None:
        return {}
    schemas = [check_schema(schema, metadata["format-version"]) for schema in metadata["schemas"]]
    fields = {field_id: field for schema in schemas for field_id, field in schema.items()}
    specs = {spec["spec-id"]: spec["fields"] for spec in metadata["partition-specs"]}
    try:
        return _counted(metadata, snapshot, specs, fields, read)
    except (KeyError, ValueError, TypeError, AttributeError, OverflowError) as error:
        raise ProtocolError(
            f"the manifests of {metadata['location']} are not as the Iceberg specification has them "
            f"({error!r}); roll it back"
        ) from error


def _counted(
    metadata: Json,
    snapshot: Json,
    specs: dict[int, list[Json]],
    fields: dict[int, Field],
    read: Callable[[str], bytes],
) -> dict[str, Counts]:
    counts: dict[str, Counts] = {}
    manifests: Iterable[Json] = [{"manifest_path": path} for path in snapshot.get("manifests", ())]
    if "manifest-list" in snapshot:
        manifests = _records(read(snapshot["manifest-list"]))
    for manifest in manifests:
        spec_id: Any = manifest.get("partition_spec_id", metadata["default-spec-id"])
        spec = specs.get(spec_id, [])
        for entry in _records(read(manifest["manifest_path"]), block_bytes_max=ENTRY_BLOCK_BYTES_MAX):
            if entry["status"] == _DELETED:
                continue
            file = entry["data_file"]
            path = partition_path(spec, file["partition"], fields)
            is_data = file.get("content", 0) == 0
            one = Counts(
                int(is_data),
                int(not is_data),
                file["file_size_in_bytes"],
                file["record_count"] if is_data else 0,
            )
            counts[path] = counts.get(path, Counts()) + one
    return counts


def _records(data: bytes, *, block_bytes_max: int = BLOCK_BYTES_MAX) -> Iterator[Json]:
    return read_container(data, "a manifest or manifest list", block_bytes_max=block_bytes_max)


def partition_path(spec: list[Json], values: Mapping[str, Any], fields: Mapping[int, Field]) -> str:
    """`name=value/...`, values as people read them, both URL-encoded as Java does it."""
    parts = []
    for at, item in enumerate(spec):
        stored = list(values.values())
        value = values[item["name"]] if item["name"] in values else stored[at] if at < len(stored) else None
        source = fields.get(item["source-id"])
        told = _human(value, item["transform"], source.type if source else "string")
        parts.append(f"{encode_part(item['name'])}={encode_part(told)}")
    return "/".join(parts)


def _human(value: Any, transform: str, source: Any) -> str:
    if value is None or transform == "void":
        return "null"
    if transform == "year":
        return str(1970 + int(value))
    if transform == "month":
        return f"{1970 + int(value) // 12:04d}-{int(value) % 12 + 1:02d}"
    if transform == "day":
        return (value if isinstance(value, date) else _EPOCH + timedelta(days=int(value))).isoformat()
    if transform == "hour":
        day = _EPOCH + timedelta(days=int(value) // 24)
        return f"{day.isoformat()}-{int(value) % 24:02d}"
    return _plain(value, str(source))


def _plain(value: Any, source: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return _java_time(value.replace(tzinfo=None).isoformat(timespec="microseconds")) + (
            "+00:00" if source == "timestamptz" else ""
        )
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, time):
        return _java_time(value.isoformat(timespec="microseconds"))
    if isinstance(value, int) and source in ("timestamp", "timestamptz"):
        moment = datetime(1970, 1, 1) + timedelta(microseconds=value)  # noqa: DTZ001 - the zone is added as text
        return _plain(moment, source)
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, bytes):
        return str(UUID(bytes=value)) if source == "uuid" else b64encode(value).decode()
    return str(value)


def _java_time(iso: str) -> str:
    """Java leaves out a fraction of zero, and a fraction's last three zeros."""
    whole, _, fraction = iso.partition(".")
    if fraction == "000000":
        return whole[:-3] if whole.endswith(":00") and whole.count(":") == 2 else whole
    return f"{whole}.{fraction[:3]}" if fraction.endswith("000") else iso


def recount(database: Database, store: MetadataStore, table_id: int, location: str, now_ms: int) -> bool:
    """Counts one table at a metadata file; False where the table went on meanwhile and has to be counted
    again."""
    metadata = normalised(parse_metadata(read_metadata(store, location)))
    table_location = TableLocation.of(metadata)
    counts = count_partitions(metadata, lambda uri: store.read_of_table(uri, table_location))
    with database.write() as connection:
        found = connection.execute(
            text(f"SELECT metadata_location FROM tables WHERE id = :id{database.locking()}"),
            {"id": table_id},
        ).scalar()
        if found != location:
            return False
        replace_counts(connection, table_id, counts, now_ms)
    return True


def count_what_is_uncounted(database: Database, store: MetadataStore, now_ms: int) -> int:
    """Counts tables whose summaries did not tell, a bounded number at a time; returns how many. One that
    cannot be counted is tried a few times."""
    with database.read() as connection:
        waiting = uncounted(connection, limit=TABLES_AT_ONCE, tries_max=TRIES_MAX)
    done = 0
    for table_id, location in waiting:
        try:
            done += recount(database, store, table_id, location, now_ms)
        except FirnError as error:
            log.warning("catalog.table_not_counted", location=location, error=str(error))
            with database.write() as connection:
                connection.execute(
                    text("UPDATE uncounted_tables SET tries = tries + 1 WHERE table_id = :id"),
                    {"id": table_id},
                )
    return done
