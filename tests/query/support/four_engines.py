"""The engines of this stack as readers of one table."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import httpx
from pyiceberg.catalog import load_catalog

from lake.catalog_client import CatalogClient, TableName
from tests.catalog.support.engines import spark_catalog
from tests.stack.support.line import Line

# Trino 476 refuses deletion vectors, which tables of version 3 have; the other three read both forms.
READ_RIGHT = {2: ["duckdb", "pyiceberg", "spark", "trino"], 3: ["duckdb", "pyiceberg", "spark"]}
SPARK_CATALOG = "deletes"
Row = tuple[Any, ...]
Reader = Callable[[], list[Row]]


def with_catalog(session: Any, uri: str) -> Any:
    """A Spark session that knows the catalog."""
    for name, value in spark_catalog(SPARK_CATALOG, uri).items():
        session.conf.set(name, value)
    return session


def upgrade(catalog: CatalogClient, name: TableName, version: int) -> None:
    """Gives a table another format version, as its owner may."""
    update = {"action": "upgrade-format-version", "format-version": version}
    catalog.post(
        f"/v1/namespaces/{name.namespace}/tables/{name.name}", {"requirements": [], "updates": [update]}
    )


def readers(
    line: Line,
    session: Any,
    api: httpx.Client,
    where: Mapping[str, Any],
    name: TableName,
    columns: Sequence[str],
) -> dict[str, Reader]:
    """Each engine's way to all rows. `where`: tenant, stream and a range of time that holds them."""
    table, listed = f"{name.namespace}.{name.name}", ", ".join(columns)
    uri = line.stack.address("catalog")

    def in_pyiceberg() -> list[Row]:
        found = (
            load_catalog("deletes", type="rest", uri=uri)
            .load_table(table)
            .scan(selected_fields=tuple(columns))
        )
        return [tuple(row[each] for each in columns) for row in found.to_arrow().to_pylist()]

    def by_search() -> list[Row]:
        answer = api.post("/v1/search", json={**where, "engine": "duckdb", "limit": 1_000})
        assert answer.status_code == 200, answer.text
        return [tuple(row["fields"].get(each) for each in columns) for row in answer.json()["rows"]]

    def in_spark() -> list[Row]:
        return [tuple(row) for row in session.sql(f"SELECT {listed} FROM {SPARK_CATALOG}.{table}").collect()]

    return {
        "duckdb": by_search,
        "pyiceberg": in_pyiceberg,
        "spark": in_spark,
        "trino": lambda: line.sql(f"SELECT {listed} FROM {table}"),
    }


def right(engines: Mapping[str, Reader], truth: Sequence[Row]) -> list[str]:
    """The engines that find exactly these rows, each once; those that refuse or find others are printed."""
    expected, found_right = sorted(truth, key=repr), []
    for engine, read in engines.items():
        try:
            found = sorted(read(), key=repr)
        except Exception as error:  # noqa: BLE001 - of four engines; what is expected of each is asserted
            print(f"{engine}: {type(error).__name__}: {str(error)[:200]}")
            continue
        if found == expected:
            found_right.append(engine)
        else:
            others = [row for row in found if row not in expected][:3]
            print(f"{engine}: {len(found)} rows, {len(expected)} are there; others: {others}")
    return found_right
