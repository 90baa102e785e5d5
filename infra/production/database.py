"""Where the catalog keeps what it knows."""

from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

from infra.production.finding import Finding, ok, unsafe, warning
from infra.production.rooms import Rooms
from lake.listening import is_loopback

NAME = "database"
CHECKED, UNCHECKED = ("verify-full", "verify-ca"), ("require",)


def look(rooms: Rooms) -> Iterator[Finding]:
    """The URL in the settings."""
    yield judge(rooms.catalog.database_url.get_secret_value())


def judge(url: str) -> Finding:
    """`url`: SQLAlchemy's, of which nothing is told but the host."""
    parts = urlsplit(url)
    if parts.scheme.startswith("sqlite"):
        return warning(
            NAME,
            "SQLite serves one catalog on one machine; back its file up, or use PostgreSQL for two of them",
        )
    host, mode = parts.hostname or "", parse_qs(parts.query).get("sslmode", [""])[-1]
    if not host or is_loopback(host) or mode in CHECKED:
        return ok(NAME, "PostgreSQL, on this machine or by TLS with a certificate that is checked")
    if mode in UNCHECKED:
        return warning(
            NAME,
            f"PostgreSQL on {host} may be anybody's: sslmode is {mode}; set sslmode=verify-full and",
            "sslrootcert",
        )
    return unsafe(
        NAME,
        f"PostgreSQL on {host} may be spoken to in the open; put sslmode=verify-full and",
        "sslrootcert into the URL",
    )
