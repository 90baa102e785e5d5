"""A worker process of the local engine: owns some of the partitions and runs the pipeline over them."""

from collections.abc import Mapping
from functools import partial
from multiprocessing.connection import Connection

from ingest.dead_letters.dead_letter import DeadLetters
from ingest.kafka.aside import Aside
from ingest.kafka.consumer import InputTopics
from ingest.model.shares import ALL_SHARES, Shares
from ingest.node.pipeline import Pipeline
from ingest.node.worker import PipeLink, Worker, run_worker
from ingest.parking.parked_topic import PARKED_FOLDER, ParkedTopic
from ingest.route.routes import rules_to_group
from ingest.write.catalog_rates import CatalogRates
from ingest.write.catalog_retentions import CatalogRetentions
from ingest.write.flush_writer import FlushWriter
from lake.clock import SystemClock
from lake.settings import IngestSettings
from lake.storage import open_storage
from lake.tenant import TableId

FLUSH_EVERY_S = 0.05


class LocalWorker(Worker):
    """Polls Kafka, takes, flushes."""

    def __init__(
        self,
        settings: IngestSettings,
        index: int,
        warehouse: str,
        parked: Mapping[TableId, str],
        shares: Shares,
        link: PipeLink,
    ) -> None:
        clock, storage = SystemClock(), open_storage()
        self._topics = InputTopics(settings, index, settings.workers, rules_to_group(settings), shares)
        letters, retentions = (
            DeadLetters(settings, storage, warehouse),
            CatalogRetentions.of(settings, clock),
        )
        rates = CatalogRates.of(settings, clock)
        writer = FlushWriter(
            settings, link, letters, storage, retentions=retentions, clock=clock, rates=rates
        )
        parked_topic = ParkedTopic(settings, storage, warehouse)
        bytes_max = settings.flush.buffer_bytes_max // settings.workers
        self._pipeline = Pipeline(settings, self._topics, link, writer, parked_topic, clock, bytes_max)
        self._pipeline.park(parked)
        super().__init__(
            settings, link, self._pipeline, writer, Aside.of(storage, warehouse, PARKED_FOLDER), clock
        )

    def run(self) -> None:
        super().run()
        self._topics.close()

    def _work(self) -> None:
        if self._pipeline.is_full:
            self._listen(self._poll_s)
        else:
            self._pipeline.take(*self._topics.take(self._poll_s))
        if self._is_time("flush", FLUSH_EVERY_S):
            self._pipeline.flush_due()

    def _finish(self) -> bool:
        if self._pipeline.is_idle and not len(self._pipeline.buffers):
            return True
        self._pipeline.flush_all()
        return False


def run_local_worker(
    pipe: Connection,
    settings: IngestSettings,
    index: int,
    warehouse: str,
    parked: Mapping[TableId, str],
    shares: Shares = ALL_SHARES,
) -> None:
    """The body of the process. `parked`: tables and their parkings at start. `shares`: those of its node."""
    run_worker(pipe, index, partial(LocalWorker, settings, index, warehouse, parked, shares))
