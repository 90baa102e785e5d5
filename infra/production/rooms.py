"""The settings of all rooms, as one installation has them."""

from dataclasses import dataclass
from typing import Self

from pydantic import SecretStr

from lake.settings import (
    CatalogSettings,
    IngestSettings,
    OptimizeSettings,
    QuerySettings,
    RoomSettings,
    StorageSettings,
    TlsSettings,
)


@dataclass(frozen=True, slots=True)
class Rooms:
    """Each room's."""

    storage: StorageSettings
    tls: TlsSettings
    catalog: CatalogSettings
    ingest: IngestSettings
    optimize: OptimizeSettings
    query: QuerySettings

    @classmethod
    def load(cls) -> Self:
        """Reads them as the rooms do. Raises SettingsError."""
        return cls(
            StorageSettings.load(),
            TlsSettings.load(),
            CatalogSettings.load(),
            IngestSettings.load().with_own_topics(),
            OptimizeSettings.load(),
            QuerySettings.load(),
        )

    @property
    def all(self) -> tuple[RoomSettings, ...]:
        """All of them."""
        return self.storage, self.tls, self.catalog, self.ingest, self.optimize, self.query

    @property
    def catalog_key(self) -> str | None:
        """The first key of the catalog that a room has."""
        held = (self.optimize.catalog.token, self.ingest.catalog.token, self.query.catalog.token)
        return next((text(token) for token in held if token), None)


def text(secret: SecretStr | None) -> str | None:
    """Returns what a secret is."""
    return secret.get_secret_value() if secret else None
