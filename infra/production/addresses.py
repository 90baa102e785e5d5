"""Whether what the rooms call is called by TLS."""

from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from infra.production.finding import Finding, ok, unsafe
from infra.production.rooms import Rooms
from lake.listening import is_loopback

NAME = "addresses"


def look(rooms: Rooms) -> Iterator[Finding]:
    """The addresses in the settings."""
    ingest, optimize, query = rooms.ingest, rooms.optimize, rooms.query
    yield judge(
        {
            "storage.s3.endpoint": rooms.storage.s3.endpoint or "",
            "catalog.audit.uri": rooms.catalog.audit.uri,
            "ingest.catalog.uri": ingest.catalog.uri,
            "ingest.control.uri": ingest.control.uri,
            "ingest.node.uri": ingest.node.uri,
            "ingest.kafka.oauth_token_endpoint": ingest.kafka.oauth_token_endpoint or "",
            **{f"ingest.registry.url, {each}": each for each in ingest.registry.url.split(",")},
            "optimize.catalog.uri": optimize.catalog.uri,
            "optimize.control.uri": optimize.control.uri,
            **{f"optimize.lag.ingest_uris, {each}": each for each in optimize.lag.ingest_uris},
            "query.catalog.uri": query.catalog.uri,
            "query.control.uri": query.control.uri,
            "query.ingest.uri": query.ingest.uri,
            "query.trino.uri": query.trino.uri,
        }
    )


def judge(addresses: Mapping[str, str]) -> Finding:
    """`addresses`: URLs by their settings; empty ones are called by nobody."""
    plain = [name for name, address in addresses.items() if _is_open(address)]
    if plain:
        return unsafe(
            NAME,
            f"keys, tokens and rows cross the network in the open: {', '.join(plain)}; give https://",
            "addresses, of a service with TLS or of a proxy in front of it",
        )
    return ok(NAME, "every address is https, or on this machine")


def _is_open(address: str) -> bool:
    parts = urlsplit(address)
    return parts.scheme == "http" and not is_loopback(parts.hostname or "")
