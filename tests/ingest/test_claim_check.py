"""What is too large for one of Firn's own topics lies in the warehouse, and comes back as it was."""

from pathlib import Path

import pytest
from confluent_kafka import Message

from ingest.dead_letters.dead_letter import DETAIL_CHARACTERS_MAX, LETTERS_FOLDER, DeadLetters
from ingest.decode.dead_letter import read_letter
from ingest.kafka.aside import Aside
from ingest.kafka.claim_check import Headers, check_in
from ingest.kafka.topic_mac import TopicMac
from ingest.model.source import Source
from ingest.parking.parked_topic import PARKED_FOLDER, ParkedTopic, read_parked
from ingest.route.buffer import RawRecord
from lake.errors import Reason, Rejected
from lake.settings import IngestSettings
from lake.storage import open_storage
from lake.tenant import TableId, TenantId

STORAGE = open_storage()
SOURCE = Source("topic", "id", 4, "auto", "UTC")
TABLE = TableId(TenantId("t"), "logs")
# A hundredth of what topics take.
LARGE, SPARE = 160_000, 10_000
MESSAGES = [
    pytest.param(b"v", b"k", [("tenant", b"a"), ("none", None)], id="small"),
    pytest.param(b"v" * LARGE, b"k", [("tenant", b"a")], id="value"),
    pytest.param(b"v", b"k" * LARGE, [("tenant", b"a")], id="key"),
    pytest.param(b"v", None, [(f"h{at}", b"x" * 10_000) for at in range(17)], id="headers"),
    pytest.param(b"v" * LARGE, b"k" * LARGE, [("tenant", b"a"), ("none", None)], id="value and key"),
    pytest.param(b"v" * (LARGE - SPARE - 5), b"k" * 5_000, [], id="only together"),
    pytest.param(None, b"k" * LARGE, [], id="tombstone with a key"),
]


@pytest.fixture(autouse=True)
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of topics that take little."""
    monkeypatch.setattr("ingest.kafka.claim_check.MESSAGE_BYTES_MAX", LARGE)
    monkeypatch.setattr("ingest.kafka.claim_check.ENVELOPE_BYTES", SPARE)


class Sent:
    """What a producer was given."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def send(
        self, value: bytes | None, key: bytes | None, headers: list[tuple[str, bytes | None]], **_: object
    ) -> None:
        size = (
            len(value or b"") + len(key or b"") + sum(len(name) + len(text or b"") for name, text in headers)
        )
        assert size <= LARGE
        self.messages.append(
            Message(
                topic="own", partition=0, offset=0, key=key, value=value, headers=headers, timestamp=(1, 9)
            )
        )


@pytest.mark.parametrize(("value", "key", "headers"), MESSAGES)
def test_a_parked_message_comes_back_whole(
    tmp_path: Path, value: bytes | None, key: bytes | None, headers: Headers
) -> None:
    """However large its parts are."""
    topic, sent = ParkedTopic(IngestSettings(), STORAGE, f"file://{tmp_path}"), Sent()
    topic._producer = sent  # type: ignore[assignment]
    topic.send(SOURCE, RawRecord(0, 11, 5_000, key, headers, value), TABLE, "2-parking")
    parked = read_parked(sent.messages[0], Aside.of(STORAGE, f"file://{tmp_path}", PARKED_FOLDER))
    assert (parked.parking, parked.table, parked.source) == ("2-parking", TABLE, SOURCE)
    assert parked.record == RawRecord(0, 11, 5_000, key, headers, value)


@pytest.mark.parametrize(("value", "key", "headers"), MESSAGES)
def test_a_dead_letter_is_shown_whole(
    tmp_path: Path, value: bytes | None, key: bytes | None, headers: Headers
) -> None:
    """However large its parts are, and what its reason quotes."""
    letters, sent = DeadLetters(IngestSettings(), STORAGE, f"file://{tmp_path}"), Sent()
    letters._producer = sent  # type: ignore[assignment]
    letters.send(
        SOURCE,
        RawRecord(0, 11, 5_000, key, headers, value),
        Rejected(Reason.TENANT_INVALID, "x" * LARGE),
        None,
    )
    letter = read_letter(sent.messages[0], TopicMac(IngestSettings()))
    assert letter is not None
    assert (letter.was_topic, letter.was_partition, letter.was_offset, len(letter.detail)) == (
        "topic",
        4,
        11,
        DETAIL_CHARACTERS_MAX,
    )
    aside = Aside.of(STORAGE, f"file://{tmp_path}", LETTERS_FOLDER)
    assert letter.read_value(aside) == value
    shown = letter.to_json_whole(aside)
    assert shown["key"] == (None if key is None else key.decode())
    assert [(each["name"], each["value"]) for each in shown["headers"]] == [
        (name, None if text is None else text.decode()) for name, text in headers
    ]


def test_what_fits_is_not_put_aside(tmp_path: Path) -> None:
    """Nothing is written for it."""
    kept = check_in(STORAGE, f"file://{tmp_path}", b"v" * 1_000, b"k", [("a", b"b")])
    assert (kept.value, kept.key, kept.headers, kept.places) == (b"v" * 1_000, b"k", [("a", b"b")], {})
    assert not list(tmp_path.iterdir())
