"""When the certificates in a room's settings end, as a metric: whoever watches it puts new ones there
before. A module of its own: the catalog exposes no other room's metrics."""

from collections.abc import Mapping
from pathlib import Path

from prometheus_client import Gauge

from lake.certificates import ends_of_pem
from lake.settings import CatalogSettings, IngestSettings, QuerySettings, TlsSettings

UNREADABLE_S = 0.0
EXPIRES = Gauge(
    "firn_certificate_expires_timestamp_seconds",
    "When the first of the certificates ends that a setting's file holds (epoch); 0: none can be read there",
    ["setting"],
    multiprocess_mode="livemostrecent",
)
Files = Mapping[str, str | Path | None]


class CertificateEnds:
    """The files that settings name: those of every HTTP client (`tls`), and a room's own, by the settings'
    names. Of a setting without a file nothing is told."""

    def __init__(self, own: Files) -> None:
        tls = TlsSettings.load()
        named: Files = {"tls.ca": tls.ca, "tls.certificate": tls.certificate, **own}
        self._files = {setting: Path(path) for setting, path in named.items() if path}

    def note(self) -> None:
        """Brings the metric up to date by what is in the files now: others may have put new ones there."""
        for setting, path in self._files.items():
            EXPIRES.labels(setting).set(_end_s(path))


def _end_s(path: Path) -> float:
    try:
        return min(ends_of_pem(path.read_text())).timestamp()
    except (OSError, ValueError):
        return UNREADABLE_S


def of_ingest(settings: IngestSettings) -> Files:
    """Those by which Kafka is reached."""
    kafka = settings.kafka
    return {"ingest.kafka.ssl_ca": kafka.ssl_ca, "ingest.kafka.ssl_certificate": kafka.ssl_certificate}


def of_query(settings: QuerySettings) -> Files:
    """The one by which Trino is trusted."""
    return {"query.trino.ca": settings.trino.ca}


def of_catalog(settings: CatalogSettings) -> Files:
    """Those of its port."""
    tls = settings.tls
    return {"catalog.tls.certificate": tls.certificate, "catalog.tls.client_ca": tls.client_ca}
