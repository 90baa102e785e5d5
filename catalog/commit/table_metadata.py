"""A table's metadata as a whole: how it begins, how it is normalised when it comes from elsewhere, how a
version is finished.

Iceberg table specification, "Table Metadata". The order of keys follows the specification; nobody depends on
it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from catalog.access.locations import check_file, check_paths, is_administrator, table_location_of
from catalog.commit.schemas import (
    PARTITION_FIELD_START,
    by_id,
    check_order,
    check_schema,
    check_spec,
    first_schema,
    spec_fields,
)
from catalog.commit.updates import CLOCK_SKEW_MS, FORMAT_VERSION_MAX, Draft
from catalog.model.error_response import bad_request, invalid
from catalog.model.json_fields import boolean, mapping, optional_integer, properties
from lake.table_location import GRANTS_PROPERTY, NOWHERE

Json = dict[str, Any]
FORMAT_VERSION_DEFAULT = 2
PREVIOUS_VERSIONS_MAX_DEFAULT = 100
# Set by the catalog or derived from the metadata; as table properties they would only contradict it.
RESERVED_PROPERTIES = frozenset(
    {
        "format-version",
        "uuid",
        "snapshot-count",
        "current-snapshot-summary",
        "current-snapshot-id",
        "current-snapshot-timestamp-ms",
        "current-schema",
        "default-partition-spec",
        "default-sort-order",
    }
)
# Iceberg's own catalogs persist this default in each new table.
CREATION_DEFAULTS = {"write.parquet.compression-codec": "zstd"}


def new_metadata(request: Json, *, uuid: str, location: str, now_ms: int) -> Json:
    """The first metadata of a table from the body of createTable: fresh field ids, spec and order bound to
    them. With `keep-field-ids` (Firn's own extension), the schema's ids stay: files may be written with them
    already. Raises CatalogError 400."""
    given = properties(request, "properties")
    version = _format_version(given)
    keeps_ids = request.get("keep-field-ids") is True
    schema = first_schema(mapping(request, "schema"), version, keeps_ids=keeps_ids)
    spec = _fresh_fields(spec_fields(request, "partition-spec"), schema.mapped, "partition field")
    order = _fresh_fields(spec_fields(request, "write-order"), schema.mapped, "sort field")
    check_spec(spec, schema.fields)
    check_order(order, schema.fields)
    bound = _bound(spec)
    sorted_by = [
        {key: item[key] for key in ("transform", "source-id", "direction", "null-order")} for item in order
    ]
    metadata = empty_metadata(version, now_ms)
    metadata.update(
        {
            "table-uuid": uuid,
            "location": location,
            "last-column-id": schema.last_id,
            "current-schema-id": 0,
            "schemas": [schema.json],
            "default-spec-id": 0,
            "partition-specs": [{"spec-id": 0, "fields": bound}],
            "last-partition-id": PARTITION_FIELD_START - 1 + len(bound),
            "default-sort-order-id": 1 if sorted_by else 0,
            "sort-orders": [{"order-id": 1 if sorted_by else 0, "fields": sorted_by}],
            "properties": CREATION_DEFAULTS
            | {key: value for key, value in given.items() if key not in RESERVED_PROPERTIES},
        }
    )
    _fill_version_1(metadata)
    return metadata


def _bound(spec: Sequence[Json]) -> list[Json]:
    """Partition fields with the first ids that there are."""
    return [
        {
            "source-id": item["source-id"],
            "field-id": PARTITION_FIELD_START + at,
            "name": item["name"],
            "transform": item["transform"],
        }
        for at, item in enumerate(spec)
    ]


def _format_version(given: dict[str, str]) -> int:
    text = given.get("format-version", str(FORMAT_VERSION_DEFAULT))
    if text not in {str(version) for version in range(1, FORMAT_VERSION_MAX + 1)}:
        raise invalid(f"Unsupported format version: v{text} (supported: v{FORMAT_VERSION_MAX})")
    return int(text)


def _fresh_fields(fields: list[Json], mapped: Mapping[int, int], what: str) -> list[Json]:
    for item in fields:
        if item.get("source-id") not in mapped:
            raise invalid(f"Cannot find source column for {what}: source id {item.get('source-id')}")
    return [{**item, "source-id": mapped[item["source-id"]]} for item in fields]


def empty_metadata(format_version: int, now_ms: int) -> Json:
    """Metadata of a table that has nothing yet, for commits that create."""
    metadata: Json = {
        "format-version": format_version,
        "table-uuid": None,
        "location": None,
        "last-sequence-number": 0,
        "last-updated-ms": now_ms,
        "last-column-id": 0,
        "current-schema-id": -1,
        "schemas": [],
        "default-spec-id": -1,
        "partition-specs": [],
        "last-partition-id": PARTITION_FIELD_START - 1,
        "default-sort-order-id": -1,
        "sort-orders": [],
        "properties": {},
        "snapshots": [],
        "refs": {},
        "snapshot-log": [],
        "metadata-log": [],
    }
    if format_version >= 3:
        metadata["next-row-id"] = 0
    return metadata


def normalised(metadata: Json) -> Json:
    """Fills what older writers leave out (format version 1 without lists of schemas and specs). Raises
    CatalogError 400 for what is no table metadata."""
    if (
        not isinstance(metadata, dict)
        or not isinstance(metadata.get("format-version"), int)
        or "location" not in metadata
    ):
        raise bad_request("the metadata file holds no Iceberg table metadata")
    _fill_lists(metadata)
    for key, empty in (
        ("properties", {}),
        ("snapshots", []),
        ("refs", {}),
        ("snapshot-log", []),
        ("metadata-log", []),
    ):
        if metadata.get(key) is None:
            metadata[key] = empty
    metadata.setdefault("last-sequence-number", 0)
    if metadata.get("current-snapshot-id") in (-1, None):
        metadata.pop("current-snapshot-id", None)
    elif "main" not in metadata["refs"]:
        metadata["refs"]["main"] = {"snapshot-id": metadata["current-snapshot-id"], "type": "branch"}
    return metadata


def _fill_lists(metadata: Json) -> None:
    """The schema, partition spec and sort order of format version 1 as the only ones of their lists."""
    if "schemas" not in metadata:
        metadata["schemas"] = [{"schema-id": 0, **mapping(metadata, "schema")}]
        metadata["current-schema-id"] = metadata["schemas"][0]["schema-id"]
    if "partition-specs" not in metadata:
        fields = [
            {"field-id": PARTITION_FIELD_START + at, **item}
            for at, item in enumerate(metadata.get("partition-spec", []))
        ]
        metadata["partition-specs"] = [{"spec-id": 0, "fields": fields}]
        metadata["default-spec-id"] = 0
    if "last-partition-id" not in metadata:
        ids = [item["field-id"] for spec in metadata["partition-specs"] for item in spec["fields"]]
        metadata["last-partition-id"] = max(ids, default=PARTITION_FIELD_START - 1)
    if "sort-orders" not in metadata:
        metadata["sort-orders"] = [{"order-id": 0, "fields": []}]
        metadata["default-sort-order-id"] = 0


def finish(draft: Draft, *, previous_location: str | None, previous_updated_ms: int) -> list[str]:
    """Makes a changed draft a complete next version: logs, times, checks. Returns metadata files that nobody
    needs after the commit. Raises CatalogError 400 where the changes do not go together."""
    metadata = draft.metadata
    _check_bound(metadata)
    _check_named_files(draft)
    _trim_snapshot_log(draft)
    _fill_version_1(metadata)
    log = metadata["metadata-log"]
    latest_ms = max((entry["timestamp-ms"] for entry in metadata["snapshot-log"][-1:]), default=0)
    metadata["last-updated-ms"] = max(draft.now_ms, previous_updated_ms, latest_ms - CLOCK_SKEW_MS)
    if previous_location is None:
        return []
    kept = [*log, {"metadata-file": previous_location, "timestamp-ms": previous_updated_ms}][
        -_versions_max(metadata["properties"]) :
    ]
    metadata["metadata-log"] = kept
    if metadata["properties"].get("write.metadata.delete-after-commit.enabled") != "true":
        return []
    staying = {entry["metadata-file"] for entry in kept}
    gone = [entry["metadata-file"] for entry in log if entry["metadata-file"] not in staying]
    table_location = (
        table_location_of(metadata["location"], metadata["properties"].get(GRANTS_PROPERTY))
        if gone
        else NOWHERE
    )
    return [uri for uri in gone if table_location.holds(uri)]


def _fill_version_1(metadata: Json) -> None:
    """Repeats the current schema and spec under the names that readers of format version 1 require."""
    if metadata["format-version"] == 1:
        metadata["schema"] = by_id(metadata["schemas"], "schema-id", metadata["current-schema-id"])
        metadata["partition-spec"] = (
            by_id(metadata["partition-specs"], "spec-id", metadata["default-spec-id"]) or {}
        )["fields"]


def _versions_max(given: dict[str, str]) -> int:
    text = given.get("write.metadata.previous-versions-max", "")
    return (
        max(1, int(text))
        if text.isascii() and text.isdigit() and len(text) < 10
        else PREVIOUS_VERSIONS_MAX_DEFAULT
    )


def _check_bound(metadata: Json) -> None:
    """Default spec and order must find their columns in the current schema."""
    schema = by_id(metadata["schemas"], "schema-id", metadata["current-schema-id"])
    spec = by_id(metadata["partition-specs"], "spec-id", metadata["default-spec-id"])
    order = by_id(metadata["sort-orders"], "order-id", metadata["default-sort-order-id"])
    if not metadata["location"] or schema is None or spec is None or order is None:
        raise invalid(
            "a table needs a location, a current schema, a default partition spec and a default sort order; "
            "send the updates that set them"
        )
    wanted = {item["source-id"] for item in spec["fields"] if item["transform"] != "void"} | {
        item["source-id"] for item in order["fields"]
    }
    if wanted and not wanted <= {item["id"] for item in schema["fields"]}:
        fields = check_schema(schema, metadata["format-version"])
        check_spec(spec["fields"], fields)
        check_order(order["fields"], fields)


def _check_named_files(draft: Draft) -> None:
    """Every file and path that the updates named has to be the table's own. Raises CatalogError 403."""
    if not draft.named and not draft.paths_changed:
        return
    metadata = draft.metadata
    more = draft.allowed if is_administrator(draft.by) else ()
    table_location = table_location_of(
        metadata["location"], metadata["properties"].get(GRANTS_PROPERTY), more
    )
    for what, uri in draft.named:
        check_file(table_location, what, uri)
    if draft.paths_changed:
        check_paths(table_location, metadata["properties"])


def _trim_snapshot_log(draft: Draft) -> None:
    """Leaves out snapshots that were the head only inside this commit, and history before a snapshot that is
    gone (a gap would make time travel lie)."""
    metadata = draft.metadata
    current = metadata.get("current-snapshot-id")
    passing = {head for head in draft.main_heads if head in draft.added_snapshots and head != current}
    if not passing and not draft.removed_snapshots:
        return
    known = {snapshot["snapshot-id"] for snapshot in metadata["snapshots"]}
    log: list[Json] = []
    for entry in metadata["snapshot-log"]:
        if entry["snapshot-id"] in known:
            if entry["snapshot-id"] not in passing:
                log.append(entry)
        elif draft.removed_snapshots:
            log.clear()
    if current is not None and (not log or log[-1]["snapshot-id"] != current):
        raise invalid("Cannot set invalid snapshot log: latest entry is not the current snapshot")
    metadata["snapshot-log"] = log


def metadata_file(metadata: Json, version: int, file_id: str) -> str:
    """Where version N of a table's metadata goes: `<location>/metadata/0000N-<uuid>.metadata.json`, gzipped
    when the table asks for it."""
    folder = (
        metadata["properties"].get("write.metadata.path") or f"{metadata['location'].rstrip('/')}/metadata"
    )
    packed = (
        ".gz"
        if metadata["properties"].get("write.metadata.compression-codec", "none").lower() == "gzip"
        else ""
    )
    return f"{folder.rstrip('/')}/{version:05d}-{file_id}{packed}.metadata.json"


def version_of(location: str | None) -> int:
    """The version in a metadata file's name, -1 where there is none."""
    digits = (location or "").rsplit("/", 1)[-1].split("-", 1)[0]
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 10 else -1


def is_staged(request: Json) -> bool:
    """Whether createTable only prepares. Raises CatalogError 400."""
    return boolean(request, "stage-create")


def historical_snapshots_removed(metadata: Json) -> Json:
    """The metadata with only the snapshots that branches and tags point at (`snapshots=refs`)."""
    wanted = {ref["snapshot-id"] for ref in metadata.get("refs", {}).values()}
    return {
        **metadata,
        "snapshots": [
            snapshot for snapshot in metadata.get("snapshots", []) if snapshot["snapshot-id"] in wanted
        ],
    }


def requested_version(updates: list[Json]) -> int:
    """The format version a creating commit asks for. Raises CatalogError 400."""
    for update in updates:
        if update.get("action") == "upgrade-format-version":
            version = optional_integer(update, "format-version")
            if version is None or not 1 <= version <= FORMAT_VERSION_MAX:
                raise invalid(f"Unsupported format version: v{version} (supported: v{FORMAT_VERSION_MAX})")
            return version
    return FORMAT_VERSION_DEFAULT
