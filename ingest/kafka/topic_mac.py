"""What Firn writes into its own topics (dead letters, parked records, replays) is signed, so that nobody
else's message passes for it.

The last header, `firn.mac`, is an HMAC-SHA256, under the first of `signing_keys`, of the topic's name, the
key, the value and all headers before it. Any of the keys is accepted, so that they can be changed. Without
keys every message counts as Firn's own: that is for brokers on loopback alone.

It cannot tell a message from one that somebody has copied: who may write to the topics is the brokers' to say
(docs/ingest.md).
"""

import hashlib
import hmac
import struct
from collections.abc import Sequence

from confluent_kafka import Message

from lake.errors import SettingsError
from lake.listening import is_loopback
from lake.settings import IngestSettings

MAC = "firn.mac"
_LENGTH = struct.Struct(">q").pack
_NONE = _LENGTH(-1)
Headers = Sequence[tuple[str, bytes | None]]


class TopicMac:
    """Signs and checks messages of Firn's own topics."""

    def __init__(self, settings: IngestSettings) -> None:
        self._keys = [key.get_secret_value().encode() for key in settings.internal_topics.signing_keys]
        self._unsigned_below = settings.internal_topics.unsigned_below

    def header(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Headers
    ) -> list[tuple[str, bytes]]:
        """The header to put behind all others; none where there is no key."""
        if not self._keys:
            return []
        return [
            (
                MAC,
                hmac.digest(self._keys[0], _signed(topic, key, value, headers), hashlib.sha256)
                .hex()
                .encode(),
            )
        ]

    def is_own(self, message: Message) -> bool:
        """Whether Firn wrote a message."""
        headers = message.headers() or ()
        return self.holds(
            message.topic(), message.partition(), message.offset(), message.key(), message.value(), headers
        )

    def holds(
        self,
        topic: str,
        partition: int,
        offset: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
    ) -> bool:
        """The same of its parts. What was written before there were keys is Firn's own below the offsets in
        `unsigned_below`."""
        if not self._keys:
            return True
        if headers and headers[-1][0] == MAC:
            signed, told = _signed(topic, key, value, headers[:-1]), headers[-1][1] or b""
            return any(
                hmac.compare_digest(hmac.digest(one, signed, hashlib.sha256).hex().encode(), told)
                for one in self._keys
            )
        return offset < self._unsigned_below.get(f"{topic}:{partition}", 0)


def without_mac(headers: Headers) -> Headers:
    """The headers of a message as they were before it was signed."""
    return headers[:-1] if headers and headers[-1][0] == MAC else headers


def _signed(topic: str, key: bytes | None, value: bytes | None, headers: Headers) -> bytes:
    """Every part with its length before it, so that no two messages give the same bytes."""
    parts = [topic.encode(), key, None if value is None else hashlib.sha256(value).digest()]
    for name, text in headers:
        parts += [name.encode("utf-8", "surrogatepass"), text]
    return b"".join([_NONE if part is None else _LENGTH(len(part)) + part for part in parts])


def check_keys(settings: IngestSettings) -> None:
    """Raises SettingsError where the brokers are not on this machine alone, and there is no key."""
    hosts = [
        server.strip().removeprefix("[").rpartition(":")[0].removesuffix("]")
        for server in settings.kafka.bootstrap_servers.split(",")
    ]
    if not settings.internal_topics.signing_keys and not all(map(is_loopback, hosts)):
        raise SettingsError(
            "internal_topics.signing_keys is empty, and the brokers are not on this machine alone: whoever "
            "may write to the topics of dead letters, parked records and replays could make rows for any "
            "tenant. Set FIRN_INGEST_INTERNAL_TOPICS__SIGNING_KEYS to a JSON list with a random text "
            "(`openssl rand -hex 32`), the same for all nodes and tools; `python -m ingest own-topics` "
            "prints what to set as internal_topics.unsigned_below for what these topics hold already"
        )
