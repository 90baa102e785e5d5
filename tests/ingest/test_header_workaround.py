"""A message whose headers Kafka's client cannot give is a dead letter, and nothing more happens."""

import pytest
from confluent_kafka import Message

from ingest.kafka.header_workaround import UNREADABLE, with_readable_headers
from ingest.model.raw_rows import Headers
from ingest.route.router import Router
from lake.errors import Reason, Rejected
from lake.settings import TopicSettings


class BadMessage(Message):  # type: ignore[misc] # its stubs are left out
    """As the client gives one with a header name that is not UTF-8: asked twice, it would give something that
    ends the process."""

    def __init__(self) -> None:
        super().__init__(
            topic="t", partition=3, offset=7, key=b"k", value=b'{"tenant":"a"}', timestamp=(1, 5_000)
        )
        self.asked = 0

    def headers(self) -> Headers:
        self.asked += 1
        assert self.asked == 1
        raise SystemError("<method 'headers'> returned a result with an exception set")


def test_the_others_stay_as_they_are_and_the_bad_one_keeps_its_coordinates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only its headers are others."""
    monkeypatch.setattr("ingest.kafka.header_workaround._ask", lambda message: message.headers())
    good = Message(
        topic="t", partition=0, offset=1, key=None, value=b"{}", headers=[("tenant", b"a")], timestamp=(1, 2)
    )
    bad_ones = [BadMessage() for _ in range(3)]
    first, bad, second, *others = with_readable_headers([good, bad_ones[0], good, *bad_ones[1:]])
    assert (first, second) == (good, good)
    assert all(one.headers() is UNREADABLE for one in others)
    assert (bad.topic(), bad.partition(), bad.offset(), bad.key(), bad.timestamp()) == (
        "t",
        3,
        7,
        b"k",
        (1, 5_000),
    )
    assert bad.headers() is UNREADABLE


def test_it_goes_to_no_table_whatever_else_names_one() -> None:
    """The header that nobody can read may have named another."""
    found = Router(TopicSettings(name="t")).target(b"k", UNREADABLE, b'{"tenant":"a"}')
    assert isinstance(found, Rejected)
    assert found.reason is Reason.UNDECODABLE
