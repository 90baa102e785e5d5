"""How Kafka's brokers are reached, as options of its client. The client itself lives in `ingest` and
`infra`."""

from typing import Any

from lake.settings import IngestSettings, TlsSettings
from lake.settings.kafka import OF_CLIENT


def connection(settings: IngestSettings) -> dict[str, Any]:
    """The brokers, and by which certificates, keys and passwords they are reached; of secrets in files what
    the files hold now."""
    kafka = settings.kafka
    named = {OF_CLIENT[name][0]: kafka.value(name) for name in OF_CLIENT if getattr(kafka, name)}
    options = {name: value.get_secret_value() for name, value in kafka.options.items()}
    return {
        **_trusted(settings),
        **({"sasl.oauthbearer.method": "oidc"} if kafka.oauth_token_endpoint else {}),
        **named,
        **options,
        "bootstrap.servers": kafka.bootstrap_servers,
        "log_level": 2,
    }


def _trusted(settings: IngestSettings) -> dict[str, str]:
    """The CAs by which the brokers are trusted, and where tokens come from, unless the options name them."""
    kafka = settings.kafka
    given = kafka.ssl_ca or TlsSettings.load().ca
    if not given:
        return {}
    by_tls = kafka.value("security_protocol").upper().endswith("SSL") and not kafka.has("ssl_ca")
    return {
        **({OF_CLIENT["ssl_ca"][0]: given} if by_tls else {}),
        **({"https.ca.location": given} if kafka.oauth_token_endpoint else {}),
    }
