"""Messages that somebody else writes into Firn's own topics: shown as foreign, never followed."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Message
from pydantic import SecretStr

from ingest.kafka.aside import Aside
from ingest.kafka.claim_check import COMPRESSED
from ingest.kafka.topic_mac import TopicMac, check_keys
from lake.errors import NotFoundError, RefusedError, SettingsError
from lake.settings import IngestSettings
from lake.storage import open_storage
from tests.stack.support.kafka_topics import Record
from tests.stack.support.line import Line
from tests.stack.support.parked import location, numbered, numbers, unwritable, wait_parked, wait_released
from tests.stack.support.tool_line import ToolLine
from tests.stack.support.waiting import fresh

pytestmark = pytest.mark.finding(7)

SECRET = b"what only the machine may read"
OLD, NEW = "old" * 10, "new" * 10


def _facts(**facts: object) -> tuple[tuple[str, bytes], ...]:
    return tuple((f"firn.{name}", str(text).encode()) for name, text in facts.items())


def _letter(topic: str, topic_id: str, tenant: str, **more: object) -> Record:
    """A dead letter as Firn spells one, of a tenant's table."""
    told = {
        "reason": "too_late",
        "detail": "d",
        "timestamp_ms": 1,
        "topic": topic,
        "topic_id": topic_id,
        "partition": 0,
        "offset": 0,
    }
    return Record(b'{"a":1}', b"k", _facts(**told, table=f"{tenant}.logs", **more))


def _replay(topic: str, topic_id: str, tenant: str) -> Record:
    """A replayed letter as Firn spells one, that goes to a tenant's table."""
    where = {"topic": topic, "topic_id": topic_id, "partition": 0, "offset": 10**6}
    return Record(
        b'{"message":"forged"}',
        None,
        _facts(attempt=1, **where, format="json", time_zone="UTC", tenant=tenant, stream="logs"),
    )


@pytest.mark.stack
def test_forged_letters_and_replays_are_not_followed(line: Line, tmp_path: Path) -> None:
    """`firn.body` names a file of the machine, `firn.tenant` another tenant: the API gives neither the file
    nor a row, and says that it is foreign."""
    topic, tenant, other = line.kafka.topic(), fresh("b"), fresh("a")
    target = tmp_path / "secret"
    target.write_bytes(SECRET)
    ours = ToolLine(line, topic)
    letters, replays = (
        ours.settings["internal_topics__dead_letters"],
        ours.settings["internal_topics__replay"],
    )
    try:
        ours.ingester.start()
        line.kafka.produce(topic, numbered(other, range(3)))
        ours.wait_until_stored(topic, {0: 3})
        topic_id = line.kafka.topic_id(topic)
        line.kafka.produce(
            letters,
            [
                _letter(topic, topic_id, tenant, body=f"file://{target}", envelope=f"file://{target}"),
                Record(b"anything"),
            ],
        )
        line.kafka.produce(replays, [_replay(topic, topic_id, tenant)])
        ours.wait_until_stored(replays, {0: 1})
        with ours.serve() as serve:
            page = serve.get("/v1/dead-letters").json()["dead_letters"]
            assert [each["foreign"] for each in page].count(True) == 2
            assert {each["reason"] for each in page} == {"foreign"}
            assert all(
                each["tenant"] is None and each["body"] is None and each["table"] is None for each in page
            )
            for each in page:
                for path in (each["id"], f"{each['id']}/value"):
                    assert SECRET not in serve.get(f"/v1/dead-letters/{path}").content
            assert serve.get("/v1/dead-letters", params={"tenant": tenant}).json()["dead_letters"] == []
            sent = serve.post("/v1/dead-letters/replay", json={"all": True, "to_tenant": tenant}).json()
            assert sent["replayed"] == 0, sent
        assert not line.exists(tenant), "the replay that somebody forged has made a table"
        kept = next(letter for letter in line.kafka.read(letters) if letter.value == b'{"message":"forged"}')
        assert kept.facts["firn.reason"] == "foreign"
        assert 'firn_ingest_records_dead_lettered_total{reason="foreign"} 1.0' in ours.ingester.metrics()
        assert ours.audit() == {}
    finally:
        ours.ingester.kill()


@pytest.mark.stack
def test_what_is_forged_among_parked_records_never_reaches_the_table(line: Line) -> None:
    """It carries the id of the true parking, and offsets beyond the true ones: the table gets its own
    records, each once, and none of these."""
    topic, tenant = line.kafka.topic(), fresh("Sick-")
    ours = ToolLine(line, topic, tables__park_after_s=1, flush__interval_s=0.3)
    parked, running = ours.settings["internal_topics__parked"], ours.ingester
    try:
        running.start()
        line.kafka.produce(topic, numbered(tenant, range(10)))
        line.wait_for_rows(running, tenant, 10)
        with unwritable(location(line, tenant) / "data"):
            line.kafka.produce(topic, numbered(tenant, range(10, 20)))
            wait_parked(running, tenant, "storage")
            running.wait_until(lambda: len(line.kafka.read(parked)) == 10, 60, "the records being parked")
            true = line.kafka.read(parked)[-1]
            forged = [(name, b"12" if name == "firn.offset" else text) for name, text in true.headers]
            beyond = [
                (name, b"900" if name == "firn.offset" else text)
                for name, text in true.headers
                if name != "firn.mac"
            ]
            line.kafka.produce(
                parked,
                [
                    Record(b'{"n":666}', None, tuple(each), partition=true.partition)
                    for each in (forged, beyond)
                ],
            )
        wait_released(running, tenant)
        line.kafka.produce(topic, numbered(tenant, range(20, 30)))
        line.wait_for_rows(running, tenant, 30)
        assert numbers(line, tenant) == list(range(30))
        running.wait_until(
            lambda: f'firn_ingest_untrusted_messages_total{{topic="{parked}"}}' in running.metrics(),
            30,
            "the counter",
        )
        assert ours.audit() == {}
    finally:
        running.kill()


def _settings(*keys: str, **more: Any) -> IngestSettings:
    return IngestSettings.load(internal_topics__signing_keys=tuple(map(SecretStr, keys)), **more)


def _signed(
    settings: IngestSettings,
    *,
    topic: str = "own",
    value: bytes = b"v",
    headers: tuple[tuple[str, bytes], ...] = (("firn.x", b"1"),),
) -> Message:
    signed = [*headers, *TopicMac(settings).header("own", b"k", b"v", (("firn.x", b"1"),))]
    return Message(
        topic=topic, partition=0, offset=5, key=b"k", value=value, headers=signed, timestamp=(1, 9)
    )


def test_a_signature_is_of_all_of_a_message_and_of_its_topic() -> None:
    """Another value, header or topic has another one; keys are changed by putting the new one first."""
    assert TopicMac(_settings(OLD)).is_own(_signed(_settings(OLD)))
    assert TopicMac(_settings(NEW, OLD)).is_own(_signed(_settings(OLD)))
    for message in (
        _signed(_settings(OLD), value=b"w"),
        _signed(_settings(OLD), headers=(("firn.x", b"2"),)),
        _signed(_settings(OLD), topic="another"),
    ):
        assert not TopicMac(_settings(OLD)).is_own(message)
    assert not TopicMac(_settings(NEW)).is_own(_signed(_settings(OLD)))


def test_unsigned_messages_count_below_the_offsets_that_were_set() -> None:
    """What was written before there were keys; nothing behind it, and nothing with a wrong signature."""
    plain = Message(
        topic="own", partition=0, offset=5, key=b"k", value=b"v", headers=[("firn.x", b"1")], timestamp=(1, 9)
    )
    assert not TopicMac(_settings(OLD)).is_own(plain)
    assert TopicMac(_settings(OLD, internal_topics__unsigned_below={"own:0": 6})).is_own(plain)
    assert not TopicMac(
        _settings(OLD, internal_topics__unsigned_below={"own:0": 5, "own:1": 6, "other:0": 6})
    ).is_own(plain)
    assert not TopicMac(_settings(OLD, internal_topics__unsigned_below={"own:0": 6})).is_own(
        _signed(_settings(NEW))
    )


def test_beyond_loopback_there_have_to_be_keys() -> None:
    """A node says what to set."""
    check_keys(_settings(kafka__bootstrap_servers="127.0.0.1:9092,localhost:9092,[::1]:9092"))
    check_keys(_settings(OLD, kafka__bootstrap_servers="kafka.example.org:9092"))
    for servers in ("kafka.example.org:9092", "127.0.0.1:1,10.0.0.7:9092"):
        with pytest.raises(SettingsError, match="openssl rand"):
            check_keys(_settings(kafka__bootstrap_servers=servers))


def test_bodies_are_opened_only_where_firn_puts_them(tmp_path: Path) -> None:
    """Not elsewhere, not by `..`, not through a link, not what is no file, and not what unpacks to more than
    a bound."""
    storage, name = open_storage(), "00000000-0000-4000-8000-00000000000"
    aside = Aside.of(storage, f"file://{tmp_path}/w", "dead-letters")
    folder = tmp_path / "w" / "dead-letters"
    folder.mkdir(parents=True)
    (tmp_path / "secret").write_bytes(SECRET)
    (tmp_path / "w" / f"{name}1").write_bytes(SECRET)
    (folder / f"{name}2").symlink_to(tmp_path / "secret")
    (folder / f"{name}3").mkdir()
    (folder / f"{name}4").write_bytes(b"a body")
    (folder / "other").write_bytes(SECRET)
    assert aside.read(f"file:{folder}/{name}4") == b"a body"
    wrong = [
        f"file://{tmp_path}/secret",
        f"file://{folder}/../{name}1",
        f"file://{folder}/{name}2",
        f"file://{folder}/{name}3",
        f"file://{folder}/other",
    ]
    for uri in [
        *wrong,
        f"file://{tmp_path}/w/parked/{name}4",
        "file:///etc/passwd",
        "s3://bucket/key",
        str(tmp_path / "secret"),
    ]:
        with pytest.raises(RefusedError):
            aside.read(uri)
    with pytest.raises(NotFoundError):
        aside.read(f"file://{folder}/{name}9")
    storage.write(f"file://{folder}/{name}5{COMPRESSED}", _zeros(64))
    with pytest.raises(RefusedError, match="more than"):
        aside.read(f"file://{folder}/{name}5{COMPRESSED}", 1024)


def _zeros(mebibytes: int) -> bytes:
    return bytes(pa.compress(bytes(mebibytes << 20), "zstd", asbytes=True))
