"""What masking takes away lies nowhere: not in a table, a dead letter, a parked record, an object in the
warehouse, a state file, a log, or an answer."""

import secrets
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest

from ingest.kafka.internal_topic import MESSAGE_BYTES_MAX
from tests.ingest.support.masking import DROP, HASH
from tests.ingest.support.otlp_messages import otlp_protobuf
from tests.security.support.masked_bytes import masked_bytes_found
from tests.stack.support.ingester import Ingester
from tests.stack.support.kafka_topics import Record
from tests.stack.support.line import Line
from tests.stack.support.parked import location, unwritable, wait_parked, wait_released
from tests.stack.support.tool_line import ToolLine
from tests.stack.support.visibility import catalog_database
from tests.stack.support.waiting import fresh

pytestmark = pytest.mark.stack

MIB = 1024 * 1024
LARGE_BYTES = MESSAGE_BYTES_MAX + MIB  # no topic of Firn takes so much: it goes to the warehouse
HOT_RECORDS, BUFFER_BYTES = 20_000, 64 * MIB  # of so many a part is written before the others are there
CUT = {"name": "pii", "action": "cut", "patterns": ["card", "email", "token"]}
WRITTEN = {"dead_letters", "parked"}
CLOCKS_S = 1.0  # a file's time is that of the kernel's last tick
LATE = (datetime.now(UTC) - timedelta(days=9)).isoformat()


class Secrets:
    """Secrets of each kind that nobody else has in the same stack."""

    def __init__(self) -> None:
        self.since_s = time.time() - CLOCKS_S
        self.password, self.hashed = secrets.token_hex(12), secrets.token_hex(12)
        self.email = f"{secrets.token_hex(8)}@mail.example"
        self.token = "eyJ" + secrets.token_hex(12) + "." + secrets.token_hex(12) + "." + secrets.token_hex(12)
        digits = "4" + "".join(secrets.choice("0123456789") for _ in range(14))
        self.card = next(number for number in (f"{digits}{last}" for last in range(10)) if _is_card(number))

    @property
    def all(self) -> list[bytes]:
        return [text.encode() for text in (self.password, self.hashed, self.email, self.token, self.card)]

    def record(self, **fields: Any) -> dict[str, Any]:
        """A record with all of them, in fields that rules name and in texts."""
        text = f"{self.email} paid by {self.card} with {self.token}"
        own = {
            "password": self.password,
            "user": {"email": self.hashed},
            "list": [{"secret": self.password}, text],
        }
        return {**own, "message": text, self.email: int(self.card), **fields}


def _is_card(number: str) -> bool:
    pairs = [int(digit) * (1 + at % 2) for at, digit in enumerate(reversed(number))]
    return sum(n // 10 + n % 10 for n in pairs) % 10 == 0


@pytest.fixture
def hidden() -> Secrets:
    return Secrets()


def _settings(topic: str) -> dict[str, Any]:
    return {
        "name": topic,
        "tenant": ["header:tenant"],
        "masking": {"rules": [DROP, HASH, CUT]},
    }


def _found(line: Line, hidden: Secrets, ours: ToolLine, topics: set[str], *texts: str) -> int:
    """Bytes of the secrets in all that Firn has written, in some of its topics, and in some answers."""
    names = [ours.settings[f"internal_topics__{name}"] for name in topics]
    kept = [each for name in names for each in line.kafka.read(name)]
    assert {each.topic for each in kept} == set(names)
    database = catalog_database(line.stack)
    files = [_warehouse(line), ours.folder, *database.parent.glob(f"{database.name}*")]
    messages = [(each.key, each.value, each.headers) for each in kept]
    messages += [(None, text.encode(), ()) for text in texts]
    return masked_bytes_found(hidden.all, files, messages, since_s=hidden.since_s)


def _dying(hidden: Secrets, headers: Any) -> list[Record]:
    """A message for each way to die: no tenant, broken, late, late and large, one of several, no text."""
    late = orjson.dumps(hidden.record(time=LATE))
    large = orjson.dumps(hidden.record(time=LATE, filler="x" * LARGE_BYTES))
    good = orjson.dumps(hidden.record())
    bodies = [
        (good, [("mail", hidden.email.encode())]),
        (good[:-1], headers),
        (late, headers),
        (large, headers),
        (good + b"\n" + good[:-1], headers),
        (hidden.email.encode("utf-16"), headers),
    ]
    return [Record(body, hidden.email.encode(), tuple(beside)) for body, beside in bodies]


def test_no_byte_of_what_is_masked_is_found(
    line: Line, hidden: Secrets, record_property: Callable[[str, object], None]
) -> None:
    """Rows, also of a hot table, dead letters, parked records, what lies in the warehouse for them, logs and
    metadata hold none; the records are all there."""
    topic = line.kafka.topic(1, max_message_bytes=str(LARGE_BYTES + MIB))
    ours = ToolLine(
        line,
        [_settings(topic)],
        masking__key=secrets.token_hex(32),
        flush__interval_s=1.0,
        tables__park_after_s=0.5,
        limits__record_bytes_max=LARGE_BYTES + MIB,
        flush__buffer_bytes_max=BUFFER_BYTES,
    )
    running = ours.ingester.start()
    try:
        found = _count(line, hidden, ours, running, topic)
        record_property("masked_bytes_found", found)
        assert found == 0
    finally:
        running.kill()


def _count(line: Line, hidden: Secrets, ours: ToolLine, running: Ingester, topic: str) -> int:
    """Bytes found while a large record is parked, and in the end."""
    well, sick = fresh("well-"), fresh("sick-")
    of_well, of_sick = [("tenant", well.encode())], [("tenant", sick.encode())]
    good = orjson.dumps(hidden.record())
    live = [
        Record(body, hidden.email.encode(), (*of_well, ("json", good)))
        for body in (good, good + b"\n" + good, b"[" + good + b"]", otlp_protobuf([hidden.record()]))
    ]
    hot = [Record(orjson.dumps(hidden.record(at=at)), None, tuple(of_well)) for at in range(HOT_RECORDS)]
    line.kafka.produce(topic, [*live, *hot, *_dying(hidden, of_well), Record(good, None, tuple(of_sick))])
    line.wait_for_rows(running, well, len(live) + 1 + HOT_RECORDS + 1)
    line.wait_for_rows(running, sick, 1)
    line.wait_for_dead_letters(running, len(_dying(hidden, of_well)))
    large = orjson.dumps(hidden.record(filler="x" * LARGE_BYTES))
    with unwritable(location(line, sick) / "data"):
        line.kafka.produce(topic, [Record(good, None, tuple(of_sick)) for _ in range(10)])
        wait_parked(running, sick, "storage")
        line.kafka.produce(topic, [Record(large, hidden.email.encode(), tuple(of_sick))])
        running.wait_until(lambda: _lies_in(line, "parked"), what="the large record in the warehouse")
        parked = _found(line, hidden, ours, WRITTEN)
    wait_released(running, sick)
    line.wait_for_rows(running, sick, 12)
    explained = ours.answered(
        *("explain-message", "--json", "--topic", topic, "--header", f"tenant={well}"),
        answer=good.decode(),
        code=0,
    )
    shown = ours.run("dead-letters", "list", "--json")
    told = (explained, shown, running.metrics(), running.log())
    assert (
        f'firn_ingest_values_masked_total{{action="hash",rule="contact",topic="{topic}"}}'
        in running.metrics()
    )
    assert ours.audit() == {}
    assert masked_bytes_found(hidden.all, messages=[(None, good, ())]) > 0  # what is looked for was sent
    return parked + _found(line, hidden, ours, WRITTEN, *told)


def _warehouse(line: Line) -> Path:
    return Path(line.stack.environment()["FIRN_CATALOG_WAREHOUSE"].removeprefix("file://"))


def _lies_in(line: Line, folder: str) -> bool:
    return any(file.is_file() for file in (_warehouse(line) / folder).rglob("*"))


def test_what_comes_another_way_is_masked_too(
    line: Line, hidden: Secrets, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """A dead letter from before there were rules that is sent again, the past of a topic, files of an
    archive."""
    topic, good = line.kafka.topic(1), orjson.dumps(hidden.record())
    (sent, past, filed) = (fresh("sent-"), fresh("past-"), fresh("filed-"))
    before = ToolLine(line, [{"name": topic, "tenant": ["header:tenant"], "start": "latest"}])
    line.kafka.produce(topic, [Record(good, None, (("tenant", past.encode()),))])
    running = before.ingester.start()
    running.wait_until(lambda: line.kafka.group_offsets(before.group, topic), what="the group's beginning")
    line.kafka.produce(topic, [Record(good)])
    line.wait_for_dead_letters(running, 1)
    assert running.stop() == 0
    ours = ToolLine(
        line,
        [{**_settings(topic), "start": "latest"}],
        masking__key=secrets.token_hex(32),
        **before.settings,
    )
    running = ours.ingester.start()
    try:
        ours.run("dead-letters", "replay", "--reason", "tenant_missing", "--to-tenant", sent)
        assert ours.json("backfill", "kafka", topic)["masked"] == 1
        (tmp_path / "a.ndjson").write_bytes(good + b"\n" + good[:-1] + b"\n")
        asked = ("backfill", "files", str(tmp_path / "a.ndjson"), "--tenant", filed)
        assert "say --masking-of TOPIC" in ours.refusal(*asked)
        told = ours.json(*asked, "--masking-of", topic, "--rejects", str(ours.folder / "rejects"))
        assert (told["rows"], told["masked"], told["withheld"], told["dead_letters"]) == (1, 2, 1, 1)
        for tenant in (sent, past, filed):
            line.wait_for_rows(running, tenant, 1)
        found = _found(line, hidden, ours, {"replay"})
        record_property("masked_bytes_found", found)
        assert found == 0
    finally:
        running.kill()
