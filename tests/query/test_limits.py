"""Limits: turns of a tenant, time, bytes; and that a query ends when nobody waits for it any more."""

import asyncio
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from infra.local.supervisor import Stack
from lake.tenant import TenantId
from query.model.cancellation import CancelledError, Run, TimeOverError
from query.model.lane import Lane
from query.model.limits import BusyError, ConcurrencyLimit, Share, Tails
from tests.query.support.log_table import LogTable
from tests.query.support.processes import Child
from tests.stack.support.line import Sql
from tests.stack.support.plain_http import http
from tests.stack.support.waiting import wait_for

START = datetime(2026, 6, 7, 8, 0, tzinfo=UTC)
PATIENCE_S = 30.0
ONE, OTHER = TenantId("one"), TenantId("other")


async def some_take(
    turns: ConcurrencyLimit, share: Share, count: int
) -> list["asyncio.Task[Callable[[], None]]"]:
    """Asks for turns at once; returns when each has one, waits, or was refused."""
    tasks = [asyncio.ensure_future(turns.take(share)) for _ in range(count)]
    await asyncio.sleep(0)
    return tasks


def test_one_tenants_requests_take_no_turn_from_another() -> None:
    """As many run as may, as many again wait, the next is refused at once; another tenant's runs; a turn that
    is given back is taken."""

    async def play() -> None:
        turns = ConcurrencyLimit(64, 3_600.0)
        mine = await some_take(turns, Share("one", 2), 4)
        assert ([task.done() for task in mine], turns.users("one")) == ([True, True, False, False], 4)
        with pytest.raises(BusyError, match="2 requests of one run already"):
            await turns.take(Share("one", 2))
        (await turns.take(Share("other", 2)))()
        for task in mine:
            (await task)()
        assert turns.users("one") == turns.users("other") == 0

    asyncio.run(play())


def test_who_waits_too_long_for_a_turn_is_refused() -> None:
    """After the time that the setting says; what it waited for is as it was."""

    async def play() -> None:
        turns = ConcurrencyLimit(8, 0.05)
        give_back = await turns.take(Share("one", 1))
        with pytest.raises(BusyError):
            await turns.take(Share("one", 1))
        assert turns.users("one") == 1
        give_back()
        give_back()  # a second time is nothing
        (await turns.take(Share("one", 1)))()
        assert turns.users("one") == 0

    asyncio.run(play())


@pytest.mark.finding(8)
def test_the_last_turns_are_for_those_who_have_none() -> None:
    """Many tenants that never end, and a key that names ever new ones, leave a quarter of all turns to
    whoever has none yet."""

    async def play() -> None:
        turns = ConcurrencyLimit(16, 0.01)
        for tenant in range(6):
            await some_take(turns, Share(f"tenant {tenant}", 4), 4)
        assert sum(turns.users(f"tenant {tenant}") for tenant in range(6)) >= 12
        (await turns.take(Share("new", 4)))()
        holder = Share("key 1", 8)
        other = ConcurrencyLimit(16, 0.01)
        for named in range(8):
            await other.take(Share(f"named {named}", 4), holder)
        with pytest.raises(BusyError, match="8 requests of key 1 run already"):
            await other.take(Share("named 9", 4), holder)
        (await other.take(Share("new", 4)))()

    asyncio.run(play())


def test_a_turn_that_comes_free_goes_to_who_has_the_fewest() -> None:
    """Not to the tenant that waits longest with most running."""

    async def play() -> None:
        turns = ConcurrencyLimit(4, 10.0)
        taken = [await turns.take(Share("one", 3)) for _ in range(3)]
        taken.append(await turns.take(Share("two", 3)))
        late = await some_take(turns, Share("two", 3), 1)
        new = await some_take(turns, Share("three", 3), 1)
        taken[0]()
        await asyncio.sleep(0)
        assert (late[0].done(), new[0].done()) == (False, True)
        late[0].cancel()

    asyncio.run(play())


@pytest.mark.finding(8)
def test_a_turn_lasts_as_long_as_its_thread() -> None:
    """Whoever hangs up and asks again has no more threads than whoever waits."""

    async def play() -> None:
        lane, hold = Lane("test", 4, 2, 0.01), threading.Event()
        share = Share("one", 2)
        for _ in range(2):
            lane.start(await lane.turns.take(share), hold.wait, 30).cancel()
        await asyncio.sleep(0.05)
        with pytest.raises(BusyError):
            await lane.turns.take(share)
        hold.set()
        async with asyncio.timeout(20):
            while lane.turns.users("one"):
                await asyncio.sleep(0.01)
        lane.threads.shutdown()

    asyncio.run(play())


def test_a_tenant_has_only_so_many_tails() -> None:
    """The limit is per tenant, and a tail that ended counts no more."""
    tails = Tails(1)
    with tails.one_more(ONE):
        tails.check(OTHER)
        with pytest.raises(BusyError):
            tails.check(ONE)
    tails.check(ONE)


def test_a_run_stops_its_engine_when_its_time_is_over_or_its_caller_leaves() -> None:
    """What is registered is called; afterwards nothing may begin any more."""
    stopped = threading.Event()
    late = Run(0.05)
    with late.stoppable(stopped.set):
        assert stopped.wait(PATIENCE_S)
    with pytest.raises(TimeOverError, match=r"longer than 0\.05 s"):
        late.check()
    left, stopped = Run(60.0), threading.Event()
    with left.stoppable(stopped.set):
        left.cancel()
        assert stopped.wait(PATIENCE_S)
    with pytest.raises(CancelledError, match="caller has gone"), left.stoppable(stopped.set):
        raise AssertionError("nothing may begin")


@pytest.mark.parametrize("timeout_s", [0.05, 60.0])
@pytest.mark.long
def test_an_engine_that_does_not_hear_is_stopped_again(timeout_s: float) -> None:
    """DuckDB forgets an interrupt that comes before its statement has begun. Once it has ended, it is left in
    peace."""
    run, heard, times = Run(timeout_s), threading.Event(), count(1)

    def stop() -> None:
        if next(times) == 3:
            heard.set()

    with run.stoppable(stop):
        if timeout_s > 1:
            run.cancel()
        assert heard.wait(PATIENCE_S)
    for stopper in (thread for thread in threading.enumerate() if thread.name == "stopper"):
        stopper.join(PATIENCE_S)
        assert not stopper.is_alive()


def test_who_leaves_while_a_statement_is_about_to_begin_is_not_forgotten() -> None:
    """Between the look at the run and the statement's begin nobody leaves unseen."""
    run, stopped = LeftWhileLookedAt(60.0), threading.Event()
    with run.stoppable(stopped.set):
        assert stopped.wait(PATIENCE_S)


class LeftWhileLookedAt(Run):
    """A run whose caller leaves just after somebody found it going on."""

    def check(self) -> None:
        super().check()
        self.cancel()


@pytest.mark.stack
def test_a_query_ends_when_its_caller_leaves(
    api: httpx.Client, log_table: Callable[..., LogTable], trino: Sql, query_uri: str
) -> None:
    """Trino is told at once: the statement of a caller that hung up is over within seconds, not after the
    minutes it would take."""
    table = log_table()
    table.append([{"timestamp": START, "message": f"row {at}"} for at in range(3_000)])
    marker = f"m{time.monotonic_ns()}"
    endless = (
        f"SELECT count(*) AS {marker} FROM logs a, logs b, logs c, logs d WHERE a.message || b.message "
        "< c.message || d.message"
    )
    with (
        pytest.raises(httpx.ReadTimeout),
        httpx.Client(base_url=query_uri, timeout=4.0, trust_env=False) as impatient,
    ):
        impatient.post("/v1/sql", json={"sql": endless, "tenant": table.tenant})

    def states() -> set[str]:
        return {
            row[0]
            for row in trino(
                f"SELECT state FROM system.runtime.queries WHERE query LIKE '%{marker}%' AND source = "
                "'firn-query'"
            )
        }

    wait_for(lambda: states() == {"FAILED"}, 20.0, "the statement's end")
    assert api.post("/v1/sql", json={"sql": "SELECT count(*) FROM logs", "tenant": table.tenant}).json()[
        "rows"
    ] == [[3_000]]


@pytest.mark.stack
def test_an_answer_that_a_limit_cut_short_says_so(
    stack: Stack, log_table: Callable[..., LogTable], tmp_path: Path
) -> None:
    """Too many bytes for a filter: refused with advice; for a page: the newest rows, and why there are no
    more."""
    table = log_table()
    for hour in range(4):
        rows = [
            {
                "timestamp": START + timedelta(hours=hour, seconds=at % 3000),
                "message": f"row {at} {'x' * (at % 50)}",
            }
            for at in range(20_000)
        ]
        table.append(rows)
    total = sum(file.size_bytes for file in table.files())
    settings = {
        **stack.environment(),
        "FIRN_QUERY_SEARCH__SCAN_BYTES_MAX": str(int(total * 0.9)),
        "FIRN_QUERY_STATE": str(tmp_path),
    }
    small = Child("query", tmp_path, settings).start()
    try:

        def ask(path: str, **body: Any) -> httpx.Response:
            times = {"from": START.isoformat(), "to": (START + timedelta(hours=4)).isoformat()}
            return http.post(
                f"{small.address}/v1/{path}",
                json={"tenant": table.tenant, **times, **body},
                timeout=60.0,
            )

        refused = ask("histogram", query="row")
        assert (refused.status_code, "choose a shorter time range" in refused.text) == (400, True)
        assert ask("search", limit=100).json()["complete"]
        cut = ask("search", query='message:"nowhere at all"').json()
        assert (cut["complete"], cut["rows"]) == (False, [])
        assert "stopped early" in cut["reasons"][0]
        assert ask("histogram").json()["rows"] == 80_000
        _cut_for_elasticsearch(small.address, f"{table.tenant}.logs")
    finally:
        small.kill()


def _cut_for_elasticsearch(address: str, index: str) -> None:
    """The same limit in Elasticsearch's words."""

    def ask(**body: Any) -> Any:
        answer = http.post(f"{address}/elasticsearch/{index}/_search", json=body, timeout=60.0)
        assert answer.status_code == 200, answer.text
        return answer

    nowhere = {"match_phrase": {"message": "nowhere at all"}}
    cut = ask(query=nowhere)
    assert (cut.json()["timed_out"], cut.json()["hits"]["hits"]) == (True, [])
    assert cut.json()["hits"]["total"]["relation"] == "gte"
    assert "stopped early" in cut.json()["_firn"]["reasons"][0]
    assert cut.headers["Warning"].startswith('299 Firn "stopped early')
    whole = ask(query={"match": {"message": "row"}}, size=100).json()
    assert (whole["timed_out"], len(whole["hits"]["hits"])) == (False, 100)
    assert whole["hits"]["total"] == {"value": 100, "relation": "gte"}
    assert "the total is not exact" in whole["_firn"]["notes"][0]
    refused = http.post(
        f"{address}/elasticsearch/{index}/_count", json={"query": {"match": {"message": "row"}}}
    )
    assert (refused.status_code, "choose a shorter" in refused.text or "bytes" in refused.text) == (400, True)
