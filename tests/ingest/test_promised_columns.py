"""Columns that are promised to several writers at once: no file is ever of a type as which it cannot be
read."""

from dataclasses import replace
from typing import Any

import pytest

from ingest.commit.promised_columns import PromisedColumns
from ingest.model.link import NewColumn
from lake.catalog_client import TableName
from lake.commit import TableState, new_table_state
from lake.log_schema import TypedColumn

LIST_OF_INT = {"type": "list", "element-id": 0, "element-required": False, "element": "int"}
LIST_OF_LONG = {**LIST_OF_INT, "element": "long"}


@pytest.fixture
def state() -> TableState:
    return new_table_state(TableName("shop", "orders"), "shop", "orders", "file:///warehouse")


def typed(kind: Any) -> TypedColumn:
    return TypedColumn("/a", kind)


def grown(state: TableState, **kinds: Any) -> TableState:
    """The table with such columns, added by somebody else."""
    other = PromisedColumns()
    other.promise(state, {name: typed(kind) for name, kind in kinds.items()})
    return replace(state, schema=other.schema(state), last_column_id=other.schema(state).last_column_id)


@pytest.mark.parametrize(
    ("first", "second", "kind"),
    [
        ("int", "string", "int"),
        ("string", "int", "string"),
        ("int", "long", "long"),
        ("long", "int", "long"),
        ("decimal(10,2)", "decimal(12,2)", "decimal(12,2)"),
        ("decimal(12,2)", "decimal(10,2)", "decimal(12,2)"),
        ("decimal(10,2)", "decimal(10,4)", "decimal(10,2)"),
    ],
)
def test_what_was_promised_only_ever_becomes_wider(
    state: TableState, first: str, second: str, kind: str
) -> None:
    """Whether the table lacks the column or has it: the first writer's file can be read."""
    columns = PromisedColumns()
    columns.promise(state, {"a": typed(first)})
    given = columns.schema(state).by_name["a"].id
    columns.promise(state, {"a": typed(second)})
    column = columns.schema(state).by_name["a"]
    assert (column.id, column.kind) == (given, kind)
    there, columns = grown(state, a=first), PromisedColumns()
    columns.promise(there, {"a": typed(second)})
    assert columns.schema(there).by_name["a"].kind == kind


def test_of_two_wider_types_for_a_column_the_widest_stays(state: TableState) -> None:
    """Whoever asks last, and also when somebody else has made it wider than that meanwhile."""
    there, columns = grown(state, a="decimal(8,2)"), PromisedColumns()
    columns.promise(there, {"a": typed("decimal(12,2)")})
    columns.promise(there, {"a": typed("decimal(10,2)")})
    assert columns.schema(there).by_name["a"].kind == "decimal(12,2)"
    wider = grown(state, a="decimal(14,2)")
    assert columns.schema(wider).by_name["a"].kind == "decimal(14,2)"
    columns.committed(wider)
    assert columns.widened == {}


def test_a_list_keeps_the_ids_of_its_members_when_it_becomes_wider(state: TableState) -> None:
    columns = PromisedColumns()
    columns.promise(state, {"a": typed(LIST_OF_INT)})
    before = columns.schema(state).by_name["a"].kind
    columns.promise(state, {"a": typed(LIST_OF_LONG)})
    assert columns.schema(state).by_name["a"].kind == {**before, "element": "long"}


@pytest.mark.parametrize(
    ("of_file", "of_table", "stands"),
    [
        ("int", "int", True),
        ("int", "long", True),
        ("long", "int", False),
        ("int", "string", False),
        ("string", "int", False),
        ("decimal(10,2)", "decimal(12,2)", True),
        ("decimal(10,1)", "decimal(12,2)", False),
    ],
)
def test_a_file_stands_where_it_can_be_read_by_what_another_node_has_made_of_its_column(
    state: TableState, of_file: str, of_table: str, *, stands: bool
) -> None:
    """Two nodes hand out the same ids."""
    columns = PromisedColumns()
    columns.promise(state, {"a": typed(of_file)})
    column = columns.schema(state).by_name["a"]
    there = grown(state, a=of_table)
    assert there.schema.by_name["a"].id == column.id
    columns.loaded(there)
    assert columns.stand(there, {"a": NewColumn(column.id, column.kind)}, {}) is stands
    assert not columns.stand(there, {"a": NewColumn(column.id + 1, of_table)}, {})
    assert not columns.stand(state, {"b": NewColumn(column.id, of_file)}, {})


def test_a_file_of_a_wider_type_stands_as_long_as_the_table_is_to_get_that(state: TableState) -> None:
    """Somebody else took an id, and all promises ended."""
    there, columns = grown(state, a="int"), PromisedColumns()
    columns.promise(there, {"a": typed("long"), "b": typed("int")})
    assert columns.stand(there, {}, {"a": "long"})
    columns.loaded(grown(there, c="string"))
    assert not columns.stand(there, {}, {"a": "long"})
