"""Shapes are learned from records, shared between tables, and never stand for a message that carries several
records."""

from ingest.convert.shape import Shapes, build, learn
from ingest.decode.formats.json_object import Pairs, parse_object
from lake.tenant import TableId, TenantId


def _pairs(text: str) -> Pairs:
    pairs = parse_object(text, 10)
    assert isinstance(pairs, Pairs)
    return pairs


def test_tables_with_records_alike_share_one_shape() -> None:
    """Ten thousand tenants of one application have one shape."""
    shapes = Shapes()
    first, second = (TableId(TenantId(name), "logs") for name in ("a", "b"))
    shape = shapes.learn(first, [_pairs('{"a":1,"b":{"c":"x"}}')])
    assert shapes.of(second, b'{"a":2,"b":{"c":"y"}}') is shape
    assert shapes.learn(second, [_pairs('{"a":3}')]) is shape


def test_a_new_key_teaches_a_new_shape() -> None:
    """A key or kind not seen before makes another shape; what is known makes none."""
    shapes, table = Shapes(), TableId(TenantId("a"), "logs")
    shape = shapes.learn(table, [_pairs('{"a":1}')])
    assert shapes.learn(table, [_pairs('{"a":2}')]) is shape
    assert shapes.learn(table, [_pairs('{"a":"text"}')]) is not shape


def test_two_paths_to_one_column_leave_the_second_to_the_exact_path() -> None:
    """Of two spellings of a column the first stays in the shape."""
    shape = build(learn({}, _pairs('{"a_b":1,"a":{"b":2}}')))
    assert [(leaf.column, leaf.path) for leaf in shape.leaves] == [("a_b", "/a_b")]


def test_the_root_of_otlp_is_never_part_of_a_shape() -> None:
    """A message that fits a shape is one record; one with this key may carry many."""
    shape = build(learn({}, _pairs('{"resourceLogs":[],"x":1}')))
    assert [leaf.column for leaf in shape.leaves] == ["x"]
