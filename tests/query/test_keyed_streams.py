"""What search makes of a table whose rows changes replace: its pins, its counts, what it says of itself."""

from datetime import timedelta
from typing import Any

import orjson
import pytest

from lake.catalog_client import TableName
from lake.change_counts import CHANGES_PROPERTY, change_counts, counted_changes
from lake.data_file import EQUALITY_DELETES, POSITION_DELETES, DataFile
from lake.deletes.dead_rows import DeleteFiles
from lake.errors import NotFoundError
from lake.log_schema import Column, new_log_schema
from lake.manifest import ManifestEntry, Status
from lake.marks import MARKS_PROPERTY, Marks, TopicPartition
from lake.table_layout import KEY_PROPERTY, MODE_PROPERTY
from query.facets.fields import coverage_of
from query.files.file_index import LiveFile
from query.model.point_in_time import PointInTime, parse_point_in_time
from query.model.table_view import EPOCH, TableView, load_view, table_id
from query.tables.row_changes import key_of, mode_of, row_changes
from tests.lake.support.fake_catalog import FakeCatalog

TABLE = table_id("shop", "orders")
KEYED = {KEY_PROPERTY: '["id"]', MODE_PROPERTY: "upsert"}
MARKS = Marks({TopicPartition("t", 0): 7})


def _fields(*more: str) -> dict[str, Any]:
    fields = [
        {"id": 100 + at, "name": name, "required": False, "type": "string"} for at, name in enumerate(more)
    ]
    return {**new_log_schema().json, "fields": [*new_log_schema().json["fields"], *fields]}


def _catalog(properties: dict[str, str], *, uuid: str = "u", kept: tuple[int, ...] = (1, 2)) -> FakeCatalog:
    """A table of two snapshots, of which the second has one more column."""
    catalog = FakeCatalog()
    client = catalog.client()
    client.create_namespace(TABLE.tenant.namespace, {})
    schemas = [{**_fields(*names), "schema-id": at} for at, names in ((0, ("id",)), (1, ("id", "size")))]
    table = {"table-uuid": uuid, "location": f"file:///w/{uuid}", "schema": schemas[0]}
    spec = {
        "spec-id": 0,
        "fields": [{"source-id": 100, "field-id": 1000, "name": "key_bucket", "transform": "bucket[4]"}],
    }
    client.create_table(
        TableName(TABLE.tenant.namespace, TABLE.table),
        {**table, "partition-spec": spec, "properties": {**properties, MARKS_PROPERTY: MARKS.to_property()}},
    )
    (metadata,) = catalog.tables.values()
    metadata["schemas"], metadata["current-schema-id"] = schemas, 1
    metadata["snapshots"] = [
        {
            "snapshot-id": at,
            "timestamp-ms": at * 1000,
            "manifest-list": f"file:///w/{uuid}/{at}.avro",
            "summary": {"total-records": str(10 * at), "total-position-deletes": str(at)},
            "schema-id": at - 1,
        }
        for at in kept
    ]
    metadata["current-snapshot-id"] = 2
    return catalog


def _view(catalog: FakeCatalog, pin: PointInTime | None = None) -> TableView:
    return load_view(catalog.client(), TABLE, pin)


def test_a_pin_of_a_keyed_table_opens_its_snapshot_with_the_columns_of_then() -> None:
    """Offsets would not do: the row that a change replaced is gone, and the one in its place is newer."""
    catalog = _catalog(KEYED)
    pin = parse_point_in_time(PointInTime("u", {}, 9, "q", snapshot_id=1).to_text())
    then, now = _view(catalog, pin), _view(catalog)
    assert (then.snapshot_id, then.totals.live_rows, then.committed_at) == (
        1,
        9,
        EPOCH + timedelta(seconds=1),
    )
    assert ("size" in then.schema.by_name, "size" in now.schema.by_name) == (False, True)
    assert then.schema_is_of_snapshot
    assert now.pin() == PointInTime("u", {}, snapshot_id=2)


def test_a_pin_of_a_table_of_records_holds_offsets() -> None:
    """They outlive every snapshot."""
    view = _view(_catalog({}))
    pin = view.pin()
    assert (pin.snapshot_id, list(pin.committed)) == (None, [TopicPartition("t", 0)])
    assert _view(_catalog({}, kept=(2,)), pin).snapshot_id == 2


@pytest.mark.parametrize(
    ("pin", "uuid", "why"),
    [
        (PointInTime("u", {}, snapshot_id=1), "u", "its snapshot has expired"),
        (PointInTime("u", {}, snapshot_id=2), "v", "was dropped and made anew"),
        (PointInTime("u", {}), "u", "names no snapshot"),
    ],
)
def test_a_pin_that_cannot_be_opened_any_more_is_refused_with_a_sentence(
    pin: PointInTime, uuid: str, why: str
) -> None:
    """It is never answered with the rows of another moment."""
    with pytest.raises(NotFoundError, match=why):
        _view(_catalog(KEYED, uuid=uuid, kept=(2,)), pin)


def test_what_a_stream_says_of_changes() -> None:
    """Mode, key, buckets and counts stand in the properties of its table."""
    told = row_changes(_view(_catalog({**KEYED, CHANGES_PROPERTY: '{"inserted":3}'})))
    assert (told.mode, told.key, told.order_by, told.buckets) == ("upsert", ("id",), "offset", 4)
    assert told.counts == {"inserted": 3}
    history = row_changes(_view(_catalog({MODE_PROPERTY: "history"})))
    assert (history.mode, history.key, history.counts) == ("history", (), None)
    assert row_changes(_view(_catalog({}))).mode == "append"


@pytest.mark.parametrize("text", ["", "[", "5", '{"a":1}', "null"])
def test_properties_that_mean_nothing_are_told_as_nothing(text: str) -> None:
    """Whoever may write to a table may write any of them."""
    properties = {KEY_PROPERTY: text, MODE_PROPERTY: text, CHANGES_PROPERTY: text}
    assert (key_of(properties), mode_of(properties)) == ((), "unknown")
    assert all(type(count) is int for count in change_counts(properties).values())
    assert change_counts(counted_changes(properties, {"updated": 2}))["updated"] == 2


def test_counts_of_changes_add_up() -> None:
    """Counts that are none, or out of all bounds, are left out."""
    before = {CHANGES_PROPERTY: '{"inserted":5,"a":-1,"b":"x","c":1.5,"d":true,"e":9223372036854775807}'}
    after = counted_changes(before, {"inserted": 2, "deleted": 1, "older": 0, "e": 1})
    assert change_counts(after) == {"deleted": 1, "e": 2**63 - 1, "inserted": 7}


def test_what_properties_say_has_a_bound() -> None:
    """Whoever lists streams is not sent a megabyte for each."""
    many = {f"n{at}": 1 for at in range(10_000)} | {"x" * 1_000: 1}
    assert len(change_counts({CHANGES_PROPERTY: orjson.dumps(many).decode()})) == 64
    names = ["id", "x" * 1_000, 5, *many]
    assert len(key_of({KEY_PROPERTY: orjson.dumps(names).decode()})) < 1_000


# ---- how many rows have a value


def _file(uri: str, rows: int, filled: int) -> LiveFile:
    return LiveFile(uri, rows, 1, 0, 1, {100: rows - filled}, {100: rows}, None, None, 1)


def _dead(uri: str | None, rows: int, content: int = POSITION_DELETES) -> ManifestEntry:
    file = DataFile(f"file:///d-{uri}", 0, rows, 1, content, referenced_data_file=uri)
    return ManifestEntry(Status.ADDED, file, 1, 2, 2)


@pytest.mark.parametrize(
    ("files", "dead", "coverage"),
    [
        ([("a", 100, 50)], [], 0.5),
        ([("a", 100, 100), ("b", 100, 0)], [("a", 90)], 0.0909),  # 10 of 110 rows that are alive
        ([("a", 100, 100), ("b", 100, 0)], [("b", 100)], 1.0),
        ([("a", 100, 50)], [("a", 50)], None),  # any of the two halves may be the dead one
        ([("a", 10_000, 5_000)], [("a", 20)], 0.5),  # to within a hundredth
        ([("a", 10, 10)], [("a", 10)], None),  # nothing is left
        ([("a", 10, 10)], [(None, 3)], None),  # nobody says whose rows these are
    ],
)
def test_coverage_counts_no_row_that_is_deleted(
    files: list[tuple[str, int, int]], dead: list[tuple[str | None, int]], coverage: float | None
) -> None:
    """Where the files leave more open than a hundredth it is not told."""
    deletes = DeleteFiles.of([_dead(uri, rows) for uri, rows in dead])
    counted = [(file, deletes.dead_rows_of(file.uri, 1)) for file in (_file(*each) for each in files)]
    assert coverage_of(Column(100, "id", "string", required=False, doc=None), counted) == coverage


def test_coverage_is_not_told_where_rows_are_deleted_by_value() -> None:
    """Which rows these are only a reader of the values knows."""
    deletes = DeleteFiles.of([_dead(None, 1, EQUALITY_DELETES)])
    assert deletes.dead_rows_of("a", 1) is None
