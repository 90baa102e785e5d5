"""Where a message goes by its topic's rules: to a table, or to the dead letters because no rule can be asked about it."""

from ingest.buffer import RawRecord
from ingest.router import Envelope, Router
from lake.errors import Reason, Rejected
from lake.settings import IngestSettings
from lake.tenant import TableId


class Routes:
    """The routers of all input topics."""

    def __init__(self, settings: IngestSettings) -> None:
        self._bytes_max = settings.record_bytes_max
        self._routers = {topic.name: Router(topic) for topic in settings.topics}

    def target(self, topic: str, record: RawRecord) -> TableId | Rejected:
        """The table of a message, or why it belongs to none."""
        if not record.value:
            return Rejected(Reason.EMPTY, "the message has no value")
        if len(record.value) > self._bytes_max:
            return Rejected(Reason.TOO_LARGE, f"{len(record.value)} bytes, record_bytes_max is {self._bytes_max}")
        return self._routers[topic].route(Envelope(topic, record.key, record.headers, record.value))
