"""Erasure: matching rows are in no file that anybody can reach, whatever is written meanwhile, and all other
rows stay as they were."""

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from lake.catalog_client import CatalogClient
from lake.data_file import DataFile, describe_parquet
from lake.erasure_work import ErasureWork
from lake.log_schema import leaf_ids
from lake.manifest import ManifestEntry, Status
from lake.metrics import QUERY_ERASURES_WAITING
from lake.storage import local_path, open_storage
from optimize.rewritten_file import write_without
from query.erasure import erasure, optimizer_requests
from query.erasure.erasure import Erasures
from query.erasure.job import Asked, Erasure
from query.model.limits import BusyError
from tests.query.support.erasing import Nothing, TwoHalves, search_tools
from tests.query.support.log_table import LogTable
from tests.query.support.one_file import schema as wide_schema
from tests.stack.support.eraser import Eraser
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
    with (tmp_path / "old.parquet").open("rb") as old:
        entry = ManifestEntry(Status.EXISTING, DataFile(f"file://{tmp_path}/old.parquet", 7, 10, 1))
        gone = BitMap64([0, 4, 9])
        written = write_without(open_storage(), old, f"file://{new}", entry, gone, keeps_row_ids=False)
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
    erasing = TwoHalves(table, tmp_path, QUERY, START, END)
    try:
        erasing.run(rounds=3)  # rows that match come all the time, so no search finds nothing left
    finally:
        stop.set()
        writer.join()
    report = erasing.run()
    assert report is not None
    assert (report.rows_left, report.problem) == (0, None)
    assert sum(answer.rows for answer in erasing.answers) == sum(map(is_hers, rows))
    left = sorted(
        row["_offset"] for file in table.files() for row in pq.read_table(local_path(file.uri)).to_pylist()
    )
    assert left == sorted(row["_offset"] for row in rows if not is_hers(row))
    erasing.tools.storage.delete(erasing.queued)
    live = {file.uri for file in table.files()}
    assert not live & set(erasing.queued)
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
    report = TwoHalves(table, tmp_path, QUERY, START, END).run()
    assert report is not None
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


def erasures_in(catalog: CatalogClient, folder: Path) -> Erasures:
    """Erasures of this process, begun."""
    made = Erasures(folder, search_tools(catalog, folder / "search"), Nothing(), lambda _: None, 60.0)
    made.start()
    return made


def asked_for(table: LogTable, query: str = QUERY) -> Erasure:
    return Erasure("", table.tenant, (), query, START.isoformat(), END.isoformat(), False, "a-key", "")


@pytest.mark.stack
def test_an_erasure_says_that_it_waits_for_the_optimizer_and_goes_on_after_a_restart(
    catalog_client: CatalogClient,
    eraser: Eraser,
    log_table: Callable[..., LogTable],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody takes it up: a sentence and a metric say so, another tenant's dry run is not held up. What the
    optimizer does while the API is away counts when it is back, once, and nothing stays on the list."""
    monkeypatch.setattr(optimizer_requests, "PATIENCE_S", 0.5)
    table, other = log_table(), log_table()
    rows = table.append(records(), rows_per_file=60)
    other.append(records(20))
    work = ErasureWork(catalog_client)
    with eraser.paused() as optimizer:
        first = erasures_in(catalog_client, tmp_path)
        job_id = first.create(asked_for(table)).id
        wait_for(lambda: "waits for the optimizer" in first.get(job_id).message, 30.0, "the sentence")
        assert first.get(job_id).state == "running"
        assert QUERY_ERASURES_WAITING._value.get() == 1
        dry = first.create(replace(asked_for(other), dry_run=True)).id
        wait_for(lambda: first.get(dry).state == "done", 30.0, "the dry run")
        (request,) = [task for task in work.requests() if job_id in task.id]
        assert not [word for word in ("alice", "harmless") if word in str(request.record)]
        first.stop()
        assert optimizer.run() == 1
    second = erasures_in(catalog_client, tmp_path)
    try:
        wait_for(lambda: second.get(job_id).state != "running", 60.0, "the erasure")
        done = second.get(job_id)
        assert (done.state, done.message, done.rows) == ("done", "", sum(map(is_hers, rows)))
        assert (done.tables[0].rows_left, done.asked, len(done.queued) > 5) == (0, None, True)
        assert QUERY_ERASURES_WAITING._value.get() == 0
        assert [task for task in work.requests() if job_id in task.id] == []
        assert work.answer(request.id.split(":")[1]) is None
    finally:
        second.stop()


@pytest.mark.stack
def test_a_request_that_is_lost_is_made_again(
    catalog_client: CatalogClient,
    eraser: Eraser,
    log_table: Callable[..., LogTable],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As after a catalog was restored, or the API died before it had asked."""
    monkeypatch.setattr(optimizer_requests, "PATIENCE_S", 0.5)
    table = log_table()
    table.append(records(60))
    erasures = erasures_in(catalog_client, tmp_path)
    try:
        with eraser.paused():
            job_id = erasures.create(asked_for(table)).id
            asked = wait_for(lambda: erasures.get(job_id).asked, 30.0, "the request")
            assert asked is not None
            wait_for(lambda: list(ErasureWork(catalog_client).requests()), 30.0, "the request being there")
            ErasureWork(catalog_client).drop_request(asked.id)
            wait_for(lambda: erasures.get(job_id).asked not in (None, asked), 30.0, "another request")
        wait_for(lambda: erasures.get(job_id).state == "done", 60.0, "the erasure")
    finally:
        erasures.stop()


def test_a_tenant_with_too_many_unfinished_erasures_is_told_to_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others are not held up by it."""
    monkeypatch.setattr(erasure, "UNFINISHED_PER_TENANT", 2)
    tools = search_tools(CatalogClient("http://127.0.0.1:9"), tmp_path / "search")
    erasures = Erasures(tmp_path, tools, Nothing(), lambda _: None, 60.0)  # nothing carries them out
    wanted = Erasure("", "mine", (), "alice", START.isoformat(), END.isoformat(), False, "a-key", "")
    for _ in range(2):
        erasures.create(wanted)
    with pytest.raises(BusyError, match="2 erasures of the tenant have not ended"):
        erasures.create(wanted)
    erasures.create(replace(wanted, tenant="theirs"))


def test_an_erasure_that_an_older_version_began_is_read(tmp_path: Path) -> None:
    """Its file knows of files that process noted, and nothing of requests; it goes on where it was."""
    path = tmp_path / "old.json"
    asked = Erasure("old", "mine", ("logs",), "alice", START.isoformat(), END.isoformat(), False, "a-key", "")
    asked.to_file(path)
    document = orjson.loads(path.read_bytes())
    for name in ("searches_again", "missing", "settled", "asked"):
        del document[name]
    path.write_bytes(orjson.dumps({**document, "noted": {"logs": ["file:///w/a.parquet"]}}))
    assert Erasure.from_file(path) == asked
    answered = replace(asked, asked=Asked("old-1", "logs", START.isoformat(), True, 2**62), settled=("x",))
    answered.to_file(path)
    assert Erasure.from_file(path) == answered
