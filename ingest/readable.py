"""Messages as Kafka's client gives them, but for those whose headers it cannot give.

Header names are UTF-8 by Kafka's protocol, and nobody makes a producer keep to that. confluent-kafka 2.16 raises SystemError where a name is none, for
all headers of the message, and must not be asked for them again.
"""

from collections.abc import Iterable

from confluent_kafka import Message

# In place of the headers of such a message: known by its identity.
UNREADABLE = [("firn.headers", b"unreadable")]


def with_readable_headers(messages: Iterable[Message]) -> list[Message]:
    """The messages, one whose headers cannot be read with `UNREADABLE` as its headers."""
    found = list(messages)
    for at, message in enumerate(found):
        try:
            message.headers()
        except (SystemError, UnicodeError):
            found[at] = _without_headers(message)
    return found


def _without_headers(message: Message) -> Message:
    return Message(
        topic=message.topic(),
        partition=message.partition(),
        offset=message.offset(),
        key=message.key(),
        value=message.value(),
        timestamp=message.timestamp(),
        headers=UNREADABLE,
    )
