"""Which column takes a value whose type is not its column's: the column is kept or widened, or there is a
second one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.changes.column_type import ColumnType, ListType, MapType, decimal_type
from ingest.changes.schema_change import Fit, KnownColumn, Placement, compare, place, second_column
from lake.log_schema import NAME_BYTES_MAX, RESERVED_NAMES

primitives: st.SearchStrategy[ColumnType] = st.one_of(
    st.sampled_from(["boolean", "int", "long", "float", "double", "date", "time", "timestamp"]),
    st.sampled_from(["timestamptz", "string", "uuid", "binary", "fixed[8]"]),
    st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: decimal_type(p, s))),
)
types: st.SearchStrategy[ColumnType] = st.recursive(
    primitives,
    lambda inner: inner.map(ListType) | st.builds(MapType, primitives, inner),
    max_leaves=3,
)


@pytest.mark.parametrize(
    ("existing", "incoming", "fit", "kind"),
    [
        ("int", "long", Fit.WIDEN, "long"),
        ("long", "int", Fit.KEEP, "long"),
        ("float", "double", Fit.WIDEN, "double"),
        ("double", "float", Fit.KEEP, "double"),
        ("decimal(12,2)", "decimal(14,2)", Fit.WIDEN, "decimal(14,2)"),
        ("decimal(14,2)", "decimal(12,2)", Fit.KEEP, "decimal(14,2)"),
        ("decimal(14,4)", "decimal(12,2)", Fit.KEEP, "decimal(14,4)"),
        ("decimal(12,4)", "decimal(12,2)", Fit.WIDEN, "decimal(14,4)"),
        ("decimal(12,2)", "decimal(14,4)", Fit.SECOND_COLUMN, "decimal(14,4)"),
        ("decimal(38,10)", "decimal(38,0)", Fit.SECOND_COLUMN, "decimal(38,0)"),
        ("int", "string", Fit.SECOND_COLUMN, "string"),
        ("string", "int", Fit.SECOND_COLUMN, "int"),
        ("int", "double", Fit.SECOND_COLUMN, "double"),
        ("timestamp", "timestamptz", Fit.SECOND_COLUMN, "timestamptz"),
        ("date", "timestamp", Fit.SECOND_COLUMN, "timestamp"),
        ("long", None, Fit.KEEP, "long"),
        (ListType("int"), ListType("long"), Fit.WIDEN, ListType("long")),
        (MapType("string", "int"), MapType("string", "long"), Fit.WIDEN, MapType("string", "long")),
        (MapType("int", "int"), MapType("long", "int"), Fit.SECOND_COLUMN, MapType("long", "int")),
        (ListType("int"), "int", Fit.SECOND_COLUMN, "int"),
    ],
)
def test_a_column_is_widened_as_iceberg_allows(
    existing: ColumnType, incoming: ColumnType | None, fit: Fit, kind: ColumnType
) -> None:
    """Nothing that is stored changes; what no promotion brings together stays apart."""
    assert compare(existing, incoming) == (fit, kind)


@given(types, types)
def test_what_a_column_has_become_holds_both_types(existing: ColumnType, incoming: ColumnType) -> None:
    """Once widened, neither the old nor the new type asks for another change."""
    fit, kind = compare(existing, incoming)
    if fit is Fit.SECOND_COLUMN:
        return
    assert compare(kind, existing) == (Fit.KEEP, kind)
    assert compare(kind, incoming) == (Fit.KEEP, kind)


@given(st.lists(st.tuples(st.sampled_from(["/a", "/A"]), types), min_size=1, max_size=6))
def test_each_value_has_a_column_of_its_field_that_holds_its_type(
    fields: list[tuple[str, ColumnType]],
) -> None:
    """Whatever types a field has had, the column holds this one; asked again, the answer is the same."""
    columns: dict[str, KnownColumn] = {}
    for path, kind in fields:
        placed = place("a", path, kind, columns)
        known = columns.get(placed.column)
        assert placed.is_new == (known is None)
        assert known is None or known.path == path
        columns[placed.column] = KnownColumn(placed.kind, path)
        again = place("a", path, kind, columns)
        assert (again.column, again.is_new, again.is_widened) == (placed.column, False, False)
        assert compare(placed.kind, kind)[0] is Fit.KEEP


def test_second_columns_say_their_type() -> None:
    """By their names; further ones are numbered."""
    columns = {"amount": KnownColumn("decimal(12,2)", "/amount")}
    placed = place("amount", "/amount", "decimal(14,4)", columns)
    assert placed == Placement("amount__decimal_14_4", "decimal(14,4)", is_new=True)
    columns[placed.column] = KnownColumn("string", "/amount__decimal_14_4")
    assert place("amount", "/amount", "decimal(14,4)", columns).column == "amount__decimal_14_4_2"
    assert second_column("tags", ListType(MapType("string", "fixed[8]"))) == "tags__list_map_string_fixed_8"
    assert place("id", "/id", None, {}) == Placement("id", "string", is_new=True)


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=300), types)
def test_second_columns_have_names_that_fit(column: str, kind: ColumnType) -> None:
    """However long the first column's name is; different columns stay different."""
    name = second_column(column, kind)
    assert len(name.encode()) <= NAME_BYTES_MAX
    assert name not in RESERVED_NAMES
    assert name != second_column(column + "x", kind)
