"""How a log table lies in the warehouse: its partition spec, its properties, its location, the names of its
files."""

import re
import uuid
from collections.abc import Mapping
from typing import Any

from lake.errors import FatalError
from lake.log_schema import TIMESTAMP
from lake.storage import canonical

PARTITION_FIELD = "timestamp_hour"
PARTITION_FIELD_ID = 1000
PARTITION_SPEC: Mapping[str, Any] = {
    "spec-id": 0,
    "fields": [
        {"source-id": 1, "field-id": PARTITION_FIELD_ID, "name": PARTITION_FIELD, "transform": "hour"}
    ],
}
# Of a keyed table: the part of its rows that the first column of its key chooses.
BUCKET_FIELD = "key_bucket"
TARGET_FILE_BYTES = 128 * 1024 * 1024
US_PER_HOUR = 3_600_000_000
_HOUR_PATH = re.compile(rf"{PARTITION_FIELD}=(-?\d{{1,6}})-(\d\d)-(\d\d)-(\d\d)$")

_BUCKET_PATH = re.compile(rf"{BUCKET_FIELD}=(\d{{1,9}})")
_BUCKETS = re.compile(r"bucket\[(\d{1,9})\]")

TENANT_PROPERTY = "firn.tenant"
STREAM_PROPERTY = "firn.stream"
# What a change of a row does to the table, and the columns of its key (a JSON array of names).
MODE_PROPERTY = "firn.mode"
KEY_PROPERTY = "firn.key"
ORDER_PROPERTY = "firn.order-by"
# The types that people declared for fields, as JSON.
DECLARED_TYPES_PROPERTY = "firn.declared-types"
# The mode of a table that keeps every change as a row; it has no key.
HISTORY = "history"
# What the stream is called that has the changes of another one, beside it.
HISTORY_SUFFIX = "_history"


def table_properties(tenant: str, stream: str) -> dict[str, str]:
    """Properties of a new log table (Iceberg spec and "Configuration / Table properties" of its
    documentation)."""
    return {
        "format-version": "2",
        "write.format.default": "parquet",
        "write.parquet.compression-codec": "zstd",
        "write.target-file-size-bytes": str(TARGET_FILE_BYTES),
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "10",
        "write.summary.partition-limit": "1000",
        TENANT_PROPERTY: tenant,
        STREAM_PROPERTY: stream,
    }


def new_location(warehouse: str) -> tuple[str, str]:
    """A new table's location and uuid. The path is made of the uuid alone, so that no text of a record ever
    becomes a path."""
    table_uuid = str(uuid.uuid4())
    return f"{canonical(warehouse).rstrip('/')}/{table_uuid[:2]}/{table_uuid}", table_uuid


def bucket_spec(source_id: int, buckets: int) -> Mapping[str, Any]:
    """The partition spec of a keyed table. `source_id`: the field id of the first column of its key."""
    field = {
        "source-id": source_id,
        "field-id": PARTITION_FIELD_ID,
        "name": BUCKET_FIELD,
        "transform": f"bucket[{buckets}]",
    }
    return {"spec-id": 0, "fields": [field]}


def buckets_of_spec(spec: Mapping[str, Any]) -> int:
    """How many buckets a spec has; 0 where it is no spec by bucket."""
    match = _BUCKETS.fullmatch(str(spec["fields"][0]["transform"])) if spec["fields"] else None
    return 0 if match is None else int(match[1])


def data_file_uri(location: str, partition: object) -> str:
    """A fresh URI for a data file of an hour (hours since 1970-01-01T00Z), a bucket or a span."""
    return f"{location}/data/{partition}/{uuid.uuid4().hex}.parquet"


def position_deletes_uri(location: str, partition: object) -> str:
    """A fresh URI for a position delete file of a partition."""
    return f"{location}/data/{partition}/{uuid.uuid4().hex}-deletes.parquet"


def deletion_vectors_uri(location: str) -> str:
    """A fresh URI for the Puffin file of the deletion vectors of one commit, whatever their partitions."""
    return f"{location}/data/{uuid.uuid4().hex}-deletes.puffin"


def metadata_uri(location: str, name: str) -> str:
    """The URI of a manifest or manifest list."""
    return f"{location}/metadata/{name}"


def find_spec(metadata: Mapping[str, Any]) -> int:
    """The id of the spec by which Firn writes the table: by hour, or, of a keyed table, by bucket. Raises
    FatalError where somebody took it away."""
    if KEY_PROPERTY not in metadata.get("properties", {}):
        return find_hour_spec(metadata)
    for spec in metadata["partition-specs"]:
        if [f["name"] for f in spec["fields"]] == [BUCKET_FIELD]:
            return int(spec["spec-id"])
    raise FatalError(
        f"table {metadata['location']} has no partition spec {BUCKET_FIELD}, which a keyed table has from "
        "its creation on; drop the table so that it is created anew, or take its property firn.key away"
    )


def find_hour_spec(metadata: Mapping[str, Any]) -> int:
    """The id of the table's spec that is `hour(timestamp)` and nothing else. Raises FatalError where somebody
    took it away."""
    schema = next(s for s in metadata["schemas"] if s["schema-id"] == metadata["current-schema-id"])
    timestamp = next((f["id"] for f in schema["fields"] if f["name"] == TIMESTAMP), None)
    for spec in metadata["partition-specs"]:
        if [(f["source-id"], f["transform"]) for f in spec["fields"]] == [(timestamp, "hour")]:
            return int(spec["spec-id"])
    raise FatalError(
        f"table {metadata['location']} has no partition spec hour({TIMESTAMP}); add it back with ALTER TABLE "
        "... SET PROPERTIES partitioning"
    )


def bucket_path(bucket: int) -> str:
    """The partition's name of a bucket in snapshot summaries and listings."""
    return f"{BUCKET_FIELD}={bucket}"


def parse_bucket_path(path: str) -> int | None:
    """The bucket that a name of `bucket_path` stands for; None where it is no name of a bucket."""
    match = _BUCKET_PATH.fullmatch(path)
    return None if match is None else int(match[1])


def partition_path(hour: int) -> str:
    """The partition's name in snapshot summaries and listings, as Iceberg spells it:
    `timestamp_hour=2026-11-21-09`."""
    days, hour_of_day = divmod(hour, 24)
    year, month, day = civil_date(days)
    return f"{PARTITION_FIELD}={year:04d}-{month:02d}-{day:02d}-{hour_of_day:02d}"


def parse_partition_path(path: str) -> int | None:
    """The hour (since 1970-01-01T00Z) that a name of `partition_path` stands for; None where it is no name of
    an hour partition."""
    match = _HOUR_PATH.match(path)
    if match is None:
        return None
    year, month, day, hour_of_day = (int(part) for part in match.groups())
    return days_since_epoch(year, month, day) * 24 + hour_of_day


def days_since_epoch(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01 of a date, the inverse of `civil_date`: Hinnant's days_from_civil."""
    year -= month <= 2
    era, year_of_era = divmod(year, 400)
    day_of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    return era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719_468


def civil_date(days: int) -> tuple[int, int, int]:
    """Days since 1970-01-01 to a proleptic Gregorian date; unlike `datetime` also before year 1 and after
    9999.

    Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", civil_from_days.
    """
    era, day_of_era = divmod(days + 719_468, 146_097)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted_month = (5 * day_of_year + 2) // 153
    month = shifted_month + 3 if shifted_month < 10 else shifted_month - 9
    return year_of_era + era * 400 + (month <= 2), month, day_of_year - (153 * shifted_month + 2) // 5 + 1
