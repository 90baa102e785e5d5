"""Messages of the replay topic: read as their headers say, stored under the coordinates they were first read
at."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.convert.converter import convert
from ingest.convert.work import Converted, ConverterLimits
from ingest.decode.formats.rejected_record import RejectedRecord
from ingest.decode.replay import Origin, origin_of, replay_headers
from ingest.model.source import Source
from ingest.route.buffer import RawRecord, TableBuffer
from lake.log_schema import INDEX, OFFSET, TOPIC, TOPIC_ID, TOPIC_PARTITION, new_log_schema
from lake.settings import FormatName, IngestSettings, TopicSettings
from lake.tenant import TableId, TenantId
from tests.ingest.support.conversion import ANY_TIME, KAFKA_MS

TABLE = TableId(TenantId("Acme ☃"), "web")
SOURCES = [Source("firn.replay", "replay-id", 0, "replay"), Source("topic", "id", 1, "auto")]
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
HEADERS = st.lists(
    st.tuples(
        st.sampled_from(["a", "firn.attempt", "firn.topic", "firn.reason", ""]),
        st.one_of(st.none(), st.binary(max_size=4)),
    ),
    max_size=5,
)
ORIGINS = st.builds(
    Origin,
    TEXT,
    TEXT,
    st.integers(0, 99),
    st.integers(0, 2**62),
    st.one_of(st.none(), st.integers(0, 9)),
    st.sampled_from(["auto", "json", "text", "otlp_proto"]),
    st.sampled_from(["UTC", "Europe/Berlin"]),
    st.integers(1, 9),
)


def _origin(offset: int, index: int | None = None, form: FormatName = "auto", zone: str = "UTC") -> Origin:
    return Origin("first", "first-id", 7, offset, index, form, zone, 1)


def _converted(messages: list[tuple[bytes, Origin | None]], source: int = 0) -> Converted:
    buffer = TableBuffer(TABLE, 0.0)
    for offset, (body, origin) in enumerate(messages):
        headers = [("own", b"1"), *(replay_headers(origin, TABLE) if origin is not None else ())]
        buffer.add(*RawRecord(source, offset, KAFKA_MS, None, headers, body))
    return convert(buffer, SOURCES, new_log_schema(), [0, 0], ConverterLimits(100, 1_000, ANY_TIME))


def _rows(result: Converted) -> list[dict[str, Any]]:
    rows = result.rows.to_pylist() if result.rows.num_rows else []
    return sorted(
        ({name: value for name, value in row.items() if value is not None} for row in rows),
        key=lambda row: (row[OFFSET], row[INDEX]),
    )


@given(ORIGINS, HEADERS)
def test_headers_lead_back_to_the_origin_whatever_stood_before_them(
    origin: Origin, own: list[tuple[str, bytes | None]]
) -> None:
    """What the replay puts behind a message's own headers is found again, and they are left as they were."""
    found = origin_of([*own, *replay_headers(origin, TABLE)])
    assert found is not None
    assert (found[0], list(found[1])) == (origin, own)


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("firn.attempt", b"1")],
        [(name, value) for name, value in replay_headers(_origin(1), TABLE) if name != "firn.offset"],
        [
            (name, b"x" if name == "firn.partition" else value)
            for name, value in replay_headers(_origin(1), TABLE)
        ],
        [
            (name, b"replay" if name == "firn.format" else value)
            for name, value in replay_headers(_origin(1), TABLE)
        ],
    ],
)
def test_headers_that_do_not_tell_give_no_origin(headers: list[tuple[str, bytes | None]]) -> None:
    """Half an origin is none."""
    assert origin_of(headers) is None


def test_replayed_messages_keep_their_first_coordinates() -> None:
    """Single records, whole batches and single records of batches, in any mixture, each under the identity it
    died under."""
    messages: list[tuple[bytes, Origin | None]] = [
        (b'{"message":"one"}', _origin(40)),
        (b'{"message":"a"}\n{"message":"b"}', _origin(30)),
        (b'{"message":"third of five"}', _origin(50, 2, "json")),
        (b'{"message":"not taken apart"}\n', _origin(50, 4, "json")),
        (b"Nov 20 21:14:19 web1 sshd[7]: hello", _origin(20, form="text", zone="Asia/Kolkata")),
    ]
    rows = _rows(_converted(messages))
    assert [(row[OFFSET], row[INDEX], row["message"]) for row in rows] == [
        (20, 0, "hello"),
        (30, 0, "a"),
        (30, 1, "b"),
        (40, 0, "one"),
        (50, 2, "third of five"),
        (50, 4, "not taken apart"),
    ]
    assert {(row[TOPIC], row[TOPIC_ID], row[TOPIC_PARTITION]) for row in rows} == {("first", "first-id", 7)}
    assert rows[0]["timestamp"].isoformat() == "2026-11-20T15:44:19+00:00"


def test_replayed_record_of_a_batch_is_never_taken_apart_again() -> None:
    """What was one record stays one, else two rows could get the index of another record; it dies again under
    its index."""
    result = _converted([(b'{"a":1}\n{"b":2}', _origin(50, 3, "json"))])
    ((place, rejected),) = result.rejected
    assert (place, result.rows.num_rows) == (0, 0)
    assert isinstance(rejected, RejectedRecord)
    assert rejected.index == 3


def test_message_of_the_replay_topic_without_origin_is_a_message_like_any_other() -> None:
    """Somebody may produce to the topic by hand: such a row has the replay topic's coordinates."""
    (row,) = _rows(_converted([(b'{"message":"by hand"}', None)]))
    assert (row[TOPIC], row[TOPIC_ID], row[TOPIC_PARTITION], row[OFFSET]) == (
        "firn.replay",
        "replay-id",
        0,
        0,
    )


def test_headers_of_a_replay_mean_nothing_on_an_ordinary_topic() -> None:
    """Whoever may write to an input topic must not be able to store a record under another one's identity."""
    (row,) = _rows(_converted([(b'{"message":"forged"}', _origin(1))], source=1))
    assert (row[TOPIC], row[TOPIC_ID], row[TOPIC_PARTITION], row[OFFSET]) == ("topic", "id", 1, 0)


def test_the_replay_topic_is_an_input_topic_where_there_are_others() -> None:
    """It is added once, routed by the headers that the replay writes; without any topic there is nothing to
    replay."""
    settings = IngestSettings(topics=(TopicSettings(name="a"),)).with_own_topics()
    assert [(topic.name, topic.format) for topic in settings.topics] == [
        ("a", "auto"),
        ("firn.replay", "replay"),
    ]
    assert settings.with_own_topics() == settings
    assert settings.topics[1].tenant == ("header:firn.tenant",)
    assert IngestSettings(topics=()).with_own_topics().topics == ()
