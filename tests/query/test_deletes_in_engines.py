"""Which engines of this stack read row deletes right that Firn has written: position delete files of format
version 2, deletion vectors of version 3."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import httpx
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog

from lake.catalog_client import CatalogClient
from lake.commit import load_state
from lake.storage import local_text
from tests.catalog.conftest import spark  # noqa: F401 - the session-wide fixture
from tests.catalog.support.engines import spark_catalog
from tests.query.support.log_table import LogTable, fresh_tenant
from tests.query.support.reference import START
from tests.stack.support.line import Line

pytestmark = pytest.mark.stack

ROWS, ROWS_PER_FILE = 60, 10
# Trino 476 refuses tables of version 3 as a whole; the other three read both forms.
READ_RIGHT = {2: ["duckdb", "pyiceberg", "spark", "trino"], 3: ["duckdb", "pyiceberg", "spark"]}
Reader = Callable[[], list[int]]


class ChangedTable:
    """A table and its truth: the numbers `n` of the rows that are alive."""

    def __init__(self, catalog: CatalogClient, version: int) -> None:
        self.table = LogTable(catalog, fresh_tenant(f"deletes-{version}"), types={"n": "long"})
        self._next = 0
        for _ in range(2):  # two commits, each with files of several hours, the second in the new version
            self.table.append(self._records(ROWS // 2, spread=True), rows_per_file=ROWS_PER_FILE)
            self._upgrade(version)
        self.alive = set(range(ROWS))
        self.files = sorted(file.uri for file in self.table.files())

    def _records(self, count: int, *, spread: bool = False) -> list[dict[str, Any]]:
        first, self._next = self._next, self._next + count
        step = timedelta(minutes=6 if spread else 0)
        return [{"timestamp": START + step * (n % 30), "n": n} for n in range(first, first + count)]

    def _upgrade(self, version: int) -> None:
        name = self.table.name
        update = {"action": "upgrade-format-version", "format-version": version}
        self.table.catalog.post(
            f"/v1/namespaces/{name.namespace}/tables/{name.name}", {"requirements": [], "updates": [update]}
        )

    def change(self, dead: dict[int, list[int]], *, inserts: int = 0, own_dead: tuple[int, ...] = ()) -> None:
        """Deletes rows by the number of a file and positions in it, and inserts some."""
        by_uri = {self.files[at]: positions for at, positions in dead.items()}
        for uri, positions in by_uri.items():
            numbers = pq.read_table(local_text(uri), columns=["n"])["n"].to_pylist()
            self.alive -= {numbers[position] for position in positions}
        records = self._records(inserts)
        self.alive |= {record["n"] for at, record in enumerate(records) if at not in own_dead}
        self.table.change(by_uri, records, own_dead)


def _by_search(api: httpx.Client, table: LogTable, engine: str) -> list[int]:
    """A search of everything, on DuckDB or Trino."""
    hour = timedelta(hours=1)
    asked = {"tenant": table.tenant, "engine": engine, "limit": 1_000}
    times = {"from": (START - hour).isoformat(), "to": (START + 9 * hour).isoformat()}
    answer = api.post("/v1/search", json={**asked, **times})
    assert answer.status_code == 200, answer.text
    return [int(row["fields"]["n"]) for row in answer.json()["rows"]]


def _in_pyiceberg(uri: str, table: str) -> list[int]:
    loaded = load_catalog("deletes", type="rest", uri=uri).load_table(table)
    return [int(n) for n in loaded.scan(selected_fields=("n",)).to_arrow()["n"].to_pylist()]


def _readers(line: Line, session: Any, api: httpx.Client, table: LogTable) -> dict[str, Reader]:
    name, uri = f"{table.name.namespace}.{table.name.name}", line.stack.address("catalog")
    return {
        "duckdb": lambda: _by_search(api, table, "duckdb"),
        "pyiceberg": lambda: _in_pyiceberg(uri, name),
        "spark": lambda: [int(row[0]) for row in session.sql(f"SELECT n FROM deletes.{name}").collect()],
        "trino": lambda: [int(row[0]) for row in line.sql(f"SELECT n FROM lake.{name}")],
    }


def _right(readers: dict[str, Reader], alive: set[int]) -> list[str]:
    """The engines that find exactly these rows, each once; those that refuse or find others are printed."""
    right = []
    for engine, read in readers.items():
        try:
            found = sorted(read())
        except Exception as error:  # noqa: BLE001 - of four engines; what is expected of each is asserted
            print(f"{engine}: {type(error).__name__}: {str(error)[:200]}")
            continue
        if found == sorted(alive):
            right.append(engine)
        else:
            print(f"{engine}: {len(found)} rows, {len(alive)} are alive")
    return right


@pytest.fixture
def session(spark: Any, line: Line) -> Any:  # noqa: F811
    for name, value in spark_catalog("deletes", line.stack.address("catalog")).items():
        spark.conf.set(name, value)
    return spark


@pytest.mark.parametrize("version", [2, 3])
def test_engines_read_deletes(version: int, line: Line, session: Any, api: httpx.Client) -> None:
    """After one delete, a second one of the same file, deletes over several files with inserts of which one
    is deleted in the same commit, and an append."""
    changed = ChangedTable(line.catalog, version)
    table, readers = changed.table, _readers(line, session, api, changed.table)
    ids = _row_ids(session, table, version)
    changed.change({0: [0, 3]})
    assert _right(readers, changed.alive) == READ_RIGHT[version]
    changed.change({0: [1, 3]})
    assert _right(readers, changed.alive) == READ_RIGHT[version]
    changed.change({0: [9], 1: list(range(5)), 3: list(range(ROWS_PER_FILE))}, inserts=8, own_dead=(2,))
    assert _right(readers, changed.alive) == READ_RIGHT[version]
    table.append([{"timestamp": START, "n": 1_000}])
    changed.alive.add(1_000)
    assert _right(readers, changed.alive) == READ_RIGHT[version]
    after = _row_ids(session, table, version)
    assert {n: after[n] for n in after if n in ids} == {n: ids[n] for n in changed.alive if n in ids}
    assert version == 2 or len(set(after.values())) == len(changed.alive)
    state = load_state(table.catalog, table.storage, table.name)
    assert state is not None
    # Version 2 keeps a file for each delete of a data file; version 3 has one vector for each data file.
    expected = (
        (ROWS + 8 + 1, 6, 2 + 2 + 1 + 5 + 10 + 1) if version == 2 else (ROWS + 8 + 1, 4, 4 + 5 + 10 + 1)
    )
    totals = state.totals
    assert (totals.rows, totals.delete_files, totals.position_deletes) == expected


def _row_ids(session: Any, table: LogTable, version: int) -> dict[int, int]:
    """The ids of version 3 by number, none of version 2."""
    if version == 2:
        return {}
    name = f"deletes.{table.name.namespace}.{table.name.name}"
    return {int(n): int(row_id) for n, row_id in session.sql(f"SELECT n, _row_id FROM {name}").collect()}
