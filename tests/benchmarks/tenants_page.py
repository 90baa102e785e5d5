"""`python -m tests.benchmarks.tenants_page --tenants 10000 --json`: what the page of tenants takes in a
lake of so many.

Every tenant has a table of its own with one file, made by the catalog with the code that ingestion commits
with. Catalog, search API and the page's script run as they are; there is no browser. `first` is the page as
it is opened, `next` the page after it, `filter` one tenant found by its name. With --folder the lake is kept
there, so that another version can be asked about the same one.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import orjson
import psutil
import typer
from streamlit.testing.v1 import AppTest

from catalog.store.database import Database, migrate
from lake.catalog_client import CatalogClient, CommitStatus, TableName
from lake.commit import new_table_state, prepare_append
from lake.marks import Range
from lake.storage import open_storage
from lake.table_layout import data_file_uri
from tests.benchmarks.fleet.server import Server, cpu_s
from tests.optimize.support.small_files import TOPIC, rows_of, write_small_file
from tests.query.support.processes import Child
from ui.settings import API_VARIABLE

TOGETHER = 1_000
ROWS = 40
HOUR_MS = 3_600_000
RUN_S = 300.0
Json = dict[str, Any]


def make(catalog: CatalogClient, tenants: int) -> None:
    """Makes the tables. They all name one data file's counts and bounds; nobody opens it here."""
    assert catalog.warehouse is not None
    storage, now_ms = open_storage(), int(time.time() * 1000)
    hour = now_ms // HOUR_MS
    sample = new_table_state(TableName("sample", "logs"), "sample", "logs", catalog.warehouse)
    file = write_small_file(storage, sample, sample.schema, hour, rows_of(hour, 0, ROWS, {}))
    for first in range(0, tenants, TOGETHER):
        prepared = []
        for number in range(first, min(first + TOGETHER, tenants)):
            name = TableName(f"t{number:07d}", "logs")
            catalog.create_namespace(name.namespace, {})
            state = new_table_state(name, name.namespace, name.name, catalog.warehouse)
            own = replace(file, uri=data_file_uri(state.location, hour), hour=hour)
            marks = state.marks.advanced({TOPIC: Range(0, ROWS)})
            prepared.append(prepare_append(state, [own], state.schema, marks, now_ms, writer="page"))
        storage.write_all([each for one in prepared for each in one.files])
        results = catalog.commit_all([each.request for each in prepared], timeout_s=RUN_S)
        refused = [result for result in results if result.status is not CommitStatus.COMMITTED]
        if refused:
            raise RuntimeError(f"{len(refused)} commits were refused, the first: {refused[0]}")


def _script() -> None:
    from ui.app_pages import tenants

    tenants.show()


def measure(services: Callable[[], float], tenants: int) -> Json:
    """Opens the page, turns it, filters it. `services`: CPU seconds that catalog and API have taken."""
    page, found = AppTest.from_function(_script, default_timeout=RUN_S), Json()

    @contextmanager
    def timed(name: str) -> Iterator[None]:
        began_s, script_s, services_s = time.perf_counter(), time.process_time(), services()
        yield
        if page.exception:
            raise RuntimeError(str(page.exception))
        found[f"{name}_wall_s"] = round(time.perf_counter() - began_s, 3)
        found[f"{name}_script_cpu_s"] = round(time.process_time() - script_s, 3)
        found[f"{name}_services_cpu_s"] = round(services() - services_s, 3)

    page.run()  # modules are imported, connections opened, caches of the catalog filled
    page.session_state["said"] = "asked for anew"
    with timed("first"):
        page.run()
    found["first_streams"] = len(page.dataframe[0].value)
    if forward := [button for button in page.button if button.label == "Next"]:
        with timed("next"):
            forward[0].click().run()
    with timed("filter"):
        page.text_input[0].set_value(f"t{tenants - 1:07d}").run()
    found["filter_streams"] = len(page.dataframe[0].value) if page.dataframe else 0
    return found


def main(
    tenants: Annotated[int, typer.Option(help="with one table each")] = 10_000,
    folder: Annotated[Path | None, typer.Option(help="where the lake is kept, or is already")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="the last line is one JSON object")] = False,
) -> None:
    """Measures the page."""
    place = folder or Path(tempfile.mkdtemp(prefix="firn-tenants-"))
    place.mkdir(exist_ok=True)
    url, is_new = f"sqlite:///{place / 'catalog.db'}", not (place / "made").exists()
    if is_new:
        database = Database(url)
        migrate(database)
        database.close()
    try:
        with Server(place, url) as server:
            if is_new:
                make(CatalogClient(server.uri), tenants)
                (place / "made").touch()
            variables = {
                "FIRN_QUERY_CATALOG__URI": server.uri,
                "FIRN_QUERY_TRINO__URI": "http://127.0.0.1:9",
                "FIRN_QUERY_STATE": str(place / "query"),
            }
            api = Child("query", place, variables).start()
            os.environ[API_VARIABLE] = api.address
            try:
                result = measure(lambda: server.cpu_s() + cpu_s(api.pid), tenants)
            finally:
                api.kill()
    finally:
        if folder is None:
            shutil.rmtree(place, ignore_errors=True)
    result |= {"tenants": tenants, "processors": psutil.cpu_count()}
    if as_json:
        print(orjson.dumps(result).decode())
    else:
        for key, value in result.items():
            print(f"{key:28} {value}")


if __name__ == "__main__":
    typer.run(main)
