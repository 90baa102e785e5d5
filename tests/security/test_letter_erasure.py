"""Dead letters erased from Kafka for good: those that were asked for, with what they keep in the warehouse,
and not a byte of any other."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import OffsetSpec

from ingest.dead_letters.dead_letter import DeadLetters
from ingest.dead_letters.letter_erasure import ErasedLetters
from ingest.kafka.internal_topic import MESSAGE_BYTES_MAX
from ingest.kafka.kafka_reader import KafkaReader
from ingest.kafka.topic_mac import MAC, TopicMac
from ingest.model.source import Source
from ingest.route.buffer import RawRecord
from ingest.serve.tools import Tools
from lake.errors import Reason, Rejected, UnavailableError
from lake.settings import IngestSettings
from lake.storage import local_path, open_storage
from lake.tenant import TenantId
from tests.stack.support.kafka_topics import Delivered, Record
from tests.stack.support.line import Line
from tests.stack.support.tool_line import ToolLine

pytestmark = [pytest.mark.finding(10), pytest.mark.stack]
SECRET = "alice@example.org"


class Graveyard:
    """Dead letters of two tenants, some of which hold the secret: in value, key or header, or in a body that
    lies in the warehouse."""

    def __init__(self, line: Line, topic: str) -> None:
        self.line, self.ours = line, ToolLine(line, topic)
        self.topic = self.ours.settings["internal_topics__dead_letters"]
        known = {
            name: self.ours.environment[f"FIRN_INGEST_{name.upper()}"]
            for name in (
                "internal_topics__dead_letters",
                "internal_topics__replay",
                "kafka__group",
                "kafka__bootstrap_servers",
            )
        }
        keys = orjson.loads(self.ours.environment.get("FIRN_INGEST_INTERNAL_TOPICS__SIGNING_KEYS", "[]"))
        self.settings = IngestSettings.load(
            **known, topics=[{"name": topic}], internal_topics__signing_keys=keys
        )
        self.storage, self.warehouse = open_storage(), str(line.catalog.warehouse)
        letters = DeadLetters(self.settings, self.storage, self.warehouse)
        letters.ensure_topic()
        for at, (tenant, value, key, headers) in enumerate(self.messages()):
            record = RawRecord(0, at, 1_700_000_000_000 + at, key, headers, value)
            letters.send(
                Source(topic, "topic-id", 0, "json", "UTC"),
                record,
                Rejected(Reason.UNDECODABLE, "no JSON"),
                f"{TenantId(tenant).namespace}.logs",
            )
        letters.flush()

    @staticmethod
    def messages() -> list[tuple[str, bytes, bytes | None, list[tuple[str, bytes | None]]]]:
        large = b"x" * MESSAGE_BYTES_MAX
        return [
            ("a", b'{"user":"Alice@Example.org"', b"k0", [("h", b"\xff\x00"), ("null", None)]),
            ("a", b"stays \xff\xfe", b"k1", [("h", b"1"), ("h", b"2")]),
            ("b", b'{"user":"alice@example.org"', None, []),
            ("a", b"in its key", SECRET.encode(), []),
            ("a", large + SECRET.encode(), b"k4", []),
            ("a", large + b"of somebody else", b"k5", []),
            ("a", b"in a header", None, [("from", SECRET.encode())]),
        ]

    def read(self) -> list[Delivered]:
        return self.line.kafka.read(self.topic)

    def begins(self) -> int:
        topic_partition = TopicPartition(self.topic, 0)
        return int(
            self.line.kafka.admin.list_offsets({topic_partition: OffsetSpec.earliest()})[topic_partition]
            .result(30)
            .offset
        )

    def erase(self, *arguments: str) -> dict[str, Any]:
        return self.ours.json("dead-letters", "erase", *arguments)


@pytest.fixture
def graveyard(line: Line) -> Iterator[Graveyard]:
    made = Graveyard(line, line.kafka.topic(1))
    yield made
    made.ours.ingester.kill()


def exactly(messages: list[Delivered]) -> list[Any]:
    return [(each.key, each.value, list(each.headers), each.timestamp_ms) for each in messages]


def test_letters_of_a_tenant_that_hold_a_text_are_gone_and_all_others_are_as_they_were(
    graveyard: Graveyard,
) -> None:
    """Value, key, headers and bodies are searched; what stays keeps every byte, header and time; the bodies
    of what went are gone, no others."""
    before = graveyard.read()
    bodies = {
        name: local_path(each.facts["firn.body"])
        for name, each in (("goes", before[4]), ("stays", before[5]))
    }
    foretold = graveyard.erase("--tenant", "a", "--contains", SECRET, "--dry-run")
    assert (foretold["erased"], foretold["kept"]) == (4, 3)
    assert exactly(graveyard.read()) == exactly(before)
    done = graveyard.erase("--tenant", "a", "--contains", SECRET)
    assert (done["erased"], done["kept"], done["bodies"]) == (4, 3, 1)
    assert exactly(graveyard.read()) == exactly([before[1], before[2], before[5]])
    assert graveyard.begins() >= len(before)
    assert (bodies["goes"].exists(), bodies["stays"].exists()) == (False, True)
    again = graveyard.erase("--tenant", "a", "--contains", SECRET)
    assert (again["erased"], again["kept"]) == (0, 3)


def test_an_erasure_that_breaks_off_loses_nothing_and_repeats_nothing_for_good(
    graveyard: Graveyard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it ends before the brokers delete, everything is still there, the copies beside it; run again,
    each letter that stays is there once."""
    before = graveyard.read()

    def unwell(*_: object) -> None:
        raise UnavailableError("the broker went away")

    with monkeypatch.context() as broken:
        broken.setattr(KafkaReader, "delete_below", unwell)
        with pytest.raises(UnavailableError):
            eraser(graveyard).erase(lambda letter: letter.offset == 0)
    assert exactly(graveyard.read()) == exactly([*before, *before[1:]])
    result = eraser(graveyard).erase(lambda letter: letter.identity[2] == 0)
    assert (result.erased, result.repeated) == (1, len(before) - 1)
    assert exactly(graveyard.read()) == exactly(before[1:])


def eraser(graveyard: Graveyard) -> Any:
    return Tools(graveyard.settings, graveyard.line.catalog, graveyard.storage, None).letter_erasure()  # type: ignore[arg-type]


def test_a_letter_that_names_a_foreign_file_takes_nothing_with_it(
    graveyard: Graveyard, tmp_path: Path
) -> None:
    """A letter may name any file as its body: of one that is not signed nothing is followed, and of one that
    is only the dead letters' own folder."""
    victims = [tmp_path / "victim", local_path(graveyard.warehouse) / "victim.parquet"]
    for victim in victims:
        victim.write_text("of somebody else")
    climbing = f"{graveyard.warehouse.rstrip('/')}/dead-letters/../victim.parquet"
    facts = {name: value.encode() for name, value in graveyard.read()[0].facts.items()}
    facts.pop(MAC, None)
    uris, mac = (f"file://{victims[0]}", climbing, "nonsense"), TopicMac(graveyard.settings)

    def erase_victims() -> ErasedLetters:
        result: ErasedLetters = eraser(graveyard).erase(lambda letter: letter.body in uris)
        return result

    forged = [[*facts.items(), ("firn.body", uri.encode())] for uri in uris]
    graveyard.line.kafka.produce(graveyard.topic, [Record(None, None, headers) for headers in forged])
    assert erase_victims().erased == 0
    signed = [[*headers, *mac.header(graveyard.topic, None, None, headers)] for headers in forged]
    graveyard.line.kafka.produce(graveyard.topic, [Record(None, None, headers) for headers in signed])
    result = erase_victims()
    assert (result.erased, result.bodies) == (3, 0)
    listed = map(orjson.loads, graveyard.ours.run("dead-letters", "list", "--json").splitlines())
    assert sum(letter["foreign"] for letter in listed) == len(forged)  # copied, and not signed on the way
    assert all(victim.exists() for victim in victims)


@pytest.mark.parametrize("arguments", [(), ("--tenant", "a")])
def test_all_letters_go_only_where_that_is_said(
    graveyard: Graveyard, arguments: tuple[str, ...], refused: Callable[..., str]
) -> None:
    """Without a choice nothing is erased; `--all` with a tenant takes all of his."""
    assert "say which dead letters" in refused(graveyard, *arguments)
    if arguments:
        assert graveyard.erase("--all", *arguments)["erased"] == 6
        assert [each.value for each in graveyard.read()] == [b'{"user":"alice@example.org"']


@pytest.fixture
def refused() -> Callable[..., str]:
    return lambda graveyard, *arguments: graveyard.ours.refusal("dead-letters", "erase", *arguments)
