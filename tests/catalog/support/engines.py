"""Spark, Trino and PyIceberg as clients of one catalog, behind one small interface."""

from collections.abc import Callable
from typing import Any, Protocol

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from pyiceberg.view.metadata import ViewVersion

Rows = list[tuple[Any, ...]]
Json = dict[str, Any]
SPARK_EXTENSIONS = {
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
}


def spark_catalog(name: str, uri: str) -> dict[str, str]:
    """Spark settings of a REST catalog that sees every change at once."""
    prefix = f"spark.sql.catalog.{name}"
    return {
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        f"{prefix}.type": "rest",
        f"{prefix}.uri": uri,
        f"{prefix}.cache-enabled": "false",
    }


class Engine(Protocol):
    """What a user of tables does. Tables and views are `namespace.name`; a table starts with the columns n
    (long) and word (string)."""

    def create_namespace(self, namespace: str) -> None: ...

    def create(self, table: str) -> None: ...

    def append(self, table: str, rows: Rows) -> None: ...

    def add_column(self, table: str, column: str) -> None: ...

    def read(self, table: str) -> Rows:
        """Every row, in its order."""

    def rename(self, table: str, to: str) -> None: ...

    def tables(self, namespace: str) -> list[str]: ...

    def drop(self, table: str) -> None: ...

    def create_view(self, view: str, table: str) -> None:
        """A view of the column n of a table."""

    def replace_view(self, view: str, table: str) -> None:
        """The view shows n + 1 from now on."""

    def view_shows(self, view: str) -> object:
        """What the view shows: rows, or its text where the engine runs no SQL."""

    def drop_view(self, view: str) -> None: ...


class SqlEngine:
    """An engine that is told everything in SQL; `prefix` is the catalog's name there."""

    def __init__(self, run: Callable[[str], Rows], prefix: str, *, long: str, string: str) -> None:
        self._run = run
        self._prefix = prefix
        self._types = long, string

    def _name(self, name: str) -> str:
        return f"{self._prefix}.{name}"

    def create_namespace(self, namespace: str) -> None:
        self._run(f"CREATE SCHEMA {self._name(namespace)}")

    def create(self, table: str) -> None:
        self._run(
            f"CREATE TABLE {self._name(table)} (n {self._types[0]}, word "
            f"{self._types[1]}){self._table_options()}"
        )

    def _table_options(self) -> str:
        return ""

    def append(self, table: str, rows: Rows) -> None:
        values = ", ".join(
            "(" + ", ".join(f"'{value}'" if isinstance(value, str) else str(value) for value in row) + ")"
            for row in rows
        )
        self._run(f"INSERT INTO {self._name(table)} VALUES {values}")

    def add_column(self, table: str, column: str) -> None:
        self._run(f"ALTER TABLE {self._name(table)} ADD COLUMN {column} {self._types[1]}")

    def read(self, table: str) -> Rows:
        return self._run(f"SELECT * FROM {self._name(table)} ORDER BY n")

    def rename(self, table: str, to: str) -> None:
        self._run(f"ALTER TABLE {self._name(table)} RENAME TO {self._new_name(to)}")

    def _new_name(self, name: str) -> str:
        return self._name(name)

    def tables(self, namespace: str) -> list[str]:
        return sorted(str(row[-1]) for row in self._run(f"SHOW TABLES FROM {self._name(namespace)}"))

    def drop(self, table: str) -> None:
        self._run(f"DROP TABLE {self._name(table)}")

    def create_view(self, view: str, table: str) -> None:
        self._run(f"CREATE VIEW {self._name(view)} AS SELECT n FROM {self._name(table)}")

    def replace_view(self, view: str, table: str) -> None:
        self._run(f"CREATE OR REPLACE VIEW {self._name(view)} AS SELECT n + 1 AS n FROM {self._name(table)}")

    def view_shows(self, view: str) -> object:
        return self._run(f"SELECT n FROM {self._name(view)} ORDER BY n")

    def drop_view(self, view: str) -> None:
        self._run(f"DROP VIEW {self._name(view)}")


class SparkEngine(SqlEngine):
    """A SparkSession; `catalog` is the name of a Spark catalog."""

    def __init__(self, session: Any, catalog: str) -> None:
        super().__init__(
            lambda statement: [tuple(row) for row in session.sql(statement).collect()],
            catalog,
            long="BIGINT",
            string="STRING",
        )

    def _table_options(self) -> str:
        return " USING iceberg"

    def _new_name(self, name: str) -> str:
        return name  # Spark adds the catalog itself

    def tables(self, namespace: str) -> list[str]:
        return sorted(str(row[1]) for row in self._run(f"SHOW TABLES IN {self._name(namespace)}"))


class TrinoEngine(SqlEngine):
    """Trino with the stack's catalog, as it is called there."""

    def __init__(self, run: Callable[[str], Rows], catalog: str) -> None:
        super().__init__(run, catalog, long="BIGINT", string="VARCHAR")


class PyIcebergEngine:
    """PyIceberg, which runs no SQL: a view is a text to it."""

    def __init__(self, uri: str) -> None:
        catalog = load_catalog("live", type="rest", uri=uri)
        assert isinstance(catalog, RestCatalog)
        self.catalog = catalog

    def create_namespace(self, namespace: str) -> None:
        self.catalog.create_namespace(namespace)

    def create(self, table: str) -> None:
        self.catalog.create_table(
            table,
            schema=Schema(
                NestedField(1, "n", LongType(), required=False),
                NestedField(2, "word", StringType(), required=False),
            ),
        )

    def append(self, table: str, rows: Rows) -> None:
        loaded = self.catalog.load_table(table)
        schema = loaded.schema().as_arrow()
        self.catalog.load_table(table).append(
            pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema=schema)
        )

    def add_column(self, table: str, column: str) -> None:
        with self.catalog.load_table(table).update_schema() as update:
            update.add_column(column, StringType())

    def read(self, table: str) -> Rows:
        return sorted(
            (tuple(row.values()) for row in self.catalog.load_table(table).scan().to_arrow().to_pylist()),
            key=lambda row: int(row[0]),
        )

    def rename(self, table: str, to: str) -> None:
        self.catalog.rename_table(table, to)

    def tables(self, namespace: str) -> list[str]:
        return sorted(name for _, name in self.catalog.list_tables(namespace))

    def drop(self, table: str) -> None:
        self.catalog.drop_table(table)

    def create_view(self, view: str, table: str) -> None:
        namespace, _ = view.split(".")
        version = {
            "version-id": 1,
            "timestamp-ms": 1_700_000_000_000,
            "schema-id": 0,
            "summary": {"engine-name": "pyiceberg"},
            "representations": [{"type": "sql", "sql": f"SELECT n FROM {table}", "dialect": "spark"}],
            "default-namespace": [namespace],
        }
        self.catalog.create_view(
            view, Schema(NestedField(1, "n", LongType(), required=False)), ViewVersion.model_validate(version)
        )

    def replace_view(self, view: str, table: str) -> None:
        """PyIceberg cannot replace a view: it drops it and makes it anew."""
        self.drop_view(view)
        self.create_view(view, table)

    def view_shows(self, view: str) -> object:
        (shown,) = self.catalog.load_view(view).metadata.versions[-1].representations
        return shown.root.sql

    def drop_view(self, view: str) -> None:
        self.catalog.drop_view(view)
