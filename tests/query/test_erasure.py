"""Erasure: matching rows are in no file that anybody can reach, whatever is written meanwhile, and all other
rows stay as they were."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lake.catalog_client import CatalogClient
from lake.clock import SystemClock
from lake.data_file import describe_parquet
from lake.log_schema import leaf_ids
from lake.settings import QuerySettings
from lake.storage import local_path, open_storage
from query.erasure.erase_table import TableErasure, Tools, Wanted, queue_unreached
from query.erasure.rewritten_file import write_without
from query.executors.embedded import EmbeddedExecutor
from query.files.file_index import FileIndex
from query.model.cancellation import Run
from tests.query.support.log_table import LogTable
from tests.query.test_two_engines import schema as wide_schema
from tests.stack.support.line import Sql
from tests.stack.support.waiting import wait_for

START = datetime(2026, 1, 2, 3, 0, tzinfo=UTC)
END = START + timedelta(days=1)
QUERY = 'user:"alice" AND NOT message:harmless'


def records(count: int = 300) -> list[dict[str, Any]]:
    """Every third row is Alice's; of hers every fifth is harmless. The last hour is all hers."""
    rows = []
    for at in range(count):
        moment = START + timedelta(minutes=at)
        hers = at % 3 == 0 or moment >= START + timedelta(hours=4)
        errors = [{"field": "/took", "value": "fast", "reason": "wrong_type"}] if at % 7 == 0 else None
        said = "harmless" if at % 15 == 0 and moment < START + timedelta(hours=4) else f"said {at}"
        rows.append(
            {"timestamp": moment, "user": "alice" if hers else "bob", "message": said, "_errors": errors}
        )
    return rows


def is_hers(row: dict[str, Any]) -> bool:
    return bool(row["user"] == "alice" and row["message"] != "harmless")


def on_disk(table: LogTable) -> list[dict[str, Any]]:
    """Every row of every Parquet file below the table's location, live or not."""
    location = local_path(str(table.catalog.load_table(table.name)["metadata"]["location"]))
    return [row for path in location.rglob("*.parquet") for row in pq.read_table(path).to_pylist()]


def tools_of(catalog: CatalogClient, folder: Path) -> Tools:
    storage = open_storage()
    paths: Callable[..., list[str]] = lambda uris, _: [str(local_path(uri)) for uri in uris]  # noqa: E731
    embedded = EmbeddedExecutor(QuerySettings(state=str(folder)), paths)
    return Tools(catalog, storage, FileIndex(storage), embedded, paths, SystemClock(), 0.0)


def test_a_file_written_anew_differs_in_nothing_but_the_rows_left_out(tmp_path: Path) -> None:
    """Same columns, ids and types, lists included, the rows in their order, and a description as of any other
    file."""
    schema = wide_schema()
    columns = {field.name: [None] * 10 for field in schema.arrow} | {
        "_offset": list(range(10)),
        "took": [at / 2 for at in range(10)],
    }
    system = {
        "timestamp": [START] * 10,
        "observed_timestamp": [START] * 10,
        "_topic": ["t"] * 10,
        "_topic_id": ["i"] * 10,
    }
    numbers = {
        "_topic_partition": [0] * 10,
        "_index": [0] * 10,
        "_errors": [[{"field": "f", "value": "v", "reason": "r"}], None] * 5,
    }
    rows = pa.table({**columns, **system, **numbers}, schema=schema.arrow)
    pq.write_table(rows, tmp_path / "old.parquet", row_group_size=3, store_schema=False)
    new = tmp_path / "new.parquet"
    written = write_without(open_storage(), str(tmp_path / "old.parquet"), f"file://{new}", 7, [0, 4, 9])
    assert pq.read_table(new).equals(pq.read_table(tmp_path / "old.parquet").take([1, 2, 3, 5, 6, 7, 8]))
    assert pq.read_schema(new).equals(pq.read_schema(tmp_path / "old.parquet"), check_metadata=True)
    assert written == describe_parquet(
        f"file://{new}", 7, new.stat().st_size, pq.read_metadata(new), leaf_ids(schema.json["fields"])
    )


@pytest.mark.stack
def test_erased_rows_are_gone_for_good_and_all_others_stay(
    api: httpx.Client, catalog_client: CatalogClient, log_table: Callable[..., LogTable]
) -> None:
    """Through the API: counted first, then erased; no snapshot is left but one, exports are removed, and
    after the grace no file on the disk holds a row."""
    table = log_table()
    rows = [*table.append(records()[:200], rows_per_file=40), *table.append(records()[200:])]
    where = {"tenant": table.tenant, "from": START.isoformat(), "to": END.isoformat()}
    wait_for(lambda: export_state(api, {**where, "format": "ndjson"}) == "done", 30.0, "the export")
    foretold = finished(api, {"tenant": table.tenant, "query": QUERY, "dry_run": True})
    hers = [row for row in rows if is_hers(row)]
    assert (foretold["rows"], foretold["state"]) == (len(hers), "done")
    assert api.post("/v1/histogram", json=where).json()["rows"] == len(rows)
    report = finished(api, {"tenant": table.tenant, "query": QUERY})
    (erased,) = report["tables"]
    assert (erased["rows"], erased["rows_left"], erased["problem"]) == (len(hers), 0, None)
    assert erased["files_removed"] >= 1
    assert len(report["exports_removed"]) == 1
    metadata = catalog_client.load_table(table.name)["metadata"]
    assert [str(s["snapshot-id"]) for s in metadata["snapshots"]] == [erased["snapshot_id"]]
    found = api.post("/v1/search", json={**where, "limit": 1000, "order": "oldest"}).json()["rows"]
    assert [row["coordinates"]["offset"] for row in found] == [
        row["_offset"] for row in rows if not is_hers(row)
    ]
    assert api.post("/v1/search", json={**where, "query": QUERY, "engine": "trino"}).json()["rows"] == []
    assert report["files_left"] == erased["files_queued"] > 5


def finished(api: httpx.Client, body: dict[str, Any]) -> dict[str, Any]:
    """The report of an erasure, asked for and waited for."""
    made = api.post("/v1/erasures", json=body).json()

    def report() -> dict[str, Any]:
        return dict(api.get(f"/v1/erasures/{made['id']}").json())

    wait_for(lambda: report()["state"] != "running", 60.0, "the erasure")
    return report()


def export_state(api: httpx.Client, body: dict[str, Any]) -> str:
    """The state of the tenant's one export, which is begun where there is none."""
    found = api.get("/v1/exports", params={"tenant": body["tenant"]}).json()["exports"]
    return str(found[0]["state"]) if found else str(api.post("/v1/exports", json=body).json()["state"])


@pytest.mark.stack
def test_rows_that_come_while_rows_are_erased_lose_nothing(
    catalog_client: CatalogClient, log_table: Callable[..., LogTable], tmp_path: Path
) -> None:
    """Ingestion commits all the time: the erasure tries again until it is done, and every row that does not
    match is there once."""
    table = log_table()
    rows = table.append(records(), rows_per_file=60)
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            rows.extend(table.append(records(20)))
            stop.wait(0.1)

    writer = threading.Thread(target=write)
    writer.start()
    noted: list[str] = []
    tools = tools_of(catalog_client, tmp_path)
    try:
        TableErasure(tools, Wanted(table.id, START, END, QUERY), Run(120.0), noted.extend).erase()
    finally:
        stop.set()
        writer.join()
    report = TableErasure(tools, Wanted(table.id, START, END, QUERY), Run(120.0), noted.extend).erase()
    assert (report.rows_left, report.problem) == (0, None)
    left = sorted(
        row["_offset"] for file in table.files() for row in pq.read_table(local_path(file.uri)).to_pylist()
    )
    assert left == sorted(row["_offset"] for row in rows if not is_hers(row))
    gone = queue_unreached(tools, table.id, noted)
    tools.storage.delete(gone)
    live = {file.uri for file in table.files()}
    assert not live & set(gone)
    leftovers = [row for row in on_disk(table) if is_hers(row)]
    assert leftovers == []


@pytest.mark.stack
def test_rows_that_were_deleted_before_do_not_come_back(
    catalog_client: CatalogClient, log_table: Callable[..., LogTable], trino: Sql, tmp_path: Path
) -> None:
    """Position deletes of another engine apply to the files that are written anew as well."""
    table = log_table()
    rows = table.append(records(120))
    namespace, name = table.name
    trino(f'DELETE FROM "{namespace}"."{name}" WHERE message LIKE \'said 1%\' AND "user" = \'bob\'')
    report = TableErasure(
        tools_of(catalog_client, tmp_path), Wanted(table.id, START, END, QUERY), Run(60.0), lambda _: None
    ).erase()
    assert report.rows_left == 0
    left = {row[0] for row in trino(f'SELECT _offset FROM "{namespace}"."{name}"')}
    assert left == {
        row["_offset"]
        for row in rows
        if not is_hers(row) and not (row["user"] == "bob" and row["message"].startswith("said 1"))
    }


@pytest.mark.stack
@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ({"query": ""}, 400, "every row"),
        ({"query": "*"}, 400, "every row"),
        ({"query": "a:("}, 400, "too early"),
        ({"query": "x", "from": "2026-01-02", "to": "2026-01-01"}, 400, "time range is empty"),
        ({"query": "x", "streams": [""]}, 400, "stream"),
    ],
)
def test_an_erasure_that_says_too_little_is_refused(
    api: httpx.Client, body: dict[str, Any], status: int, says: str
) -> None:
    """Nothing is erased by mistake."""
    answer = api.post("/v1/erasures", json={"tenant": "nobody-in-particular", **body})
    assert (answer.status_code, says in answer.text) == (status, True), answer.text


@pytest.mark.stack
def test_a_stream_that_is_not_there_is_named_in_the_report(
    api: httpx.Client, log_table: Callable[..., LogTable]
) -> None:
    """The others are erased, and the report is not called done."""
    table = log_table()
    table.append(records(30))
    report = finished(api, {"tenant": table.tenant, "query": "user:alice", "streams": ["logs", "missing"]})
    by_stream = {each["stream"]: each for each in report["tables"]}
    assert (by_stream["logs"]["rows_left"], by_stream["logs"]["rows"]) == (0, 10)
    assert "dropped" in by_stream["missing"]["problem"]
    assert report["state"] == "incomplete"
