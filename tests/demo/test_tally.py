"""The tally adds up, survives its file, and failures are never silent."""

import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.demo.collector import Collector
from infra.demo.load import first_load
from infra.demo.produce import Job, parse_log_files, produce
from infra.demo.producer import DemoProducer, create_topics
from infra.demo.record import NO_TENANT
from infra.demo.tally import Tally, read_tally
from lake.clock import SystemClock
from lake.errors import UnavailableError

END = datetime(2026, 11, 21, 15, 28, 29, tzinfo=UTC)
# Port 1 is privileged and taken by nothing: connections to it are refused at once.
NOBODY = "127.0.0.1:1"
# The client looks once in a second for messages whose time is over.
TIMEOUT_S = 0.5


@pytest.mark.long
@settings(deadline=None, max_examples=8)
@given(seed=st.integers(min_value=0, max_value=1_000))
def test_the_tally_adds_up(seed: int) -> None:
    """For every tenant and in total, produced is rows plus dead letters, and rows with errors are rows."""
    tally = Tally()
    for record in first_load(seed, 600, END, 6):
        tally.delivered(record)
    for counts in (*tally.tenants.values(), tally.total):
        assert counts.produced == counts.expected_rows + counts.expected_dead
        assert counts.expected_errors <= counts.expected_rows
    assert tally.total.produced == 600


@pytest.mark.long
def test_records_without_a_tenant_are_counted_under_a_name_of_their_own() -> None:
    """What names no usable tenant is counted as `(no tenant)`, all of it expected as dead letters."""
    tally = Tally()
    records = list(first_load(1, 20_000, END, 6))
    for record in records:
        tally.delivered(record)
    nameless = tally.tenants[NO_TENANT]
    assert nameless.produced == nameless.expected_dead == sum(record.tenant is None for record in records) > 0


def test_the_file_keeps_the_tally(tmp_path: Path) -> None:
    """What is written is what is read again, names beyond ASCII included, and nothing else is left in the
    folder."""
    tally = Tally()
    for record in first_load(1, 3_000, END, 6):
        tally.delivered(record)
    tally.not_delivered("broker away")
    path = tmp_path / "state" / "tally.json"
    tally.write(path, "loading")
    tally.write(path, "finished")
    state, read = read_tally(path)
    assert state == "finished"
    assert (read.tenants, read.failed, read.first_failure) == (tally.tenants, 1, "broker away")
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.long
def test_tallies_of_two_loads_make_one() -> None:
    """The sum counts every record of both, those of tenants that only one of them has included."""
    first, second, both = Tally(), Tally(), Tally()
    for tally, seed in ((first, 1), (second, 2)):
        for record in first_load(seed, 3_000, END, 6):
            tally.delivered(record)
            both.delivered(record)
    del first.tenants[NO_TENANT]
    both.tenants[NO_TENANT] = second.tenants[NO_TENANT]
    second.not_delivered("broker away")
    added = first + second
    assert (added.tenants, added.failed, added.first_failure) == (both.tenants, 1, "broker away")


@pytest.mark.long
def test_undelivered_records_are_counted_and_raised(tmp_path: Path) -> None:
    """Without a broker the load fails with the number of lost records, and the tally file says so."""
    job = Job(seed=1, records=50, hours=1, end=END, trickle_per_s=0, tally_file=tmp_path / "tally.json")
    producer = DemoProducer(NOBODY, delivery_timeout_s=TIMEOUT_S)
    with pytest.raises(UnavailableError, match=r"50 records were not delivered.*broker at 127.0.0.1:1"):
        produce(job, producer, Collector({}, SystemClock()), SystemClock(), threading.Event())
    state, tally = read_tally(tmp_path / "tally.json")
    assert (state, tally.failed, tally.total.produced) == ("failed", 50, 0)


@pytest.mark.long
def test_after_the_first_failure_every_record_is_accounted_for() -> None:
    """When the oldest records are given up, those that still wait count as failed too: delivered and failed
    are all that was sent."""
    producer, clock = DemoProducer(NOBODY, delivery_timeout_s=TIMEOUT_S), SystemClock()
    records, sent, started_s = first_load(1, 10_000, END, 6), 0, clock.monotonic_s()

    def send_a_hundred_a_second() -> None:
        nonlocal sent
        while (elapsed_s := clock.monotonic_s() - started_s) < 30:
            if sent < elapsed_s * 100:
                producer.send(next(records))
                sent += 1
            producer.poll()

    with pytest.raises(UnavailableError):
        send_a_hundred_a_second()
    assert producer.tally.failed == sent > 1


def test_missing_brokers_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Creating topics without a broker is one error with the address and what to check."""
    monkeypatch.setattr("infra.demo.producer.REQUEST_TIMEOUT_S", 0.3)
    with pytest.raises(UnavailableError, match=r"127.0.0.1:1.*check that the broker runs"):
        create_topics(NOBODY)


def test_log_files_are_named_by_service() -> None:
    """`SERVICE=FILE` options become a mapping; anything else is refused with an example."""
    assert parse_log_files(["kafka=a/b.log", "trino=c=d.log"]) == {
        "kafka": Path("a/b.log"),
        "trino": Path("c=d.log"),
    }
    for wrong in (["kafka"], ["=x"], ["kafka="], ["kafka=a", "kafka=b"]):
        with pytest.raises(typer.BadParameter):
            parse_log_files(wrong)
