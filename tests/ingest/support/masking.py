"""Settings of masking, and messages through it."""

from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import Message

from ingest.route.routes import Routes
from lake.errors import Rejected
from lake.settings import IngestSettings
from lake.tenant import TableId
from tests.ingest.support.conversion import KAFKA_MS

TOPIC = "t"
KEY = "k" * 32
# One rule of each action; what it is about.
DROP = {"name": "passwords", "action": "drop", "fields": ["password", "*.secret"]}
HASH = {"name": "contact", "action": "hash", "fields": ["user.email"]}
CUT = {"name": "pii", "action": "cut", "patterns": ["card", "email", "token"], "expressions": ["SSN-[0-9]+"]}


def masking_settings(
    *rules: Mapping[str, Any], unparsed: str = "withhold", over_limit: str = "mask", **topic: Any
) -> IngestSettings:
    """Settings of one topic whose records go to one tenant and are masked by these rules."""
    masking = {"rules": list(rules), "unparsed": unparsed, "over_limit": over_limit}
    one = {"name": TOPIC, "tenant": ["header:tenant", "const:acme"], "masking": masking, **topic}
    return IngestSettings.load(topics=[one], masking__key=KEY)


def message(
    value: bytes | None,
    offset: int = 0,
    key: bytes | None = None,
    headers: Sequence[tuple[str, bytes | None]] = (),
) -> Message:
    """A message of the topic."""
    return Message(
        topic=TOPIC,
        partition=0,
        offset=offset,
        key=key,
        value=value,
        headers=list(headers),
        timestamp=(1, KAFKA_MS),
    )


def sorted_by(settings: IngestSettings, *messages: Message) -> dict[TableId | Rejected, list[Message]]:
    """Where messages go, masked."""
    return Routes(settings).sort(TOPIC, messages)


def masked(settings: IngestSettings, value: bytes, **parts: Any) -> bytes | None:
    """What is left of a value."""
    ((found,),) = sorted_by(settings, message(value, **parts)).values()
    left: bytes | None = found.value()
    return left
