"""Who the demo's tenants are, in the order of their sizes, and which logs each of them ships."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from infra.demo.draws import Draws
from infra.demo.generators.access_combined import AccessCombined
from infra.demo.generators.application import Application
from infra.demo.generators.audit import Audit
from infra.demo.generators.kubernetes import Kubernetes
from infra.demo.generators.nginx_json import NginxJson
from infra.demo.generators.syslog_5424 import Syslog5424
from infra.demo.record import STREAM_DEFAULT


class EventShape(Protocol):
    """A shape of JSON records."""

    def event(self, at_ms: int) -> dict[str, object]:
        """One event that happened at `at_ms` (milliseconds since the epoch); the caller owns the
        dictionary."""


class LineShape(Protocol):
    """A shape of text records."""

    def line(self, at_ms: int) -> str:
        """One line about something that happened at `at_ms` (milliseconds since the epoch), without a newline
        at its end."""


EVENT_SHAPES: dict[str, Callable[[Draws, str], EventShape]] = {
    "nginx_json": NginxJson,
    "audit": Audit,
    "application": Application,
    "kubernetes": Kubernetes,
}
LINE_SHAPES: dict[str, Callable[[Draws, str], LineShape]] = {
    "access_combined": AccessCombined,
    "syslog_5424": Syslog5424,
}


@dataclass(frozen=True, slots=True)
class Source:
    """One kind of log of a tenant: its shape, the stream it goes to, and its part of the tenant's records."""

    shape: str
    stream: str
    weight: float


@dataclass(frozen=True, slots=True)
class Profile:
    """A tenant. Text lines always name it in the header; JSON records do so in the header or in the field
    `tenant`."""

    tenant: str
    site: str
    json_tenant_in: Literal["header", "field"]
    sources: tuple[Source, ...]


# The names are chosen to matter: two that differ by case alone, one with letters beyond ASCII, one with the
# escape character itself, one that Trino keeps for itself, one without a single letter of `[a-z0-9_]`.
PROFILES = (
    Profile(
        "acme-shop",
        "acme-shop.example",
        "header",
        (Source("nginx_json", "access", 0.7), Source("application", STREAM_DEFAULT, 0.3)),
    ),
    Profile(
        "umbrella.health",
        "umbrella.example",
        "header",
        (Source("audit", "audit", 0.6), Source("kubernetes", STREAM_DEFAULT, 0.4)),
    ),
    Profile(
        "münchen.example",
        "münchen.example",
        "header",
        (Source("access_combined", "access", 0.5), Source("syslog_5424", "syslog", 0.5)),
    ),
    Profile(
        "globex",
        "globex.example",
        "field",
        (Source("kubernetes", STREAM_DEFAULT, 0.6), Source("application", STREAM_DEFAULT, 0.4)),
    ),
    Profile("Acme-Shop", "acme-eu.example", "field", (Source("nginx_json", "access", 1.0),)),
    Profile("initech_core", "initech.example", "header", (Source("syslog_5424", STREAM_DEFAULT, 1.0),)),
    Profile(
        "sys",
        "hooli.example",
        "field",
        (Source("application", STREAM_DEFAULT, 0.6), Source("audit", "audit", 0.4)),
    ),
    Profile(
        "北京物流",
        "beijing.example",
        "field",
        (Source("nginx_json", STREAM_DEFAULT, 0.5), Source("access_combined", "access", 0.5)),
    ),
)
# Exponent of the tenants' sizes: the largest of the eight makes about 38 % of the records, the smallest 4 %.
TENANT_ZIPF_EXPONENT = 1.1
