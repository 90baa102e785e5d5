"""All checks, one after the other."""

from collections.abc import Callable, Iterable, Iterator
from types import ModuleType

import httpx
from confluent_kafka import KafkaException

from infra.production import (
    addresses,
    callers,
    certificates,
    clocks,
    database,
    kafka_brokers,
    kafka_rights,
    kafka_topics,
    kafka_transport,
    kafka_writers,
    key_expiry,
    people,
    retention,
    secret_values,
    storage,
    trino,
    versions,
)
from infra.production.finding import Finding, unknown
from infra.production.rooms import Rooms
from lake.errors import FirnError

CHECKS: tuple[ModuleType, ...] = (
    addresses,
    callers,
    key_expiry,
    people,
    secret_values,
    certificates,
    database,
    storage,
    retention,
    kafka_transport,
    kafka_brokers,
    kafka_topics,
    kafka_rights,
    kafka_writers,
    trino,
    clocks,
    versions,
)


def examine(rooms: Rooms) -> list[Finding]:
    """Looks at everything; changes nothing but one object in S3, which goes again."""
    return [finding for check in CHECKS for finding in _told(check.NAME, check.look, rooms)]


def _told(name: str, look: Callable[[Rooms], Iterable[Finding]], rooms: Rooms) -> Iterator[Finding]:
    """A world that does not answer leaves the rest of its check unknown, and no other."""
    try:
        yield from look(rooms)
    except (FirnError, KafkaException, httpx.HTTPError, OSError, ValueError, KeyError) as error:
        yield unknown(name, f"it could not be looked at: {_said(error)}; mend that and ask again")


def _said(error: Exception) -> str:
    if isinstance(error, KafkaException):
        return str(error.args[0].str())
    return str(error) or type(error).__name__
