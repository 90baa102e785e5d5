"""Whether certificates stay in force: those that Firn shows, and those that it is shown."""

import socket
import ssl
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

from infra.production.finding import Finding, ok, unknown, unsafe, warning
from infra.production.rooms import Rooms
from lake.certificates import end_of, ends_of_pem
from lake.clock import SYSTEM_CLOCK

NAME = "certificates"
ANSWER_S = 10.0
SOON = timedelta(days=14)
HTTPS_PORT = 443
Place = tuple[str, int]


def look(rooms: Rooms) -> Iterator[Finding]:
    """Reads the files in the settings, and asks each service that is called by TLS for what it shows."""
    now = SYSTEM_CLOCK.now()
    for setting, path in _own(rooms).items():
        yield judge(f"the certificate of {setting}", min(ends_of_pem(Path(path).read_text())), now)
    for host, port in sorted(_places(rooms)):
        try:
            shown = _shown(host, port)
        except OSError as error:
            yield unknown(NAME, f"{host}:{port} shows no certificate: {error}; mend that and ask again")
        else:
            yield judge(f"the certificate of {host}:{port}", end_of(shown), now)


def judge(what: str, end: datetime, now: datetime) -> Finding:
    """`end`: the last moment at which it counts."""
    if end <= now:
        return unsafe(NAME, f"{what} has expired on {end:%Y-%m-%d}: nothing is reached; put a new one there")
    if end <= now + SOON:
        return warning(NAME, f"{what} expires on {end:%Y-%m-%d %H:%M} UTC; put a new one there before")
    return ok(NAME, f"{what} is in force until {end:%Y-%m-%d}")


def _own(rooms: Rooms) -> dict[str, str]:
    named = {
        "catalog.tls.certificate": rooms.catalog.tls.certificate,
        "ingest.kafka.ssl_certificate": rooms.ingest.kafka.ssl_certificate,
        "tls.certificate": rooms.tls.certificate,
    }
    return {setting: str(path) for setting, path in named.items() if path}


def _places(rooms: Rooms) -> set[Place]:
    """Hosts and ports that are called by TLS: services in the settings, and brokers."""
    kafka = rooms.ingest.kafka
    addresses = (
        rooms.ingest.catalog.uri,
        rooms.query.trino.uri,
        rooms.query.ingest.uri,
        rooms.storage.s3.endpoint or "",
        kafka.oauth_token_endpoint or "",
    )
    parts = [urlsplit(address) for address in addresses]
    places = {(part.hostname or "", part.port or HTTPS_PORT) for part in parts if part.scheme == "https"}
    if kafka.value("security_protocol").upper().endswith("SSL"):
        brokers = [broker.strip().rpartition(":") for broker in kafka.bootstrap_servers.split(",")]
        places |= {(host, int(port)) for host, _, port in brokers}
    return places


def _shown(host: str, port: int) -> bytes:
    """What a service shows to anybody: whether it is trusted is not asked here, lest an end be missed."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection((host, port), timeout=ANSWER_S) as plain,
        context.wrap_socket(plain, server_hostname=host) as secured,
    ):
        return secured.getpeercert(binary_form=True) or b""
