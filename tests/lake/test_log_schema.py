"""Columns of a log table, and the ids they get."""

import gc
from collections.abc import Mapping
from weakref import ref

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.schema import Schema, assign_fresh_schema_ids

from catalog.commit.schemas import assign_fresh_ids
from lake.audit import event
from lake.log_schema import (
    ERRORS,
    IDENTITY,
    LAST_SYSTEM_ID,
    RESERVED_NAMES,
    SYSTEM_COLUMNS,
    LogSchema,
    arrow_type,
    fold,
    leaf_ids,
    new_log_schema,
    shared_schema,
)
from lake.system_tables import LETTER_COLUMNS

GROWN = new_log_schema().with_strings({"a": (16, "/a")}, 1)


@pytest.mark.parametrize("typed", [{}, event.TYPED_COLUMNS, LETTER_COLUMNS])
def test_ids_of_a_new_table_are_those_a_catalog_assigns(typed: Mapping[str, str]) -> None:
    """Fresh assignment at creation, by our catalog or another, changes nothing, so files may be written
    before the table exists; also where Firn's own tables have typed columns from the start."""
    schema = new_log_schema(typed)
    fresh, mapped = assign_fresh_ids(dict(schema.json))
    assert fresh == schema.json
    assert all(old == new for old, new in mapped.items())
    theirs = assign_fresh_schema_ids(Schema.model_validate(schema.json))
    assert [(field.field_id, field.name) for field in theirs.fields] == [
        (column.id, column.name) for column in schema.columns
    ]
    assert theirs.highest_field_id == max(leaf_ids(schema.json["fields"])) == LAST_SYSTEM_ID + len(typed)


def test_identity_columns_are_the_identifier_fields() -> None:
    """The record's identity is declared as the table's identifier fields, all of them required."""
    schema = new_log_schema()
    by_id = {column.id: column for column in schema.columns}
    assert tuple(by_id[i].name for i in schema.json["identifier-field-ids"]) == IDENTITY
    assert all(by_id[i].required for i in schema.json["identifier-field-ids"])


def test_new_columns_have_the_ids_they_are_given() -> None:
    """Growing a schema adds optional strings with the original path as doc, and leaves the old one as it
    was."""
    before = new_log_schema()
    after = before.with_strings({"b": (21, "/x/B"), "c": (20, "/c")}, 4)
    assert (after.id, before.id) == (4, 0)
    assert [(c.id, c.name, c.kind, c.required, c.doc) for c in after.columns[-2:]] == [
        (21, "b", "string", False, "/x/B"),
        (20, "c", "string", False, "/c"),
    ]
    assert after.columns[:-2] == before.columns


def test_arrow_schema_carries_every_field_id() -> None:
    """The files' columns are found by id: nested fields have theirs too."""
    schema = GROWN
    errors = schema.arrow.field(ERRORS)
    element = errors.type.value_field
    assert [int(schema.arrow.field(c.name).metadata[b"PARQUET:field_id"]) for c in schema.columns] == [
        c.id for c in schema.columns
    ]
    assert element.metadata is not None
    assert all(b"PARQUET:field_id" in element.type.field(at).metadata for at in range(3))
    assert not schema.arrow.field("timestamp").nullable


def test_leaves_come_in_the_order_of_parquet_columns() -> None:
    """Leaf ids go depth first, without the ids of lists and structs."""
    schema = GROWN
    ids = {c.name: c.id for c in schema.columns}
    leaves = leaf_ids(schema.json["fields"])
    assert leaves[: SYSTEM_COLUMNS.index(ERRORS)] == tuple(
        ids[name] for name in SYSTEM_COLUMNS[: SYSTEM_COLUMNS.index(ERRORS)]
    )
    assert len(leaves) == len(schema.columns) + 2
    assert ids[ERRORS] not in leaves


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("Level", "level"),
        ("É", "é"),
        ("E\u0301", "é"),
        ("ẞ", "ß"),
        ("İ", "i̇"),
        ("Σ", "σ"),
        ("ﬁ", "ﬁ"),
        ("K", "k"),
        ("Ⅷ", "ⅷ"),
    ],
)
def test_names_fold_to_one_column(name: str, column: str) -> None:
    """Spellings that differ in case or in composition share a column."""
    assert fold(name) == column


@given(st.text())
def test_folding_twice_changes_nothing(name: str) -> None:
    """A column's name folds to itself."""
    assert fold(fold(name)) == fold(name)


def test_system_names_are_reserved_but_for_what_records_may_say() -> None:
    """A record may bring its time, severity and message; the other system columns are Firn's."""
    assert {"timestamp", "severity", "message"}.isdisjoint(RESERVED_NAMES)
    assert {*SYSTEM_COLUMNS, "_op", "_key", "_file", "_pos", "_partition"} - RESERVED_NAMES == {
        "timestamp",
        "severity",
        "message",
    }


@pytest.mark.parametrize(
    ("kind", "arrow"),
    [
        ("decimal(9,2)", pa.decimal128(9, 2)),
        ("fixed[4]", pa.binary(4)),
        ("timestamptz", pa.timestamp("us", "UTC")),
        ("uuid", pa.binary(16)),
        ("date", pa.date32()),
    ],
)
def test_iceberg_types_have_arrow_types(kind: str, arrow: pa.DataType) -> None:
    """Each type of a declared column has one Arrow type."""
    assert arrow_type(kind) == arrow


def test_type_that_log_tables_do_not_use_is_refused() -> None:
    """A type without an Arrow type is an error, not a guess."""
    with pytest.raises(ValueError, match="geometry"):
        arrow_type("geometry")


def test_columns_are_found_by_folded_name() -> None:
    """Columns that another engine spelled with capitals are found by the names records fold to."""
    schema = LogSchema({"fields": [{"id": 1, "name": "Größe", "type": "string", "required": False}]})
    assert schema.by_name["größe"].id == 1


def test_tables_with_the_same_schema_share_one_object() -> None:
    """Ten thousand tables of one shipper have one schema in memory, whether a table was loaded or grew by the
    same columns."""
    grown = [new_log_schema().with_strings({"a": (16, "/a")}, 1) for _ in range(2)]
    assert grown[0] is grown[1]
    assert shared_schema(orjson.dumps(grown[0].json)) is grown[0]
    assert new_log_schema().with_strings({"a": (17, "/a")}, 1) is not grown[0]


def test_a_schema_that_no_table_has_any_more_goes() -> None:
    """A table whose records keep bringing fields leaves one behind with each; those that tables have stay
    shared however many others came since."""
    spelled = [
        orjson.dumps({"fields": [{"id": 1, "name": f"gone{at}", "type": "string", "required": False}]})
        for at in range(2_000)
    ]
    used = shared_schema(spelled[0])
    gone = [ref(shared_schema(each)) for each in spelled[1:]]
    assert shared_schema(spelled[0]) is used
    gc.collect()
    assert sum(each() is not None for each in gone) < 200
