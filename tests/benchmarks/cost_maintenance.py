"""`python -m tests.benchmarks.cost_maintenance --json`: requests to the storage of one merge of a table's
hour, by the number of its small files.

Maintenance runs in this process instead of in Spark; what it asks of the storage is the same. The catalog's
metadata file of each commit is counted with it.
"""

import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer

from infra.local.supervisor import Stack
from lake.catalog_client import CatalogClient, TableName
from lake.settings import StorageSettings
from lake.storage import AnyStorage, StoredObject
from tests.benchmarks.cost import conditions
from tests.benchmarks.kept_results import Keep, keep
from tests.benchmarks.optimize import ROWS, make_tables
from tests.benchmarks.storage_requests import DELETE, GET, LIST, PUT
from tests.optimize.support.maintained import InProcess, maintenance

FILES = (4, 12)


class CountedStorage(AnyStorage):
    """The storage, counting what is asked of it."""

    def __init__(self) -> None:
        super().__init__(StorageSettings.load())
        self.asked = Counter[str]()

    def write(self, uri: str, data: bytes | memoryview) -> None:
        self.asked[PUT] += 1
        super().write(uri, data)

    def write_new(self, uri: str, data: bytes | memoryview) -> None:
        self.asked[PUT] += 1
        super().write_new(uri, data)

    def create(self, uri: str) -> Any:
        self.asked[PUT] += 1
        return super().create(uri)

    def read(self, uri: str, *, bytes_max: int | None = None, root: str | None = None) -> bytes:
        self.asked[GET] += 1
        return super().read(uri, bytes_max=bytes_max, root=root)

    def read_range(self, uri: str, start: int, length: int) -> bytes:
        self.asked[GET] += 1
        return super().read_range(uri, start, length)

    def open(self, uri: str) -> Any:
        self.asked[GET] += 1
        return super().open(uri)

    def size(self, uri: str) -> int | None:
        self.asked[GET] += 1
        return super().size(uri)

    def stat(self, uri: str) -> StoredObject | None:
        self.asked[GET] += 1
        return super().stat(uri)

    def delete(self, uris: Iterable[str], *, root: str | None = None) -> None:
        self.asked[DELETE] += 1
        super().delete(uris, root=root)

    def list(self, prefix: str) -> Iterator[StoredObject]:
        self.asked[LIST] += 1
        return super().list(prefix)


def merged(catalog: CatalogClient, tables: Sequence[TableName]) -> Counter[str]:
    """What a round of maintenance of these tables asks of the storage, deletion of what was merged
    included."""
    storage = CountedStorage()
    before = _commits(catalog, tables)
    report = maintenance(
        catalog,
        tables,
        storage=storage,
        executor=InProcess(storage, lambda: None),
        retention__reader_grace_s=0,
    ).run()
    assert not report.failures, report.failures
    storage.asked[PUT] += _commits(catalog, tables) - before  # the catalog's metadata file of each
    return storage.asked


def _commits(catalog: CatalogClient, tables: Sequence[TableName]) -> int:
    return sum(int(catalog.load_table(name)["metadata"]["last-sequence-number"]) for name in tables)


def main(
    tables: Annotated[int, typer.Option(help="tables of each number of files", min=2)] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON alone")] = False,
    keeps: Keep = False,
) -> None:
    """Merges hours of four and of twelve files."""
    found = dict[str, Any]()
    with tempfile.TemporaryDirectory(prefix="firn-bench-") as folder, Stack(Path(folder), tied=True) as stack:
        stack.start("catalog")
        catalog = CatalogClient(stack.address("catalog"))
        for files in FILES:
            names = make_tables(catalog, f"files{files}-", tables, files, ROWS)
            asked = merged(catalog, names)
            found[f"files_{files}"] = {kind: round(count / tables, 2) for kind, count in asked.items()}
    # A manifest and more is read for each file too, so that a merge of many asks for more of each.
    result = {
        **conditions(os.getloadavg()[:1]),
        "tables": tables,
        **found,
        "get_per_file": round(max(found[f"files_{files}"][GET] / files for files in FILES), 3),
        "put_per_merge": round(max(found[f"files_{files}"][PUT] for files in FILES) - 1, 3),
    }
    if keeps:
        keep("cost_maintenance", result)
    typer.echo(orjson.dumps(result, option=None if as_json else orjson.OPT_INDENT_2).decode())


if __name__ == "__main__":
    typer.run(main)
