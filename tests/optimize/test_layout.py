"""How a table says that its files are to be written."""

from typing import Any

from lake.log_schema import LogSchema, new_log_schema
from lake.settings import OptimizeSettings
from optimize.layout import layout_of

HOST, TRACE, BODY = 16, 17, 18
SETTINGS = OptimizeSettings.load(merge__zstd_level=3)


def schema() -> LogSchema:
    base = new_log_schema()
    more = [
        {"id": i, "name": n, "required": False, "type": "string"}
        for i, n in ((HOST, "host"), (TRACE, "trace_id"), (BODY, "body"))
    ]
    return LogSchema({**base.json, "fields": [*base.json["fields"], *more]})


def order(*fields: tuple[int, str, str]) -> dict[str, Any]:
    keys = [
        {"source-id": i, "transform": transform, "direction": direction, "null-order": "nulls-last"}
        for i, transform, direction in fields
    ]
    return {
        "sort-orders": [{"order-id": 0, "fields": []}, {"order-id": 1, "fields": keys}],
        "default-sort-order-id": 1,
    }


def test_rows_are_ordered_by_the_tables_sort_order_and_then_by_time() -> None:
    """What `WRITE ORDERED BY` or `sorted_by` declare goes before the time; a table that declares nothing is
    ordered by time."""
    assert layout_of(
        order((HOST, "identity", "asc"), (TRACE, "identity", "asc")), schema(), SETTINGS
    ).sort_by == ("host", "trace_id", "timestamp")
    assert layout_of({}, schema(), SETTINGS).sort_by == ("timestamp",)


def test_sort_order_counts_up_to_what_cannot_be_followed() -> None:
    """A key that is a transform, descending, or no column any more ends the keys that are followed."""
    assert layout_of(
        order((HOST, "identity", "asc"), (TRACE, "bucket[4]", "asc")), schema(), SETTINGS
    ).sort_by == ("host", "timestamp")
    assert layout_of(order((HOST, "identity", "desc")), schema(), SETTINGS).sort_by == ("timestamp",)
    assert layout_of(order((99, "identity", "asc")), schema(), SETTINGS).sort_by == ("timestamp",)


def test_properties_choose_bloom_filters_dictionaries_and_levels_by_column() -> None:
    """Iceberg's own properties where it has some; a column that is gone and a level that is none count as not
    given."""
    properties = {
        "write.parquet.bloom-filter-enabled.column.trace_id": "true",
        "write.parquet.bloom-filter-enabled.column.host": "false",
        "write.parquet.bloom-filter-enabled.column.gone": "true",
        "write.parquet.compression-level": "5",
        "firn.zstd-level.column.body": "12",
        "firn.zstd-level.column.host": "fast",
        "firn.dictionary-enabled.column.trace_id": "FALSE",
    }
    layout = layout_of({"properties": properties}, schema(), SETTINGS)
    assert (layout.bloom, layout.plain, layout.zstd_level, layout.zstd_levels) == (
        ("trace_id",),
        ("trace_id",),
        5,
        (("body", 12),),
    )
    assert (
        layout_of({"properties": {"write.parquet.compression-level": "99"}}, schema(), SETTINGS).zstd_level
        == 3
    )


def test_files_have_a_token_filter_unless_the_setting_says_no() -> None:
    """It is a setting of maintenance, and none of a table."""
    assert layout_of({}, schema(), SETTINGS).token_filter
    assert not layout_of({}, schema(), OptimizeSettings.load(merge__token_filter=False)).token_filter
