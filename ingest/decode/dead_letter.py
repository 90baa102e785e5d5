"""What a message of the dead-letter topic says: the message that died, and what is known of its death.

Its value, key and own headers are those of the message that died; behind them stand, from `firn.reason` on,
why it died and where it was read (`ingest/dead_letters/dead_letter.py` writes them).
"""

import base64
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from confluent_kafka import Message

from ingest.decode.replay import ATTEMPT, Headers, facts_behind
from ingest.kafka.aside import Aside
from ingest.kafka.claim_check import BODY, ENVELOPE
from ingest.kafka.topic_mac import TopicMac
from lake.clock import moment_of
from lake.errors import Reason

REASON = "firn.reason"  # the first header behind the message's own
UNTIL = "firn.until"  # of a dead letter without bytes that stands for several offsets: the one behind them
SHOWN_BYTES = 200


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One dead letter: the message that died, and what is known of its death. `partition`, `offset` are the
    letter's own and name it.

    `was_*` are the coordinates of the message; `index` that of the one bad record in it, whose bytes are then
    the value. `body`: where the value lies, when it was too large for the topic. `headers` are the message's
    own. `attempt`: how often it had been replayed before it died again.
    """

    partition: int
    offset: int
    died: datetime
    reason: str
    detail: str
    was_topic: str
    was_topic_id: str
    was_partition: int
    was_offset: int
    was_at_ms: int
    index: int | None
    table: str | None
    body: str | None
    envelope: str | None
    attempt: int
    key: bytes | None
    headers: Headers
    value: bytes | None
    value_bytes: int | None
    until: int | None = None  # of a dead letter that stands for offsets nobody can read: the one behind them
    foreign: bool = False  # somebody else put it into the topic; then nothing is known but itself
    tenant: str | None = None  # as far as anybody can tell

    def shortened(self) -> "DeadLetter":
        """With the beginning of its value only: a page of dead letters must not hold gigabytes."""
        return self if self.value is None else replace(self, value=self.value[:SHOWN_BYTES])

    @property
    def id(self) -> str:
        """As `show` and `replay` take it."""
        return f"{self.partition}:{self.offset}"

    @property
    def identity(self) -> tuple[str, int, int, int | None]:
        """Of the record that died: topic id, partition, offset, index."""
        return self.was_topic_id, self.was_partition, self.was_offset, self.index

    def read_value(self, aside: Aside) -> bytes | None:
        """The message's value, from the warehouse where it was put aside. Raises NotFoundError,
        UnavailableError, RefusedError."""
        return self.value if self.body is None else aside.read(self.body)

    def to_json(self) -> dict[str, Any]:
        """All but the value and the headers."""
        return {
            "id": self.id,
            "died": _text(self.died),
            "reason": self.reason,
            "detail": self.detail,
            "topic": self.was_topic,
            "topic_id": self.was_topic_id,
            "partition": self.was_partition,
            "offset": self.was_offset,
            "until": self.until,
            "foreign": self.foreign,
            "index": self.index,
            "timestamp": _text(moment_of(self.was_at_ms)),
            "table": self.table,
            "tenant": self.tenant,
            "attempt": self.attempt,
            "bytes": self.value_bytes,
            "body": self.body,
            "envelope": self.envelope,
            "begins": None
            if self.value is None
            else self.value[:SHOWN_BYTES].decode("utf-8", "backslashreplace"),
        }

    def to_json_whole(self, aside: Aside) -> dict[str, Any]:
        """Everything; bytes in base64, and as text where they are UTF-8. Raises NotFoundError,
        UnavailableError, RefusedError."""
        value = self.read_value(aside)
        key, own = (self.key, self.headers) if self.envelope is None else aside.read_envelope(self.envelope)
        headers = [{"name": name, **_bytes("value", content)} for name, content in own]
        return {
            **self.to_json(),
            "bytes": None if value is None else len(value),
            "headers": headers,
            **_bytes("key", key),
            **_bytes("value", value),
        }


def _bytes(name: str, content: bytes | None) -> dict[str, str | None]:
    if content is None:
        return {name: None, f"{name}_base64": None}
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = None
    return {name: text, f"{name}_base64": base64.b64encode(content).decode()}


def _text(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def any_letter(message: Message, mac: TopicMac) -> DeadLetter:
    """A message of the dead-letter topic, whoever wrote it. Of what Firn did not write nothing is believed:
    it has no tenant, and no body elsewhere."""
    letter = read_letter(message, mac)
    if letter is not None:
        return letter
    value, headers = message.value(), message.headers() or ()
    return DeadLetter(
        partition=message.partition(),
        offset=message.offset(),
        died=moment_of(message.timestamp()[1]),
        reason=Reason.FOREIGN.value,
        detail=(
            "somebody else than Firn put it into the topic: it has no signature by one of signing_keys, and "
            "what its headers say is not followed"
        ),
        was_topic=message.topic(),
        was_topic_id="",
        was_partition=message.partition(),
        was_offset=message.offset(),
        was_at_ms=message.timestamp()[1],
        index=None,
        table=None,
        body=None,
        envelope=None,
        attempt=0,
        key=message.key(),
        headers=headers,
        value=value,
        value_bytes=None if value is None else len(value),
        foreign=True,
    )


def read_letter(message: Message, mac: TopicMac) -> DeadLetter | None:
    """A message of the dead-letter topic; None where it is something that Firn has not put there."""
    found = facts_behind(message.headers() or (), REASON)
    if found is None or not mac.is_own(message):
        return None
    facts, own = found
    try:
        return DeadLetter(
            partition=message.partition(),
            offset=message.offset(),
            died=moment_of(message.timestamp()[1]),
            reason=facts[REASON],
            detail=facts.get("firn.detail", ""),
            was_topic=facts["firn.topic"],
            was_topic_id=facts["firn.topic_id"],
            was_partition=int(facts["firn.partition"]),
            was_offset=int(facts["firn.offset"]),
            was_at_ms=int(facts["firn.timestamp_ms"]),
            index=int(facts["firn.index"]) if "firn.index" in facts else None,
            table=facts.get("firn.table"),
            body=facts.get(BODY),
            envelope=facts.get(ENVELOPE),
            attempt=int(facts.get(ATTEMPT, "0")),
            key=message.key(),
            headers=own,
            value=message.value(),
            value_bytes=None if message.value() is None else len(message.value()),
            until=int(facts[UNTIL]) if UNTIL in facts else None,
        )
    except (KeyError, ValueError):
        return None
