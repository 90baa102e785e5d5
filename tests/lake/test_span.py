"""Days and months as partitions: which hours they have, what they are called, how manifests hold them."""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fastavro import reader
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import read_manifest_list as theirs

from lake.data_file import DATA, POSITION_DELETES, DataFile
from lake.log_schema import new_log_schema
from lake.manifest import ManifestEntry, Status, read_manifest, write_manifest
from lake.manifest_list import ManifestList, write_manifest_list
from lake.span import Span, SpanSpecs, Unit, in_order, parse_span_path, span_in
from lake.table_layout import PARTITION_FIELD_ID, PARTITION_SPEC

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST = int((datetime(1, 1, 1, tzinfo=UTC) - EPOCH) / timedelta(hours=1))
LAST = int((datetime(9999, 11, 30, tzinfo=UTC) - EPOCH) / timedelta(hours=1))
SCHEMA = new_log_schema()
NONE_YET = SpanSpecs.of([PARTITION_SPEC], 1, PARTITION_FIELD_ID)


@given(st.integers(FIRST, LAST), st.sampled_from(Unit))
def test_an_hour_is_of_the_day_and_month_that_the_calendar_says(hour: int, unit: Unit) -> None:
    """Value, hours, name and its inverse, held against datetime."""
    moment, span = EPOCH + timedelta(hours=hour), Span.holding(unit, hour)
    begins = moment.replace(hour=0, day=moment.day if unit is Unit.DAY else 1)
    ends = begins + timedelta(days=1) if unit is Unit.DAY else (begins + timedelta(days=31)).replace(day=1)
    assert span.hours == range(*((at - EPOCH) // timedelta(hours=1) for at in (begins, ends)))
    assert str(span) == begins.date().isoformat()[: 10 if unit is Unit.DAY else 7]
    assert span.path == f"timestamp_{unit.value}={span}"
    assert parse_span_path(span.path) == span
    assert all(Span.holding(unit, each) == span for each in (span.hours[0], span.hours[-1]))
    assert Span.holding(unit, span.hours.stop) != span


@pytest.mark.parametrize(
    "path",
    [
        "timestamp_hour=2026-11-21-09",
        "timestamp_day=2026-11",
        "timestamp_month=2026-11-21",
        "timestamp_day=x-1-1",
    ],
)
def test_other_names_are_no_spans(path: str) -> None:
    """Neither those of hours nor those with too few or too many parts."""
    assert parse_span_path(path) is None


def test_a_month_takes_in_its_hours_its_days_and_itself() -> None:
    """February of a leap year: 696 hours, 29 days and the month; order is by kind first."""
    month = Span.holding(Unit.MONTH, 24 * 11_016)
    parts = month.parts()
    assert str(month) == "2000-02"
    assert len(parts) == 29 * 24 + 29 + 1
    assert sorted(parts, key=in_order) == parts


def _file(span: Span, content: int = DATA) -> DataFile:
    return DataFile("file:///t/a.parquet", None, 3, 10, content, span=span)


@pytest.mark.parametrize("content", [DATA, POSITION_DELETES])
@pytest.mark.parametrize(("unit", "value"), [(Unit.DAY, 20_778), (Unit.DAY, -3), (Unit.MONTH, 682)])
def test_manifests_of_spans_come_back_here_and_in_pyiceberg(
    tmp_path: Path, unit: Unit, value: int, content: int
) -> None:
    """A manifest names its own spec, its field's own id, and days as Avro's dates, as Iceberg's library has
    them; what is read is the span, and its bounds are those of the manifest list's line."""
    specs = NONE_YET.having(unit, 1)
    uri, span = f"file://{tmp_path}/m.avro", Span(unit, value)
    entries = [ManifestEntry(Status.ADDED, _file(span, content))]
    data, line = write_manifest(
        uri, entries, schema=SCHEMA.json, spec=specs.known[unit], snapshot_id=5, sequence_number=2
    )
    (tmp_path / "m.avro").write_bytes(data)
    assert [entry.file for entry in read_manifest(data, line)] == [_file(span, content)]
    assert line.spec_id == 1
    assert line.partitions is not None
    assert line.partitions[0]["lower_bound"] == value.to_bytes(4, "little", signed=True)
    listed = tmp_path / "l.avro"
    listed.write_bytes(
        write_manifest_list(ManifestList.of([line]), snapshot_id=5, parent_id=None, sequence_number=2)
    )
    io = PyArrowFileIO()
    (manifest,) = theirs(io.new_input(f"file://{listed}"))
    (entry,) = manifest.fetch_manifest_entry(io)
    assert manifest.partition_spec_id == 1
    # PyIceberg gives what Avro says: a date as a date.
    told = entry.data_file.partition[0]
    assert (told - date(1970, 1, 1)).days == value if isinstance(told, date) else told == value
    with (tmp_path / "m.avro").open("rb") as file:
        written: Any = reader(file)  # its schema is a tree of dicts
        data_file = written.writer_schema["fields"][-1]["type"]["fields"]
        (partition,) = (field["type"]["fields"] for field in data_file if field["name"] == "partition")
        assert (partition[0]["name"], partition[0]["field-id"]) == (unit.field, 1001)


def test_a_spec_is_used_again_and_a_new_one_is_numbered_after_all() -> None:
    """One of the same column, transform and name is taken as it is; one by another name is another's."""
    day = {"source-id": 1, "field-id": 1007, "name": "timestamp_day", "transform": "day"}
    named_otherwise = {**day, "name": "d"}
    found = SpanSpecs.of([PARTITION_SPEC, {"spec-id": 3, "fields": [day]}], 1, 1_010)
    assert found.having(Unit.DAY, 1) is found
    assert found.unit_of(3) is Unit.DAY
    month = found.having(Unit.MONTH, 1).known[Unit.MONTH]
    assert (month["spec-id"], month["fields"][0]["field-id"]) == (4, 1_011)
    assert not SpanSpecs.of([PARTITION_SPEC, {"spec-id": 3, "fields": [named_otherwise]}], 1, 0).known
    assert not SpanSpecs.of([PARTITION_SPEC, {"spec-id": 3, "fields": [day, day]}], 1, 0).known


def test_partitions_of_several_fields_are_no_spans() -> None:
    """Somebody who adds days to the hours has a spec of two fields."""
    assert span_in({"timestamp_hour": 5, "timestamp_day": 0}) is None
    assert span_in({"timestamp_day": None}) is None
    assert span_in({"timestamp_day": "Monday"}) is None  # of somebody's own column
    assert span_in({"timestamp_day": date(1970, 1, 3)}) == span_in({"timestamp_day": 2}) == Span(Unit.DAY, 2)
