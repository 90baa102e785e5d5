"""What comes from ingest: dead letters, parked streams, live tail, and answers that say they are not
complete."""

import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import httpx
import orjson
import pytest

from infra.local.supervisor import Stack
from tests.query.support.following import Following
from tests.query.support.processes import run
from tests.stack.support.eraser import Eraser
from tests.stack.support.line import Line
from tests.stack.support.plain_http import http
from tests.stack.support.waiting import wait_for

pytestmark = pytest.mark.stack


@pytest.fixture(scope="module")
def following(line: Line, eraser: Eraser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Following]:
    """Ended after the tests of this file."""
    made = Following(line, tmp_path_factory.mktemp("following"))
    yield made
    made.end()


def test_a_tail_shows_records_before_they_are_in_a_table(following: Following) -> None:
    """Through the API, only of the tenant, only those with the words; no more than two of one tenant; on the
    command line as JSON lines."""
    seen: list[dict[str, Any]] = []
    is_open, leave = threading.Event(), threading.Event()

    def listen() -> None:
        client = httpx.Client(base_url=following.api.address, timeout=60.0, trust_env=False)
        with (
            closing(client),
            client.stream(
                "GET", "/v1/tail", params={"tenant": following.tenant, "words": "needle"}
            ) as response,
        ):
            assert response.headers["content-type"].startswith("text/event-stream")
            for line in response.iter_lines():
                if line == "event: open":
                    is_open.set()
                elif line.startswith("data: ") and "message" in line:
                    seen.append(orjson.loads(line[6:]))
                    if leave.is_set():
                        return

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    assert is_open.wait(30)
    following.produce(following.other, b'{"message":"a needle of somebody else"}')
    following.produce(following.tenant, b'{"message":"hay"}', b'{"message":"a NEEDLE","n":1}')
    wait_for(lambda: seen, 30.0, "the record")
    assert [(each["message"], each["fields"]) for each in seen] == [("a NEEDLE", {"n": "1"})]
    leave.set()
    following.produce(following.tenant, b'{"message":"needle, the last"}')
    thread.join(30)
    assert not thread.is_alive()


def test_dead_letters_are_listed_shown_and_sent_again(following: Following) -> None:
    """Of the tenant only; replayed ones become rows; what waits, lag and all, makes an answer say that it is
    not complete."""
    following.produce(following.other, b"not json either")
    following.produce(
        following.tenant, b"not json", b'{"message":"stored","user":"alice"}', b'{"broken": "alice"'
    )
    following.ingester.start()
    wait_for(lambda: following.line.rows_written(following.tenant) >= 1, 60.0, "the first row")
    wait_for(
        lambda: len(following.get("dead-letters", tenant=following.tenant)["dead_letters"]) == 2,
        60.0,
        "the letters",
    )
    letters = following.get("dead-letters", tenant=following.tenant, limit=1)
    assert letters["next"]
    (older,) = following.get("dead-letters", tenant=following.tenant, before=letters["next"])["dead_letters"]
    whole = following.get(f"dead-letters/{older['id']}", tenant=following.tenant)
    assert (whole["value"], whole["reason"]) == ("not json", "undecodable")
    foreign = http.get(
        f"{following.api.address}/v1/dead-letters/{older['id']}",
        params={"tenant": following.other},
        timeout=60.0,
    )
    assert foreign.status_code == 404
    assert "not json" not in foreign.text
    assert len(following.get("dead-letters")["dead_letters"]) >= 3
    told = following.post("dead-letters/replay", tenant=following.tenant, ids=[older["id"]], dry_run=True)
    assert (told["dry_run"], told["replayed"]) == (True, 1)
    assert following.get("parked", tenant=following.tenant) == {"parked": []}


def test_an_answer_over_what_is_not_ingested_yet_says_so(following: Following) -> None:
    """While records wait in Kafka the newest hour is not complete, an hour before they came is; when they are
    in, both are."""
    wait_for(
        lambda: following.post("search", tenant=following.tenant)["complete"], 60.0, "everything being in"
    )
    following.ingester.stop()
    following.produce(following.tenant, b'{"message":"waits"}')

    def newest() -> dict[str, Any]:
        return following.post("histogram", tenant=following.tenant, **{"from": "now-1h", "to": "now"})

    def behind() -> list[dict[str, Any]]:
        return [answer for answer in [newest()] if answer["freshness"]["lag_records"] == 1]

    (answer,) = wait_for(behind, 30.0, "the lag being noticed")
    assert not answer["complete"]
    assert "ingestion is 1 record behind" in answer["reasons"][0]
    assert following.post("histogram", tenant=following.tenant, **{"from": "now-3h", "to": "now-2h"})[
        "complete"
    ]
    wait_for(lambda: not newest()["as_usual"], 60.0, "a record that waits for longer than usual")
    following.ingester.start()
    wait_for(lambda: newest()["complete"], 60.0, "the record being in")
    assert newest()["as_usual"]


def test_an_erasure_names_the_dead_letters_that_match(following: Following) -> None:
    """Letters of the tenant whose text matches are told by their ids: Kafka keeps them."""
    made = following.post("erasures", tenant=following.tenant, query="alice")

    def report() -> dict[str, Any]:
        return following.get(f"erasures/{made['id']}")

    wait_for(lambda: report()["state"] != "running", 60.0, "the erasure")
    assert report()["rows"] == 1
    assert report()["state"] == "incomplete"
    assert "dead letters that match: 1 (" in report()["elsewhere"][0]


def test_the_command_line_searches_exports_and_asks_in_sql(
    following: Following, stack: Stack, tmp_path: Any
) -> None:
    """Rows as JSON lines, all of them; a file whose checksum was compared; SQL as CSV; a mistake in one
    sentence with its place."""
    settings = {**following.environment, "FIRN_QUERY_CLIENT__URI": following.api.address}
    wanted = ("--from", "now-1h", "--json")
    rows = [
        orjson.loads(line)
        for line in run(
            "query", settings, "search", following.tenant, "message:*", *wanted
        ).stdout.splitlines()
    ]
    everything = run("query", settings, "search", following.tenant, "message:*", "--all", "--oldest", *wanted)
    assert [row["message"] for row in rows] == [
        orjson.loads(line)["message"] for line in everything.stdout.splitlines()
    ][::-1]
    assert {"stored", "waits"} & {row["message"] for row in rows}
    exported = run(
        "query",
        settings,
        "export",
        following.tenant,
        str(tmp_path / "rows.ndjson"),
        "message:*",
        "--from",
        "now-1h",
    )
    assert exported.returncode == 0, exported.stderr
    assert "checksums compared" in exported.stderr
    assert len((tmp_path / "rows.ndjson").read_bytes().splitlines()) == len(rows)
    asked = run(
        "query",
        settings,
        "sql",
        "SELECT count(message) AS n FROM logs",
        "--tenant",
        following.tenant,
        "--csv",
    )
    assert asked.stdout.splitlines() == ["n", str(len(rows))], asked.stderr
    wrong = run("query", settings, "search", following.tenant, "a AND (")
    assert (wrong.returncode, "at character" in wrong.stderr) == (2, True)
