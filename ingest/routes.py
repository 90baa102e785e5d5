"""Where a message goes by its topic's rules: to a table, or to the dead letters because no rule can be asked about it."""

from collections.abc import Iterable

import structlog
from confluent_kafka import Message

from ingest.buffer import Headers
from ingest.fault_point import ARMED, reach
from ingest.router import Router
from lake.errors import Reason, Rejected
from lake.settings import IngestSettings
from lake.tenant import TableId

_EMPTY = Rejected(Reason.EMPTY, "the message has no value")
_UNFORESEEN = Rejected(Reason.UNSTORABLE, "an error that nobody foresaw while its tenant was looked for; the log has its trace, please report it")
log = structlog.get_logger()


class Routes:
    """The routers of all input topics."""

    def __init__(self, settings: IngestSettings) -> None:
        self._bytes_max = settings.record_bytes_max
        self._routers = {topic.name: Router(topic) for topic in settings.topics}

    def target(self, topic: str, key: bytes | None, headers: Headers, value: bytes | None) -> TableId | Rejected:
        """The table of a message, or why it belongs to none."""
        if not value:
            return _EMPTY
        if len(value) > self._bytes_max:
            return Rejected(Reason.TOO_LARGE, f"{len(value)} bytes, record_bytes_max is {self._bytes_max}")
        try:
            return self._routers[topic].target(key, headers, value)
        except MemoryError:
            raise
        except Exception:  # whatever is in a message, it must not stop the others
            log.exception("message.not_routed", topic=topic)
            return _UNFORESEEN

    def sort(self, topic: str, messages: Iterable[Message]) -> dict[TableId | Rejected, list[Message]]:
        """Messages of one topic by where they go, in order."""
        target_of, found = self.target, dict[TableId | Rejected, list[Message]]()
        for message in messages:
            target = target_of(topic, message.key(), message.headers() or (), message.value())
            if (others := found.get(target)) is None:
                found[target] = [message]
            else:
                others.append(message)
            if ARMED:
                reach("routed_in_batch")
        return found
