"""The pipeline on one node: read, route, flush what is due, until told to stop."""

import signal
from types import FrameType

import structlog

from ingest.consumer import InputTopics
from ingest.pipeline import Pipeline
from lake import metrics
from lake.catalog_client import CatalogClient
from lake.clock import Clock, SystemClock
from lake.errors import SettingsError
from lake.settings import IngestSettings
from lake.storage import open_storage

POLL_S = 0.2
DISCOVER_EVERY_S = 20.0
STORE_OFFSETS_EVERY_S = 10.0
log = structlog.get_logger()


class LocalEngine:
    """One process that owns all partitions. `ready` is True once it reads; `status` says what it holds."""

    def __init__(self, settings: IngestSettings, clock: Clock | None = None) -> None:
        if not settings.topics:
            raise SettingsError("no input topics are set; add [[ingest.topics]] with a name to the settings file, or set FIRN_INGEST_TOPICS")
        self._settings = settings
        self._clock = clock or SystemClock()
        self._catalog = CatalogClient(settings.catalog_uri, token=settings.catalog_token.get_secret_value() if settings.catalog_token else None)
        self._topics = InputTopics(settings)
        self._pipeline = Pipeline(settings, self._topics, self._catalog, open_storage(), self._clock)
        self._stopping = False
        self.ready = False

    def run(self) -> None:
        """Runs until SIGTERM or SIGINT, then flushes and leaves. Raises FirnError."""
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, self._stop)
        self._pipeline.dead_letters.ensure_topic()
        self._pipeline.discover()
        self.ready = True
        log.info("ingest.running", topics=[topic.name for topic in self._settings.topics], group=self._settings.group)
        discovered_s = stored_s = self._clock.monotonic_s()
        while not self._stopping:
            self._pipeline.take(self._topics.poll(POLL_S))
            self._pipeline.flush_due()
            now_s = self._clock.monotonic_s()
            if now_s - discovered_s >= DISCOVER_EVERY_S:
                self._pipeline.discover()
                discovered_s = now_s
            if now_s - stored_s >= STORE_OFFSETS_EVERY_S:
                self._pipeline.store_offsets()
                self._measure()
                stored_s = now_s
        self._leave()

    def _stop(self, number: int, _: FrameType | None) -> None:
        log.info("ingest.stopping", signal=signal.Signals(number).name, within_s=self._settings.shutdown_s)
        self._stopping = True
        # The last flush may hang on a broken catalog or broker; past the time given, leaving it to the marks is safe.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(int(self._settings.shutdown_s) + 1)

    def _leave(self) -> None:
        self._pipeline.flush_all()
        self._pipeline.store_offsets()
        self._topics.close()
        self._catalog.close()
        signal.alarm(0)
        log.info("ingest.stopped")

    def _measure(self) -> None:
        metrics.BUFFERED_BYTES.set(self._pipeline.buffers.size_bytes)
        metrics.BUFFERED_TABLES.set(len(self._pipeline.buffers))
        for number, lag in self._topics.lag(self._pipeline.offsets.stored).items():
            source = self._topics.assignment.sources[number]
            metrics.LAG_RECORDS.labels(source.topic, str(source.partition)).set(lag)

    def status(self) -> dict[str, object]:
        """What the node holds and how far it is."""
        sources = self._topics.assignment.sources
        routed, stored = dict(self._pipeline.offsets.routed), dict(self._pipeline.offsets.stored)
        return {
            "ready": self.ready,
            "buffered_bytes": self._pipeline.buffers.size_bytes,
            "buffered_tables": len(self._pipeline.buffers),
            "partitions": [{"topic": s.topic, "partition": s.partition, "routed": routed.get(n), "stored": stored.get(n)} for n, s in enumerate(sources)],
        }
