"""The schema registry, asked by Confluent's own client, which keeps what it was told.

An unknown schema is remembered for a while, so that messages that name it cost no request each. A registry
that does not answer, or refuses, is an outage.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from ingest.model.trouble import RegistryUnavailableError
from lake.errors import SettingsError
from lake.settings import RegistrySettings, TlsSettings

_NOT_FOUND = 404


class UnknownSchemaError(Exception):
    """The registry does not know a schema."""


def make_client(settings: RegistrySettings) -> SchemaRegistryClient:
    """Makes Confluent's client. Raises SettingsError where it does not take the settings."""
    try:
        return SchemaRegistryClient(_options(settings, TlsSettings.load()))
    except (OSError, ValueError) as error:
        raise SettingsError(
            f"the schema registry cannot be asked by these settings: {error}; look at `registry` of ingest, "
            "and at FIRN_TLS_CA, FIRN_TLS_CERTIFICATE and FIRN_TLS_KEY"
        ) from error


def _options(settings: RegistrySettings, tls: TlsSettings) -> dict[str, Any]:
    """The settings of the client. It tries once: who waits for an outage is the caller."""
    options: dict[str, Any] = {
        "url": settings.url,
        "timeout": settings.timeout_s,
        "max.retries": 0,
        "cache.capacity": settings.schemas_max,
    }
    files = {
        "ssl.ca.location": settings.ca or tls.ca,
        "ssl.certificate.location": tls.certificate,
        "ssl.key.location": tls.key,
    }
    options |= {name: path for name, path in files.items() if path}
    if settings.user:
        password = settings.password.get_secret_value() if settings.password is not None else ""
        options["basic.auth.user.info"] = f"{settings.user}:{password}"
    return options


def referenced_schemas(client: SchemaRegistryClient, schema: Schema) -> list[Schema]:
    """The schemas that a schema names, and those that they name, innermost first."""
    found: list[Schema] = []
    for reference in schema.references or ():
        other = client.get_version(reference.subject, reference.version).schema
        found += [*referenced_schemas(client, other), other]
    return found


@contextmanager
def registry_errors(url: str) -> Iterator[None]:
    """Raises UnknownSchemaError, or RegistryUnavailableError for whatever else the client says of it."""
    try:
        yield
    except SchemaRegistryError as error:
        if error.http_status_code == _NOT_FOUND:
            raise UnknownSchemaError(str(error)) from error
        raise RegistryUnavailableError(
            f"the schema registry at {url} answered {error.http_status_code} ({error.error_message}); look "
            "at the settings `registry` of ingest, and at its own logs"
        ) from error
    except httpx2.HTTPError as error:
        raise RegistryUnavailableError(
            f"the schema registry at {url} does not answer ({error}); it is asked again"
        ) from error
