"""Where a table's files lie and what its partitions are called."""

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lake.errors import FatalError
from lake.log_schema import new_log_schema
from lake.table_layout import (
    PARTITION_SPEC,
    data_file_uri,
    find_hour_spec,
    metadata_uri,
    new_location,
    partition_path,
    table_properties,
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST = int((datetime(1, 1, 1, tzinfo=UTC) - EPOCH) / timedelta(hours=1))
LAST = int((datetime(9999, 12, 31, 23, tzinfo=UTC) - EPOCH) / timedelta(hours=1))


@given(st.integers(FIRST, LAST))
def test_partition_is_called_as_the_calendar_says(hour: int) -> None:
    """Hours since 1970 become `timestamp_hour=YYYY-MM-DD-HH`, the same as datetime's."""
    moment = EPOCH + timedelta(hours=hour)
    assert (
        partition_path(hour)
        == f"timestamp_hour={moment.year:04d}-{moment.month:02d}-{moment.day:02d}-{moment.hour:02d}"
    )


@pytest.mark.parametrize(
    ("hour", "path"),
    [
        (FIRST, "0001-01-01-00"),
        (FIRST - 1, "0000-12-31-23"),
        (FIRST - 24 * 366, "0000-01-01-00"),
        (FIRST - 24 * 366 - 1, "-001-12-31-23"),
        (LAST, "9999-12-31-23"),
        (LAST + 1, "10000-01-01-00"),
        (0, "1970-01-01-00"),
        (-1, "1969-12-31-23"),
        (24 * 11_016, "2000-02-29-00"),
    ],
)
def test_partition_has_a_name_where_datetime_has_none(hour: int, path: str) -> None:
    """Years before 1 and after 9999 have names too: a record may claim any time."""
    assert partition_path(hour) == f"timestamp_hour={path}"


@given(st.integers(-(2**31), 2**31 - 2))
def test_following_partitions_have_different_names(hour: int) -> None:
    """Over the whole range of an int no two neighbouring hours share a name."""
    assert partition_path(hour) != partition_path(hour + 1)


def test_location_is_made_of_the_uuid_alone() -> None:
    """No text of a record becomes a path; the warehouse's spelling is made canonical."""
    location, table_uuid = new_location("file:/data/warehouse/")
    assert location == f"file:///data/warehouse/{table_uuid[:2]}/{table_uuid}"
    assert uuid.UUID(table_uuid).version == 4
    assert data_file_uri(location, -3).startswith(f"{location}/data/-3/")
    assert data_file_uri(location, 5) != data_file_uri(location, 5)
    assert metadata_uri(location, "x.avro") == f"{location}/metadata/x.avro"


def test_properties_name_tenant_and_stream_and_bound_the_metadata() -> None:
    """A new table is format version 2, keeps ten old metadata files, and says whose it is."""
    properties = table_properties("Acme", "logs")
    assert properties["format-version"] == "2"
    assert (
        properties["write.metadata.delete-after-commit.enabled"],
        properties["write.metadata.previous-versions-max"],
    ) == ("true", "10")
    assert (properties["firn.tenant"], properties["firn.stream"]) == ("Acme", "logs")


def _metadata(*specs: dict[str, Any]) -> dict[str, Any]:
    return {
        "schemas": [new_log_schema().json],
        "current-schema-id": 0,
        "partition-specs": list(specs),
        "location": "file:///t",
    }


def test_spec_by_hour_is_found_among_others() -> None:
    """Somebody's other partition spec does not change where rows go."""
    by_day = {"spec-id": 0, "fields": [{"source-id": 1, "field-id": 1000, "name": "d", "transform": "day"}]}
    assert find_hour_spec(_metadata(by_day, {**PARTITION_SPEC, "spec-id": 7})) == 7


def test_table_without_the_spec_by_hour_is_refused_with_advice() -> None:
    """A table that is not partitioned by hour is no log table."""
    with pytest.raises(FatalError, match="partition spec hour"):
        find_hour_spec(_metadata({"spec-id": 0, "fields": []}))
