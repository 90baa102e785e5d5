"""Leases with fencing tokens, on the database's clock.

Whoever holds a lease got a token that is larger than every one before. Work done under it carries the token;
when the lease has passed to another or run out, the token is stale and the work is refused, however late a
paused holder wakes up.
"""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, text

from catalog.model.error_response import CatalogError, bad_request
from catalog.store.database import Database, database_ms

TTL_MS_MIN = 1_000
TTL_MS_MAX = 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class LeaseToken:
    """A lease's name and the token its holder got."""

    name: str
    token: int

    def __str__(self) -> str:
        return f"{self.name}:{self.token}"


def parse_lease(header: str | None) -> LeaseToken | None:
    """`X-Firn-Lease: name:token`. Raises CatalogError 400."""
    if header is None:
        return None
    name, _, number = header.rpartition(":")
    if not name or not (number.isascii() and number.isdigit() and len(number) < 19):
        raise bad_request("X-Firn-Lease must be the lease's name, a colon and the token that acquire gave")
    return LeaseToken(name, int(number))


def acquire(
    connection: Connection, database: Database, name: str, holder: str, ttl_ms: int
) -> dict[str, Any]:
    """Takes a free or expired lease, or one's own again; the token is always a new one. Raises CatalogError
    409 while another holds it.

    Tokens follow the clock, so that they go on rising when the database is lost or goes back to an old dump.
    """
    _check_ttl(ttl_ms)
    now_ms = database_ms(connection)
    insert = (
        "INSERT INTO leases (name, token, holder, expires_ms) VALUES (:name, 0, '', 0) ON CONFLICT "
        "(name) DO NOTHING"
    )
    connection.execute(text(insert), {"name": name})
    token, current, expires_ms = connection.execute(
        text(f"SELECT token, holder, expires_ms FROM leases WHERE name = :name{database.locking()}"),
        {"name": name},
    ).one()
    if expires_ms > now_ms and current != holder:
        raise CatalogError(
            409,
            "LeaseHeldException",
            f"lease {name} is held by {current} for {expires_ms - now_ms} ms more; try again then",
        )
    token = max(token + 1, now_ms)
    values = {"name": name, "token": token, "holder": holder, "expires": now_ms + ttl_ms}
    connection.execute(
        text("UPDATE leases SET token = :token, holder = :holder, expires_ms = :expires WHERE name = :name"),
        values,
    )
    return {"name": name, "token": token, "holder": holder, "expires-ms": now_ms + ttl_ms, "ttl-ms": ttl_ms}


def renew(connection: Connection, database: Database, lease: LeaseToken, ttl_ms: int) -> dict[str, Any]:
    """Holds on to a lease that has not run out. Raises CatalogError 403 where the token is stale."""
    _check_ttl(ttl_ms)
    check_lease(connection, database, lease, lock=True)
    expires_ms = database_ms(connection) + ttl_ms
    connection.execute(
        text("UPDATE leases SET expires_ms = :expires WHERE name = :name"),
        {"expires": expires_ms, "name": lease.name},
    )
    return {"name": lease.name, "token": lease.token, "expires-ms": expires_ms, "ttl-ms": ttl_ms}


def release(connection: Connection, database: Database, lease: LeaseToken) -> None:
    """Lets a lease go. Raises CatalogError 403 where the token is stale."""
    check_lease(connection, database, lease, lock=True)
    connection.execute(text("UPDATE leases SET expires_ms = 0 WHERE name = :name"), {"name": lease.name})


def check_lease(connection: Connection, database: Database, lease: LeaseToken, *, lock: bool = True) -> None:
    """Passes while the token is the newest and the lease runs; it stays so until the transaction ends. Raises
    CatalogError 403."""
    locking = database.locking() if lock else ""
    row = connection.execute(
        text(f"SELECT token, holder, expires_ms FROM leases WHERE name = :name{locking}"),
        {"name": lease.name},
    ).one_or_none()
    if row is None or row[0] != lease.token:
        newest = "no such lease" if row is None else f"the newest is {row[0]}, held by {row[1]}"
        raise stale(lease, newest)
    if row[2] <= database_ms(connection):
        raise stale(lease, "it ran out")


def stale(lease: LeaseToken, why: str) -> CatalogError:
    """403 for a token that is not in force."""
    return CatalogError(
        403,
        "StaleLeaseException",
        f"lease {lease} is not in force: {why}; acquire it again and plan the work anew",
    )


def list_leases(connection: Connection) -> list[dict[str, Any]]:
    """Every lease, running or not."""
    now_ms = database_ms(connection)
    rows = connection.execute(text("SELECT name, token, holder, expires_ms FROM leases ORDER BY name"))
    return [
        {"name": r[0], "token": r[1], "holder": r[2], "expires-ms": r[3], "in-force": r[3] > now_ms}
        for r in rows
    ]


def _check_ttl(ttl_ms: int) -> None:
    if not TTL_MS_MIN <= ttl_ms <= TTL_MS_MAX:
        raise bad_request(f"ttl-ms must lie between {TTL_MS_MIN} and {TTL_MS_MAX}")
