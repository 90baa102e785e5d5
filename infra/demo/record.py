"""One record of the demo, together with what is expected of it."""

from dataclasses import dataclass
from typing import Literal

JSON_TOPIC = "demo.json"
TEXT_TOPIC = "demo.text"
ORDERS_TOPIC = "demo.orders"

TENANT_HEADER = "tenant"
STREAM_HEADER = "stream"
TENANT_FIELD = "tenant"
STREAM_DEFAULT = "logs"
# Whose orders change: a tenant with logs, too.
ORDERS_TENANT, ORDERS_STREAM = "acme-shop", "orders"

# What a record that names no usable tenant is counted under. A tenant could be called so, but none of the
# demo's is.
NO_TENANT = "(no tenant)"
# The kind of a record without any fault; the other kinds are those of `bad_records`.
GOOD = "good"

Expected = Literal["row", "dead_letter"]
Headers = tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class DemoRecord:
    """One Kafka message and the verdict it must get.

    `tenant` is the tenant a router can find (header `tenant`, else on the JSON topic the field `tenant`), or
    None. A record expected in the dead-letter topic names its tenant in the header or not at all, so that
    dead letters can be counted by tenant without decoding what could not be decoded. `errors_expected` says
    that the row carries entries in `_errors`.
    """

    topic: str
    key: bytes | None
    value: bytes
    headers: Headers
    timestamp_ms: int
    tenant: str | None
    expected: Expected
    errors_expected: bool
    kind: str = GOOD


@dataclass(frozen=True, slots=True)
class ChangeRecord:
    """One Kafka message about a row that changed. It becomes no row of its own, so it is no part of the logs'
    sums."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int
