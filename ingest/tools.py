"""What all tools need, opened once: settings, the catalog, whoever keeps leases and parked records, the warehouse."""

from dataclasses import dataclass
from functools import cached_property

from pydantic import SecretStr

from ingest.audit import Auditor
from ingest.dead_letter_replay import Replayer
from ingest.dead_letters import DeadLetterBox
from ingest.kafka_reader import KafkaReader
from ingest.lease import control_of
from ingest.status import StatusSource
from lake.catalog_client import CatalogClient
from lake.clock import Clock, SystemClock
from lake.errors import SettingsError
from lake.settings import IngestSettings
from lake.storage import AnyStorage, open_storage


@dataclass(frozen=True)
class Tools:
    """Thread-safe as far as it goes; each of the tools made here is for one thread at a time, unless it says otherwise."""

    settings: IngestSettings
    catalog: CatalogClient
    storage: AnyStorage
    clock: Clock

    @classmethod
    def open(cls, settings: IngestSettings) -> "Tools":
        """Raises SettingsError where no input topic is set."""
        if not settings.topics:
            raise SettingsError("no input topics are set; add [[ingest.topics]] with a name to the settings file, or set FIRN_INGEST_TOPICS")
        catalog = CatalogClient(settings.catalog_uri, token=_secret(settings.catalog_token))
        return cls(settings, catalog, open_storage(), SystemClock())

    @cached_property
    def control(self) -> CatalogClient:
        """Who keeps leases and parked records; a catalog without extras where nobody does. Raises UnavailableError where the catalog does not answer."""
        return control_of(self.settings, self.catalog) or self.catalog

    def reader(self) -> KafkaReader:
        return KafkaReader(self.settings)

    def status(self) -> StatusSource:
        """Thread-safe."""
        return StatusSource(self.settings, self.catalog, lambda: self.control, self.clock)

    def dead_letters(self) -> DeadLetterBox:
        return DeadLetterBox(self.settings, self.reader())

    def replayer(self) -> Replayer:
        return Replayer(self.settings, self.reader(), self.control, self.storage)

    def auditor(self) -> Auditor:
        return Auditor(self.settings, self.reader(), self.catalog, self.storage)


def _secret(token: SecretStr | None) -> str | None:
    return token.get_secret_value() if token else None
