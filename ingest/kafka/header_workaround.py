"""Messages as Kafka's client gives them, but for those whose headers it cannot give.

Header names are UTF-8 by Kafka's protocol, and nobody makes a producer keep to that. confluent-kafka 2.16
raises SystemError where a name is none, for all headers of the message, and must not be asked for them again.
"""

from collections.abc import Iterable

from confluent_kafka import Message

# In place of the headers of such a message: known by its identity.
UNREADABLE = [("firn.headers", b"unreadable")]
# Not called by its name: once the interpreter has specialised such a call, it does not look for an error
# beside the result, which then shows up anywhere.
_ask = Message.headers


def with_readable_headers(messages: Iterable[Message]) -> list[Message]:
    """The messages, one whose headers cannot be read with `UNREADABLE` as its headers."""
    found = list(messages)
    asked, at = map(_ask, found), 0
    while at < len(found):
        try:
            for _ in asked:
                at += 1
        except (SystemError, UnicodeError):
            found[at] = _without_headers(found[at])
            at += 1
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
