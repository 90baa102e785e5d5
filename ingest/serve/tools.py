"""What all tools need, opened once: settings, the catalog, whoever keeps leases and parked records, the
warehouse."""

from dataclasses import dataclass
from functools import cached_property

from pydantic import SecretStr

from ingest.audit.audit import Auditor
from ingest.dead_letters.dead_letter import LETTERS_FOLDER
from ingest.dead_letters.dead_letter_replay import Replayer
from ingest.dead_letters.dead_letters import DeadLetterBox
from ingest.dead_letters.letter_erasure import LetterErasure
from ingest.kafka.aside import Aside
from ingest.kafka.audit_topic import AuditTopic
from ingest.kafka.kafka_reader import KafkaReader
from ingest.kafka.topic_mac import check_keys
from ingest.kafka.usage_topic import UsageTopic
from ingest.parking.parked_topic import PARKED_FOLDER
from ingest.serve.kept_records import KeptRecords
from ingest.serve.status import StatusSource
from lake.catalog_client import CatalogClient
from lake.clock import Clock, SystemClock
from lake.errors import SettingsError
from lake.lease import control_of
from lake.settings import IngestSettings
from lake.storage import AnyStorage, open_storage


@dataclass(frozen=True)
class Tools:
    """Thread-safe as far as it goes; each of the tools made here is for one thread at a time, unless it says
    otherwise."""

    settings: IngestSettings
    catalog: CatalogClient
    storage: AnyStorage
    clock: Clock

    @classmethod
    def open(cls, settings: IngestSettings) -> "Tools":
        """Raises SettingsError where no input topic is set."""
        if not settings.topics:
            raise SettingsError(
                "no input topics are set; add [[ingest.topics]] with a name to the settings file, or set "
                "FIRN_INGEST_TOPICS"
            )
        catalog = CatalogClient(settings.catalog.uri, token=_secret(settings.catalog.token))
        return cls(settings.with_letters_topic(), catalog, open_storage(), SystemClock())

    @cached_property
    def control(self) -> CatalogClient:
        """Who keeps leases and parked records; a catalog without extras where nobody does. Raises
        UnavailableError where the catalog does not answer."""
        return control_of(self.settings, self.catalog) or self.catalog

    def reader(self) -> KafkaReader:
        return KafkaReader(self.settings)

    def status(self) -> StatusSource:
        """Thread-safe."""
        return StatusSource(self.settings, self.catalog, lambda: self.control, self.clock)

    def dead_letters(self) -> DeadLetterBox:
        return DeadLetterBox(self.settings, self.reader())

    @cached_property
    def letters_aside(self) -> Aside:
        """What of dead letters lies in the warehouse. Raises SettingsError, UnavailableError where nobody
        says which that is."""
        return Aside.of(self.storage, self._warehouse, LETTERS_FOLDER)

    @cached_property
    def parked_aside(self) -> Aside:
        """The same of parked records."""
        return Aside.of(self.storage, self._warehouse, PARKED_FOLDER)

    @property
    def _warehouse(self) -> str:
        warehouse = self.settings.catalog.warehouse or self.catalog.warehouse
        if not warehouse:
            raise SettingsError(
                "the catalog does not say where tables go; set FIRN_INGEST_CATALOG__WAREHOUSE to a "
                "location like s3://bucket/prefix"
            )
        return warehouse

    @cached_property
    def audit_topic(self) -> AuditTopic:
        """Where the audit trail goes. Thread-safe."""
        return AuditTopic(self.settings)

    @cached_property
    def usage_topic(self) -> UsageTopic:
        """Where goes what tenants used. Thread-safe."""
        return UsageTopic(self.settings)

    def replayer(self) -> Replayer:
        check_keys(self.settings)
        return Replayer(
            self.settings, self.reader(), self.control, self.letters_aside, self.catalog, self.storage
        )

    def kept_records(self) -> KeptRecords:
        return KeptRecords(self.settings, self.reader(), self.letters_aside, self.parked_aside)

    def letter_erasure(self) -> LetterErasure:
        check_keys(self.settings)
        return LetterErasure(self.settings, self.reader(), self.control, self.letters_aside)

    def auditor(self) -> Auditor:
        return Auditor(self.settings, self.reader(), self.catalog, self.storage)


def _secret(token: SecretStr | None) -> str | None:
    return token.get_secret_value() if token else None
