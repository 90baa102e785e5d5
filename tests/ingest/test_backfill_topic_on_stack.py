"""The past of a topic in tables: every record once, run again as often as one likes, killed wherever it may
be, beside a live ingester."""

import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest

from lake.catalog_client import TableName
from lake.marks import MARKS_PROPERTY, Marks, parse_marks
from lake.tenant import to_identifier
from lake.topic_fill import all_fills
from tests.stack.support.forked import run_room
from tests.stack.support.kafka_topics import Delivered, Record
from tests.stack.support.line import Line
from tests.stack.support.parked import (
    resolve,
    roll_back_by_rest,
    snapshots,
    table_name,
    wait_parked,
    wait_released,
)
from tests.stack.support.tool_line import WRONG, ToolLine
from tests.stack.support.waiting import fresh

pytestmark = pytest.mark.stack

KILLED = -9
RUN_S = 120.0
PARTITIONS = 2
FAULTS = (
    "files_written",
    "files_synced",
    "dead_letters_acknowledged",
    "handed_over",
    "metadata_written",
    "commit_answered",
    "settled",
)
# Every run of the tests kills there; the long proofs at all of them.
FIRST_FAULTS = ("settled",)
# Long before the limit of live ingestion: what comes in by a backfill is never too late.
OLD = "2020-05-05T05:05:05Z"


class Attached:
    """A topic with a past, a group that begins at its end, and what of it has to be where."""

    def __init__(self, line: Line, **settings: str) -> None:
        self.line = line
        self.tenants = [fresh("past-"), fresh("past-")]
        self.topic = line.kafka.topic(
            PARTITIONS, retention_ms="-1"
        )  # what is old must not go while it is read
        self.tools = ToolLine(line, [{"name": self.topic, "start": "latest"}], **settings)
        self.sent: dict[str, list[Delivered]] = {tenant: [] for tenant in self.tenants}
        self.bad: list[Delivered] = []

    def produce(self, count: int, *, timestamp_ms: int | None = None) -> None:
        """Records of both tenants on both partitions; some cannot be decoded, some belong to nobody."""
        good, bad = list[tuple[str, Record]](), list[Record]()
        for at in range(count):
            tenant, partition = self.tenants[at % 2], at // 2 % PARTITIONS
            headers = (("tenant", tenant.encode()),)
            good.append(
                (
                    tenant,
                    Record(
                        orjson.dumps({"time": OLD, "n": at, "message": "m"}),
                        None,
                        headers,
                        timestamp_ms,
                        partition,
                    ),
                )
            )
            if at % 50 == 7:
                bad.append(Record(b'{"n":', None, headers, timestamp_ms, partition))
            if at % 50 == 9:
                bad.append(Record(b'{"n":1}', None, (), timestamp_ms, partition))
        # Mixed, so that what is bad lies between what is good.
        records = [record for _, record in good]
        for place, record in enumerate(bad):
            records.insert(place * 25 + 3, record)
        tenants = {id(record): tenant for tenant, record in good}
        for record, where in zip(records, self.line.kafka.produce(self.topic, records), strict=True):
            (self.sent[tenants[id(record)]] if id(record) in tenants else self.bad).append(where)

    def produce_now(self, count: int) -> None:
        """Live records, of the first tenant."""
        tenant = self.tenants[0]
        records = [
            Record(orjson.dumps({"n": at}), None, (("tenant", tenant.encode()),), None, at % PARTITIONS)
            for at in range(count)
        ]
        self.sent[tenant] += self.line.kafka.produce(self.topic, records)

    def start(self) -> None:
        """Returns when the group has begun; a node that waits for its lease is ready, and has not."""
        self.tools.ingester.start()
        self.tools.ingester.wait_until(
            lambda: len(self.line.kafka.group_offsets(self.tools.group, self.topic)) == PARTITIONS,
            60,
            "the group's beginning",
        )

    def wait_for_live(self, rows: int) -> None:
        self.line.wait_for_rows(self.tools.ingester, self.tenants[0], rows)

    def verb(
        self, *arguments: str, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """A verb of ingest as a process."""
        variables = {**self.tools.environment, **(environment or {})}
        return run_room("ingest", *arguments, environment=variables, timeout_s=RUN_S)

    def backfill(self, *arguments: str) -> dict[str, Any]:
        """The report of a backfill that has to succeed."""
        done = self.verb("backfill", "kafka", self.topic, *arguments, "--json")
        assert done.returncode == 0, done.stderr
        return dict(orjson.loads(done.stdout))

    def audit(self, *arguments: str) -> dict[str, Any]:
        """An audit in which nothing may be wrong; tables that other tests broke are passed over."""
        audit = dict(orjson.loads(self.verb("audit", *arguments, "--json").stdout))
        assert {name: audit[name] for name in WRONG if audit[name]} == {}
        return audit

    def marks(self, tenant: str) -> Marks:
        return parse_marks(self._properties(tenant).get(MARKS_PROPERTY))

    def filled(self, tenant: str) -> int:
        return sum(
            end - start for ranges in all_fills(self._properties(tenant)).values() for start, end in ranges
        )

    def _properties(self, tenant: str) -> dict[str, str]:
        return dict(
            self.line.catalog.load_table(TableName(to_identifier(tenant), "logs"))["metadata"]["properties"]
        )

    def check(self, *, repeated_letters: bool = False) -> None:
        """Every record is a row once under its coordinates, every bad one a dead letter once (or, where
        letters may be repeated, at least once)."""
        topic_id = self.line.kafka.topic_id(self.topic)
        for tenant, sent in self.sent.items():
            rows = self.line.sql(
                f"SELECT _topic_partition, _offset FROM {self.line.table(tenant)} WHERE _topic_id = "
                f"'{topic_id}'"
            )
            assert Counter((partition, offset) for partition, offset in rows) == Counter(
                (each.partition, each.offset) for each in sent
            )
        facts = [
            letter.facts
            for letter in self.line.kafka.read(self.tools.settings["internal_topics__dead_letters"])
        ]
        found = Counter((int(each["firn.partition"]), int(each["firn.offset"])) for each in facts)
        assert repeated_letters or set(found.values()) == {1}
        assert sorted(found) == sorted((each.partition, each.offset) for each in self.bad)


@pytest.fixture
def attached(line: Line) -> Iterator[Callable[..., Attached]]:
    """`attached(**settings)`; ingesters are ended after the test."""
    made: list[Attached] = []

    def make(**settings: str) -> Attached:
        made.append(Attached(line, **settings))
        return made[-1]

    try:
        yield make
    finally:
        for one in made:
            one.tools.ingester.kill()


def test_past_of_a_topic_comes_in_once_and_no_live_mark_moves(attached: Callable[..., Attached]) -> None:
    """A node begins at the end; the backfill adds what came before, also for a tenant that has had no record
    since. Run again, it adds nothing.

    The audit holds before it, when the past is nobody's, and after it with all of the past.
    """
    one = attached()
    one.produce(400)
    assert "has not begun to read topic" in one.tools.refusal("backfill", "kafka", one.topic)
    one.start()
    one.produce_now(60)
    one.wait_for_live(60)
    ends = one.line.kafka.ends(one.topic)
    one.tools.wait_until_stored(one.topic, ends)
    assert one.audit()["written"] == 60
    live = one.marks(one.tenants[0])
    assert sum(live.firsts.values()) == 400 + len(one.bad)
    report = one.backfill()
    assert (report["records"], report["rows"], report["dead_letters"]) == (
        400 + len(one.bad),
        400,
        len(one.bad),
    )
    assert (report["skipped"], report["live"]) == (0, 0)
    one.check()
    assert one.marks(one.tenants[0]) == live
    again = one.backfill()
    assert (again["rows"], again["dead_letters"], again["commits"]) == (0, 0, 0)
    assert again["skipped"] + again["dead_letters_before"] == again["records"] == report["records"]
    one.produce_now(20)
    one.wait_for_live(280)
    assert one.tools.ingester.stop() == 0
    one.check()
    assert one.audit()["written"] == 80
    whole = one.audit("--whole")
    assert (whole["written"], whole["dead_lettered"]) == (480, len(one.bad))


def test_a_table_that_was_moved_back_is_read_again_from_where_its_group_began(
    attached: Callable[..., Attached],
) -> None:
    """What was taken away comes back from the topic, nothing older; the backfill then brings in just that."""
    one = attached(flush__interval_s="0.3")
    one.produce(100)
    one.start()
    for rows in (20, 40):
        one.produce_now(20)
        one.wait_for_live(rows)
    tenant, node = one.tenants[0], one.tools.ingester
    roll_back_by_rest(one.line, tenant, snapshots(one.line, tenant)[0])
    one.produce_now(20)
    wait_parked(node, tenant, "rolled_back")
    resolve(node, "--reread", str(table_name(tenant)))
    wait_released(node, tenant)
    one.wait_for_live(60)
    one.backfill()
    one.check()


@pytest.mark.parametrize(
    "step", [step if step in FIRST_FAULTS else pytest.param(step, marks=pytest.mark.prove) for step in FAULTS]
)
def test_killed_run_is_completed_by_the_next_beside_a_live_node(
    attached: Callable[..., Attached], tmp_path: Path, step: str
) -> None:
    """Killed in the middle while live records flow into the same tables, and run again: every record once,
    and the node notices nothing."""
    one = attached(flush__buffer_bytes_max="200000", flush__interval_s="0.1")
    one.produce(4_000)
    one.start()
    one.produce_now(20)
    killed = one.verb(
        "backfill",
        "kafka",
        one.topic,
        environment={"FIRN_FAULT_POINT": f"{step}:kill", "FIRN_FAULT_FOLDER": str(tmp_path)},
    )
    assert killed.returncode == KILLED, killed.stderr
    assert (tmp_path / f"{step}.reached").exists()
    before = one.filled(one.tenants[0]) if one.line.exists(one.tenants[0]) else 0
    one.produce_now(100)
    report = one.backfill()
    assert report["commits"] > 2, "the past is to be more than one flush"
    assert report["rows"] + (before > 0) <= 4_000
    one.produce_now(20)
    one.wait_for_live(2_140)
    one.check()
    tables = map(table_name, one.tenants)
    assert (one.tools.ingester.parked(*tables), one.tools.ingester.status()["restarts"]) == ({}, 0)
    assert one.tools.ingester.status()["second_writers"] == []


def test_pieces_by_offset_partition_and_time_make_the_whole_in_any_order(
    attached: Callable[..., Attached],
) -> None:
    """Each piece brings in its own; one over all of them only what is missing between. Offsets set back bring
    nothing twice."""
    one = attached()
    early, late = datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 2, tzinfo=UTC)
    one.produce(100, timestamp_ms=int(early.timestamp() * 1000))
    one.produce(100, timestamp_ms=int(late.timestamp() * 1000))
    past = one.line.kafka.ends(one.topic)
    one.start()
    one.produce_now(2)
    one.wait_for_live(2)
    one.tools.wait_until_stored(one.topic, {partition: end + 1 for partition, end in past.items()})

    def piece(*arguments: str) -> tuple[int, int]:
        report = one.backfill(*arguments)
        return report["rows"], report["skipped"]

    rows, _ = piece("--from-time", late.strftime("%Y-%m-%d"))
    assert rows == 100
    rows, skipped = piece("--from-offset", "0:10", "--to-offset", "0:20", "--partition", "0")
    assert 0 < rows <= 10
    assert skipped == 0
    again, _ = piece("--to-offset", "15", "--from-offset", "10", "--partition", "0")
    assert again == 0
    rest, skipped = piece("--to-offset", "1000")
    assert (rows + rest, skipped >= 100) == (100, True)
    one.check()
    assert one.tools.ingester.stop() == 0
    one.line.kafka.store_group_offset(one.tools.group, one.topic, 0, "")
    one.start()
    one.produce_now(20)
    one.wait_for_live(122)
    one.check(repeated_letters=True)  # what belongs to no table has no mark
