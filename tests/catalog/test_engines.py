"""Spark, Trino and PyIceberg live with the catalog, and with each other in it."""

from typing import Any

import pytest

from tests.catalog.support.engines import Engine, PyIcebergEngine, SparkEngine, TrinoEngine, spark_catalog
from tests.stack.support.line import Line
from tests.stack.support.waiting import fresh

pytestmark = pytest.mark.stack


@pytest.fixture(scope="module")
def engines(spark: Any, line: Line) -> dict[str, Engine]:
    """All three over the stack's catalog."""
    uri = line.stack.address("catalog")
    for name, value in spark_catalog("live", uri).items():
        spark.conf.set(name, value)
    return {
        "spark": SparkEngine(spark, "live"),
        "trino": TrinoEngine(line.sql, line.trino_catalog),
        "pyiceberg": PyIcebergEngine(uri),
    }


@pytest.mark.parametrize("name", ["spark", "trino", "pyiceberg"])
def test_engines_live_with_the_catalog(engines: dict[str, Engine], name: str) -> None:
    """Each engine creates, alters, appends to, reads, renames and drops a table, and the other two see every
    step of it."""
    engine, others = engines[name], [other for key, other in engines.items() if key != name]
    namespace = fresh(name)
    engine.create_namespace(namespace)
    table, renamed = f"{namespace}.t", f"{namespace}.u"
    engine.create(table)
    engine.append(table, [(1, "one"), (2, "two")])
    engine.add_column(table, "extra")
    engine.append(table, [(3, "three", "x")])
    expected = [(1, "one", None), (2, "two", None), (3, "three", "x")]
    assert engine.read(table) == expected
    for number, other in enumerate(others, 4):
        assert other.read(table) == expected
        other.append(table, [(number, "more", "y")])
        expected.append((number, "more", "y"))
    assert engine.read(table) == expected
    engine.rename(table, renamed)
    for one in engines.values():
        assert one.tables(namespace) == ["u"]
        assert one.read(renamed) == expected
    engine.drop(renamed)
    for one in engines.values():
        assert one.tables(namespace) == []


@pytest.mark.parametrize("name", ["spark", "trino", "pyiceberg"])
def test_engines_keep_views(engines: dict[str, Engine], name: str) -> None:
    """Each engine creates a view, reads what it shows, replaces and drops it."""
    engine, namespace = engines[name], fresh(name)
    engine.create_namespace(namespace)
    table, view = f"{namespace}.t", f"{namespace}.v"
    engine.create(table)
    engine.append(table, [(1, "one"), (2, "two")])
    engine.create_view(view, table)
    text = f"SELECT n FROM {table}"
    assert engine.view_shows(view) == (text if name == "pyiceberg" else [(1,), (2,)])
    engine.replace_view(view, table)
    assert engine.view_shows(view) == (text if name == "pyiceberg" else [(2,), (3,)])
    engine.drop_view(view)
    engine.create_view(view, table)
    assert engine.view_shows(view) == (text if name == "pyiceberg" else [(1,), (2,)])
