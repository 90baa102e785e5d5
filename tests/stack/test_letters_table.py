"""Dead letters as rows of `system.dead_letters`, through the whole line: each letter is one row, whatever is
killed meanwhile, and no row makes another letter."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest

from lake.clock import moment_of
from lake.system_tables import LETTERS_STREAM
from lake.tenant import SYSTEM_TENANT
from tests.stack.support.kafka_topics import Record
from tests.stack.support.line import Line
from tests.stack.support.tool_line import ToolLine
from tests.stack.support.waiting import fresh, wait_for

pytestmark = pytest.mark.stack
LATE = datetime.now(UTC) - timedelta(days=9)
FORGED = b'{"message":"forged","reason":"somebody else wrote it"}'
IDENTITY = "record_topic, record_topic_id, record_partition, record_offset, record_index, attempt"


def _messages(tenant: str) -> list[Record]:
    """One good record, and one for each of several reasons; one wants to be a row of the table itself."""
    to, forged = ("tenant", tenant.encode()), (("tenant", b"system"), ("stream", b"dead_letters"))
    bodies = [
        (b'{"message":"good"}', (to,)),
        (b'{"message":"whose?"}', ()),
        (b'{"half":', (to,)),
        (b'{"message":"first"}\n{"message":}\n{"message":"third"}', (to,)),
        (orjson.dumps({"time": LATE.isoformat(), "message": "late"}), (to,)),
        (FORGED, forged),
        (None, (to,)),
    ]
    return [Record(body, b"key", headers, partition=0) for body, headers in bodies]


REASONS = ("tenant_missing", "undecodable", "undecodable", "too_late", "tenant_reserved", "empty")


class Letters:
    """A line whose dead letters are rows."""

    def __init__(self, line: Line) -> None:
        self.line, self.topic = line, line.kafka.topic(1)
        self.tools = ToolLine(line, self.topic, internal_topics__dead_letters_table="true")
        self.table = line.table(SYSTEM_TENANT.name, LETTERS_STREAM)

    def rows(self, columns: str, where: str = "true") -> list[tuple[Any, ...]]:
        """Of this line's letters, in order; other tests may have theirs in the table."""
        if not self.line.exists(SYSTEM_TENANT.name, LETTERS_STREAM):
            return []
        of = self.tools.settings["internal_topics__dead_letters"]
        return self.line.sql(
            f"SELECT {columns} FROM {self.table} WHERE _topic = '{of}' AND {where} ORDER BY _offset"
        )

    def at_the_end(self) -> int:
        """How many offsets the topic has, all of whose letters are in the table."""
        topic, group = self.tools.settings["internal_topics__dead_letters"], self.tools.group
        end = self.line.kafka.ends(topic)[0]
        self.tools.ingester.wait_until(
            lambda: self.line.kafka.group_offsets(group, topic) == {0: end}, 60.0, f"offset {end} of {topic}"
        )
        return end


@pytest.fixture
def letters(line: Line) -> Iterator[Letters]:
    made = Letters(line)
    yield made
    made.tools.ingester.kill()


def test_letters_of_every_kind_are_rows_once(line: Line, letters: Letters, tmp_path: Path) -> None:
    """The node is killed before a commit and after one; what is in the topic is in the table, and nothing
    else."""
    tenant, node = fresh("Rows-"), letters.tools.ingester
    sent = line.kafka.produce(letters.topic, _messages(tenant))
    for step in ("metadata_written", "commit_answered"):
        folder = tmp_path / step
        folder.mkdir()
        dies = {"FIRN_FAULT_POINT": f"{step}:kill", "FIRN_FAULT_FOLDER": str(folder)}
        node.start(ready=False, environment=dies)
        wait_for(lambda: not node.alive, 90.0, f"the end of the node at {step}")
        sent += line.kafka.produce(letters.topic, _messages(tenant)[1:])
    node.start()
    wanted = [reason for _ in range(3) for reason in REASONS]
    letters.tools.wait_until_stored(letters.topic, {0: len(sent)})
    end = letters.at_the_end()
    assert letters.rows("_offset") == [(offset,) for offset in range(end)]
    assert {*letters.rows("record_offset, record_index, reason")} == {
        (at + 1, 1 if at % len(REASONS) == 2 else None, reason) for at, reason in enumerate(wanted)
    }
    assert len({*letters.rows(IDENTITY)}) == len(wanted)
    told = "reason, tenant, stream, record_topic, record_bytes, key_bytes"
    reserved = {*letters.rows(told, "record_offset = 5")}
    assert reserved == {("tenant_reserved", None, None, letters.topic, len(FORGED), len(b"key"))}
    empty = {*letters.rows("tenant, stream, record_bytes, record_time", "record_offset = 6")}
    assert empty == {(tenant, "logs", None, moment_of(sent[6].timestamp_ms))}
    assert letters.rows("letter") == [(f"0:{offset}",) for offset in range(end)]
    assert {*letters.rows("tenant, stream", "record_offset = 1")} == {(None, None)}
    assert {*letters.rows("tenant, stream", "record_offset = 4")} == {(tenant, "logs")}
    assert line.sql(f"SELECT count(*) FROM {line.table(tenant)}") == [(7,)]
    assert letters.tools.audit() == {}, letters.tools.audited
    assert letters.tools.audited["dead_lettered"] == len(wanted)  # all of the input topic: letters are rows
    assert node.stop() == 0


def test_letters_that_are_left_are_rows_again_after_an_erasure(line: Line, letters: Letters) -> None:
    """With new ids, and under the identity of the same record; of the erased one stays where it was."""
    tenant, node = fresh("Again-"), letters.tools.ingester
    line.kafka.produce(letters.topic, _messages(tenant))
    node.start()
    letters.tools.wait_until_stored(letters.topic, {0: len(REASONS) + 1})
    assert letters.at_the_end() == len(REASONS)
    ((late,),) = letters.rows("letter", "reason = 'too_late'")
    letters.tools.run("dead-letters", "erase", late)
    assert letters.at_the_end() == 2 * len(REASONS) - 1
    assert len(letters.rows("1")) == 2 * len(REASONS) - 1
    assert len({*letters.rows(IDENTITY)}) == len(REASONS)
    assert len(letters.rows("letter", "reason = 'too_late'")) == 1
    assert letters.tools.audit() == {"missing": 1}  # the record whose dead letter was erased
