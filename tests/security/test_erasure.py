"""An erasure that says `done` means it: what was on its way is in and erased, in whatever column; it keeps
nothing of what it erased."""

import re
import stat
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from ingest.decode.replay import Origin, replay_headers
from ingest.kafka.aside import Aside
from ingest.kafka.kafka_reader import KafkaReader
from ingest.kafka.topic_mac import TopicMac
from ingest.model.source import Source
from ingest.parking.parked_erasure import erase_parked
from ingest.parking.parked_topic import PARKED_FOLDER, ParkedTopic
from ingest.route.buffer import RawRecord
from lake.settings import IngestSettings
from lake.storage import local_path, open_storage
from lake.tenant import TableId, TenantId
from tests.query.support.following import Following
from tests.query.support.guarded import Guarded
from tests.query.support.log_table import LogTable, fresh_tenant
from tests.query.support.processes import Child, run
from tests.stack.support.eraser import Eraser
from tests.stack.support.kafka_topics import Record
from tests.stack.support.line import Line
from tests.stack.support.plain_http import http
from tests.stack.support.waiting import pause, wait_for

pytestmark = [pytest.mark.finding(10), pytest.mark.stack]
SECRET = "alice-4711"
START = datetime(2026, 3, 4, 5, 0, tzinfo=UTC)


@pytest.fixture(scope="module")
def following(line: Line, eraser: Eraser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Following]:
    """An API over the tools of one topic; the ingester of it starts and stops as the tests say."""
    made = Following(line, tmp_path_factory.mktemp("erasures"))
    yield made
    made.end()


@pytest.fixture
def ask(following: Following) -> Callable[..., dict[str, Any]]:
    """The report of an erasure when it has ended."""

    def asked(**body: Any) -> dict[str, Any]:
        return ended(following, following.post("erasures", **body)["id"])

    return asked


def ended(following: Following, job_id: str) -> dict[str, Any]:
    wait_for(lambda: following.get(f"erasures/{job_id}")["state"] != "running", 120.0, "the erasure")
    return following.get(f"erasures/{job_id}")


def found(following: Following, tenant: str, query: str) -> int:
    return int(
        following.post("histogram", tenant=tenant, query=query, **{"from": "2020-01-01", "to": "2030-01-01"})[
            "rows"
        ]
    )


def record(user: str, number: int) -> bytes:
    return b'{"message":"said %d","user":"%s"}' % (number, user.encode())


def kept_files(following: Following) -> list[Path]:
    return [path for path in (following.folder / "query" / "erasures").iterdir() if path.is_file()]


def test_what_had_reached_kafka_is_erased_before_an_erasure_is_done(
    following: Following, ask: Callable[..., dict[str, Any]]
) -> None:
    """While nobody ingests it waits, and other work goes on; its file is nobody else's to read. When the
    records are in, they are erased as well."""
    tenant = following.tenant
    following.ingester.start()
    following.produce(tenant, record(SECRET, 1), record("bob", 2))
    wait_for(lambda: following.line.rows_written(tenant) == 2, 60.0, "the first rows")
    following.ingester.stop()
    following.produce(tenant, record(SECRET, 3), record("bob", 4))

    job_id = following.post("erasures", tenant=tenant, query=f"user:{SECRET}")["id"]
    wait_for(lambda: following.get(f"erasures/{job_id}")["waits_for"], 30.0, "the waiting")
    waiting = following.get(f"erasures/{job_id}")
    assert (waiting["state"], waiting["rows"], waiting["query"]) == ("running", 1, f"user:{SECRET}")
    assert following.topic in waiting["waits_for"][0]
    assert ask(tenant=tenant, query="user:bob", dry_run=True)["rows"] == 1
    assert {stat.S_IMODE(path.stat().st_mode) for path in kept_files(following)} == {0o600}

    following.ingester.start()
    report = ended(following, job_id)
    assert (report["state"], report["rows"], report["elsewhere"]) == ("done", 2, [])
    pause(1.0)
    assert (found(following, tenant, SECRET), found(following, tenant, "user:bob")) == (0, 2)


def test_an_erasure_that_waits_in_vain_says_what_is_not_in(following: Following) -> None:
    """Nobody ingests: after the time that the settings give it is `incomplete`, and names the partition and
    the offset."""
    following.ingester.stop()
    following.produce(following.tenant, record("carol", 5))
    environment = {
        **following.environment,
        "FIRN_QUERY_ERASURE__WAIT_S": "1",
        "FIRN_QUERY_STATE": str(following.folder / "hasty"),
    }
    api = Child("query", following.folder, environment).start()
    try:
        with httpx.Client(base_url=api.address, timeout=60.0, trust_env=False) as client:
            made = client.post(
                "/v1/erasures", json={"tenant": following.tenant, "query": "user:carol"}
            ).json()
            wait_for(
                lambda: client.get(f"/v1/erasures/{made['id']}").json()["state"] != "running",
                60.0,
                "the erasure",
            )
            report = client.get(f"/v1/erasures/{made['id']}").json()
    finally:
        api.kill()
        following.ingester.start()
    assert report["state"] == "incomplete"
    assert re.search(
        rf"{following.topic}/0 below offset \d+: what had reached Kafka there was not in the tables after 1 "
        r"s",
        report["elsewhere"][0],
    )


def test_nothing_of_the_query_is_kept_when_an_erasure_has_ended(
    following: Following, ask: Callable[..., dict[str, Any]]
) -> None:
    """Neither the job's file nor the log holds a word of it, also where it does not fit a field; the hash
    tells the same query from another."""
    table = LogTable(following.line.catalog, fresh_tenant("private"), types={"bytes": "long"})
    table.append(
        [
            {"timestamp": START, "message": f"by {SECRET}", "bytes": 5},
            {"timestamp": START, "message": "other", "bytes": 6},
        ]
    )
    queries = (f"message:{SECRET}", f"message:{SECRET}", f"bytes:{SECRET}", f"message:other{SECRET}")
    reports = [ask(tenant=table.tenant, query=query) for query in queries]
    assert [report["rows"] for report in reports] == [1, 0, 0, 0]
    assert [report["query"] for report in reports] == [None] * 4
    hashes = [report["query_hash"] for report in reports]
    assert (hashes[0] == hashes[1], len(set(hashes))) == (True, 3)
    assert "does not fit" in reports[2]["tables"][0]["problem"]
    for path in [*kept_files(following), following.api.log_file]:
        assert SECRET.encode() not in path.read_bytes(), path


def test_words_are_erased_from_errors_and_overflow_too(
    following: Following, ask: Callable[..., dict[str, Any]]
) -> None:
    """A value that did not fit its column, one beyond the limit of columns, one inside of JSON with its
    quotes escaped: all go by the bare word."""
    table = LogTable(following.line.catalog, fresh_tenant("hidden"))
    name = 'Alice "Al" Liddell'
    misfit = {"field": "/age", "value": name, "reason": "wrong_type"}
    table.append(
        [
            {"timestamp": START, "message": name},
            {"timestamp": START, "message": "in errors", "_errors": [misfit]},
            {"timestamp": START, "message": "in overflow", "_overflow": '{"who":"Alice \\"Al\\" Liddell"}'},
            {"timestamp": START, "message": "in a list", "tags": '["x","Alice \\"Al\\" Liddell"]'},
            {
                "timestamp": START,
                "message": "field of that name",
                "_errors": [{**misfit, "field": f"/{name}", "value": "Bob"}],
            },
            {"timestamp": START, "message": "Alice Liddell"},
        ]
    )
    report = ask(tenant=table.tenant, query='"Alice \\"Al\\" Liddell"')
    assert (report["rows"], report["tables"][0]["rows_left"]) == (4, 0)
    left = following.post("search", tenant=table.tenant, **{"from": "2026-01-01", "to": "2026-12-01"})["rows"]
    assert sorted(row["message"] for row in left) == ["Alice Liddell", "field of that name"]


@pytest.mark.parametrize(
    "query",
    [
        "message:* OR NOT message:*",
        "* OR user:alice",
        "timestamp:*",
        "NOT (a AND NOT a)",
        '(user:"x" y) OR NOT user:x OR -Y',
    ],
)
def test_a_query_that_is_every_row_by_its_form_is_refused(following: Following, query: str) -> None:
    """Whatever it is dressed up as."""
    answer = http.post(
        f"{following.api.address}/v1/erasures",
        json={"tenant": following.tenant, "query": query},
        timeout=60.0,
    )
    assert (answer.status_code, "every row" in answer.text) == (400, True), answer.text


def test_a_query_that_matches_every_row_erases_nothing_unless_it_is_meant(
    following: Following, ask: Callable[..., dict[str, Any]]
) -> None:
    """All rows of all streams asked for, or of the time range; with `all: true` they go."""
    tenant = fresh_tenant("all")
    for stream, hours in (("logs", 3), ("other", 1)):
        LogTable(following.line.catalog, tenant, stream).append(
            [{"timestamp": START + timedelta(hours=at), "message": f"row {at}"} for at in range(hours)]
        )
    for body in (
        {"query": "NOT message:nobody"},
        {"query": "row"},
        {"query": '"row 1"', "from": "2026-03-04T06:00:00Z", "to": "2026-03-04T06:30:00Z"},
    ):
        report = ask(tenant=tenant, **body)
        assert (report["state"], report["rows"]) == ("failed", 0)
        assert "every one of the" in report["message"]
    assert found(following, tenant, "row") == 3
    assert ask(tenant=tenant, query="row", streams=["logs"])["state"] == "failed"
    assert ask(tenant=tenant, query='"row 0"')["rows"] == 2
    assert ask(tenant=tenant, query="row", all=True)["rows"] == 2
    assert found(following, tenant, "row") == 0


def test_rows_that_come_while_an_erasure_waits_are_guarded_too(following: Following) -> None:
    """A tenant without any row yet: what comes is not erased as a whole by a query that matches all of it."""
    tenant = fresh_tenant("late")
    following.ingester.stop()
    following.produce(tenant, b'{"message":"precious"}')
    job_id = following.post("erasures", tenant=tenant, query="NOT message:nobody")["id"]
    wait_for(lambda: following.get(f"erasures/{job_id}")["waits_for"], 60.0, "the waiting")
    following.ingester.start()
    report = ended(following, job_id)
    assert (report["state"], found(following, tenant, "precious")) == ("failed", 1)


def test_dead_letters_that_match_are_named_and_the_tool_erases_them(
    following: Following, ask: Callable[..., dict[str, Any]]
) -> None:
    """Value, key and headers are looked at; with the ids that the report names they are erased, and the next
    erasure is done."""
    tenant = following.other
    following.produce(
        tenant, b'{"broken": "%s"' % SECRET.encode(), b'{"broken": "bob"', b'{"message":"whole"}'
    )
    wait_for(
        lambda: len(following.get("dead-letters", tenant=tenant)["dead_letters"]) == 2, 60.0, "the letters"
    )
    report = ask(tenant=tenant, query=SECRET)
    assert report["state"] == "incomplete"
    (named,) = report["elsewhere"]
    assert named.startswith("dead letters that match: 1 (")
    letter_id = named.split("(")[1].split(")")[0]
    done = run("ingest", following.ingester.environment, "dead-letters", "erase", letter_id, "--json")
    assert (done.returncode, '"erased": 1' in done.stdout) == (0, True), done.stderr
    assert ask(tenant=tenant, query=SECRET)["state"] == "done"
    assert [letter["begins"] for letter in following.get("dead-letters", tenant=tenant)["dead_letters"]] == [
        '{"broken": "bob"'
    ]


def test_parked_and_replayed_messages_that_match_are_named_and_what_no_table_waits_for_can_be_deleted(
    following: Following, ask: Callable[..., dict[str, Any]]
) -> None:
    """Also a body that was too large for the topic; deleted with the messages, it is gone from the
    warehouse."""
    variables = following.ingester.environment
    known = {
        name: variables[f"FIRN_INGEST_{name.upper()}"]
        for name in (
            "kafka__bootstrap_servers",
            "kafka__group",
            "internal_topics__parked",
            "internal_topics__dead_letters",
        )
    }
    keys = orjson.loads(variables.get("FIRN_INGEST_INTERNAL_TOPICS__SIGNING_KEYS", "[]"))
    settings = IngestSettings.load(
        **known, topics=[{"name": following.topic}], internal_topics__signing_keys=keys
    )
    warehouse, tenant = str(following.line.catalog.warehouse), fresh_tenant("parked")
    topic = ParkedTopic(settings, open_storage(), warehouse)
    for at, value in enumerate(
        (record(SECRET, 0), b"x" * 17 * 1024 * 1024 + b" " + SECRET.encode(), record("bob", 1))
    ):
        topic.send(
            Source(following.topic, "an-id", 0, "json", "UTC"),
            RawRecord(0, at, 0, None, [], value),
            TableId(TenantId(tenant), "logs"),
            "0-of-old",
        )
    topic.flush()
    LogTable(following.line.catalog, tenant).append([{"timestamp": START, "message": "here"}])
    (named,) = ask(tenant=tenant, query=SECRET)["elsewhere"]
    assert named.startswith("copies of parked records that match and that no table waits for: 2 (")
    bodies = local_path(warehouse) / "parked"
    assert len(list(bodies.iterdir())) == 1
    reader, now = KafkaReader(settings), datetime.now(UTC)
    aside = Aside.of(open_storage(), warehouse, PARKED_FOLDER)
    young = erase_parked(settings, reader, aside, [], now)
    later = erase_parked(settings, reader, aside, [], now + timedelta(hours=2))
    assert (young.messages, later.messages, later.bodies) == (0, 3, 1)
    assert list(bodies.iterdir()) == []
    assert ask(tenant=tenant, query=SECRET)["state"] == "done"
    origin = Origin(following.topic, "an-id", 0, 9, None, "json", "UTC", 1)
    headers = replay_headers(origin, TableId(TenantId(tenant), "logs"))
    headers += TopicMac(settings).header(settings.internal_topics.replay, None, record(SECRET, 9), headers)
    sent = Record(record(SECRET, 9), headers=headers)
    following.line.kafka.produce(settings.internal_topics.replay, [sent])
    report = ask(tenant=tenant, query=SECRET)
    assert (report["rows"], report["state"]) == (1, "incomplete")
    assert report["elsewhere"][0].startswith("dead letters that were sent again and match: 1 (")


def test_no_tenants_key_reaches_the_list_of_what_erasures_take_away(keyed: Guarded) -> None:
    """Neither to ask for other tables past the API, nor to read or withdraw what others ask for; a key of the
    room's own may."""
    task = {
        "id": "optimize.erasure:stolen",
        "kind": "optimize.erasure",
        "state": "asked",
        "version": 0,
        "record": {
            "table": keyed.theirs.name.to_json(),
            "table-uuid": keyed.theirs.catalog.load_table(keyed.theirs.name)["metadata"]["table-uuid"],
            "rows": {},
            "grace-ms": 0,
        },
    }
    for key in ("mine", "theirs", "reader"):
        headers = {"Authorization": f"Bearer {keyed.keys[key]}"}
        with httpx.Client(
            base_url=keyed.catalog.address, headers=headers, timeout=60.0, trust_env=False
        ) as client:
            answers = (
                client.post("/firn/v1/tasks", json={"tasks": [task]}),
                client.get("/firn/v1/tasks", params={"kind": "optimize.erasure"}),
                client.get("/firn/v1/tasks", params={"kind": "optimize.erasure-answer"}),
                client.delete("/firn/v1/tasks/optimize.erasure:stolen"),
            )
        assert [answer.status_code for answer in answers] == [403] * 4
    found = httpx.get(
        f"{keyed.catalog.address}/firn/v1/tasks",
        params={"kind": "optimize.erasure"},
        headers={"Authorization": f"Bearer {keyed.keys['room']}"},
        timeout=60.0,
        trust_env=False,
    )
    assert (found.status_code, "stolen" in found.text) == (200, False)
