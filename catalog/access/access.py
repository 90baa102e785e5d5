"""Who may do what: API keys stored as hashes, tokens bought with them, and four scopes.

A key is `firn_<id>_<secret>`; the secret has 256 random bits, so one round of SHA-256 is all the hashing it
needs. A key bound to a namespace sees that namespace and what is below it, in listings too. A key may have an
end, and the tokens bought with it have it too.

    scope         read   commit   create, drop, rename   leases, tasks, deletions   keys
    admin          x       x               x                        x                x
    maintenance    x       x                                        x
    write          x       x               x                 only when not bound
    read           x
"""

import hashlib
import hmac
import secrets
from collections import OrderedDict
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, text

from catalog.model.error_response import CatalogError, bad_request, forbidden
from catalog.model.identifier import SEPARATOR, dotted
from catalog.store.database import access_tokens, api_keys
from lake.clock import SYSTEM_CLOCK, Clock
from lake.tenant import SYSTEM_TENANT

TOKEN_LIFETIME_S = 3_600
CACHE_LIFETIME_S = 5.0  # how long a revoked key may still be taken by a process that has just seen it
CACHE_MAX = 10_000


class Scope(StrEnum):
    """What a key is for."""

    ADMIN = "admin"
    MAINTENANCE = "maintenance"
    WRITE = "write"
    READ = "read"


class Need(StrEnum):
    """What a route asks for."""

    NOTHING = "nothing"
    READ = "read"
    COMMIT = "commit"
    WRITE = "write"
    SERVICE = "service"
    ADMIN = "admin"


_ALLOWED: dict[Need, frozenset[Scope]] = {
    Need.NOTHING: frozenset(Scope),
    Need.READ: frozenset(Scope),
    Need.COMMIT: frozenset({Scope.ADMIN, Scope.MAINTENANCE, Scope.WRITE}),
    Need.WRITE: frozenset({Scope.ADMIN, Scope.WRITE}),
    Need.SERVICE: frozenset({Scope.ADMIN, Scope.MAINTENANCE, Scope.WRITE}),
    Need.ADMIN: frozenset({Scope.ADMIN}),
}


@dataclass(frozen=True, slots=True)
class Principal:
    """The holder of a key: its scope, the namespace it is bound to (None: all), and when the key expires
    (None: never)."""

    key_id: str
    scope: Scope
    namespace: str | None = None
    expires_ms: int | None = None

    def has_expired(self, now_ms: int) -> bool:
        """Whether the key's time is over."""
        return self.expires_ms is not None and self.expires_ms <= now_ms

    def require(self, need: Need, namespace: str | None = None) -> None:
        """Passes when the key allows it there. Raises CatalogError 403."""
        if self.scope not in _ALLOWED[need]:
            raise forbidden(
                f"key {self.key_id} has scope {self.scope}, which does not allow {need}; use a key with "
                "another scope"
            )
        if self.namespace is None:
            return
        if self.namespace == SYSTEM_TENANT.namespace:
            raise forbidden(f"key {self.key_id} is bound to what only administrators see; revoke it")
        if need in (Need.SERVICE, Need.ADMIN):
            raise forbidden(
                f"key {self.key_id} is bound to namespace {dotted(self.namespace)}; this needs a key that is "
                "not bound"
            )
        if namespace is not None and not is_within(namespace, self.namespace):
            raise forbidden(
                f"key {self.key_id} is bound to namespace {dotted(self.namespace)}; it does not reach "
                f"{dotted(namespace)}"
            )


EVERYBODY = Principal("anonymous", Scope.ADMIN)


def is_within(namespace: str, root: str) -> bool:
    """Whether a namespace is another one or below it."""
    return namespace == root or namespace.startswith(root + SEPARATOR)


def digest(secret: str) -> bytes:
    """What the database keeps of a secret."""
    return hashlib.sha256(secret.encode()).digest()


def create_key(
    connection: Connection,
    scope: Scope,
    namespace: str | None,
    note: str,
    now_ms: int,
    expires_ms: int | None = None,
) -> str:
    """Makes a key and returns it; nobody can read it again. Raises CatalogError 400."""
    if namespace is not None and scope not in (Scope.READ, Scope.WRITE):
        raise bad_request(
            f"a key with scope {scope} is not bound to a namespace; bind read or write keys only"
        )
    if namespace == SYSTEM_TENANT.namespace:
        raise bad_request("what Firn keeps of who did what is for administrators, whose keys are not bound")
    key_id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    row = {"id": key_id, "hash": digest(secret), "scope": scope.value, "namespace": namespace, "note": note}
    connection.execute(
        api_keys.insert(), {**row, "created_ms": now_ms, "revoked_ms": None, "expires_ms": expires_ms}
    )
    return f"firn_{key_id}_{secret}"


def list_keys(connection: Connection) -> list[dict[str, Any]]:
    """Every key without its secret."""
    rows = connection.execute(
        text(
            "SELECT id, scope, namespace, note, created_ms, revoked_ms, expires_ms FROM api_keys ORDER BY "
            "created_ms, id"
        )
    )
    return [
        {
            "id": key_id,
            "scope": scope,
            "namespace": None if namespace is None else namespace.split(SEPARATOR),
            "note": note,
            "created-ms": created_ms,
            "revoked-ms": revoked_ms,
            "expires-ms": expires_ms,
        }
        for key_id, scope, namespace, note, created_ms, revoked_ms, expires_ms in rows
    ]


def revoke_key(connection: Connection, key_id: str, now_ms: int) -> None:
    """Ends a key and the tokens bought with it. Raises CatalogError 404."""
    done = connection.execute(
        api_keys.update()
        .where(api_keys.c.id == key_id)
        .where(api_keys.c.revoked_ms.is_(None))
        .values(revoked_ms=now_ms)
    ).rowcount
    if not done:
        raise CatalogError(
            404, "NoSuchKeyException", f"no key {key_id} is in force; list the keys to see their ids"
        )
    connection.execute(access_tokens.delete().where(access_tokens.c.key_id == key_id))


def any_key(connection: Connection, now_ms: int) -> bool:
    """Whether anybody could get in with a key."""
    statement = text(
        "SELECT 1 FROM api_keys WHERE revoked_ms IS NULL AND (expires_ms IS NULL OR expires_ms > :now) LIMIT "
        "1"
    )
    return connection.execute(statement, {"now": now_ms}).scalar() is not None


def find_by_credentials(connection: Connection, key_id: str, secret: str) -> Principal | None:
    """The principal of an id and secret, None where they do not fit. Its key may have expired: who has the
    secret is told so."""
    statement = text(
        "SELECT hash, scope, namespace, expires_ms FROM api_keys WHERE id = :id AND revoked_ms IS NULL"
    )
    row = connection.execute(statement, {"id": key_id}).one_or_none()
    if row is None or not hmac.compare_digest(bytes(row[0]), digest(secret)):
        return None
    return Principal(key_id, Scope(row[1]), row[2], row[3])


def find_by_bearer(connection: Connection, bearer: str, now_ms: int) -> Principal | None:
    """The principal of a key or token as it comes in the Authorization header. See `find_by_credentials`."""
    if bearer.startswith("firn_"):
        key_id, _, secret = bearer.removeprefix("firn_").partition("_")
        return find_by_credentials(connection, key_id, secret)
    statement = (
        "SELECT k.id, k.scope, k.namespace, k.expires_ms FROM access_tokens t JOIN api_keys k ON k.id = "
        "t.key_id "
        "WHERE t.hash = :hash AND t.expires_ms > :now AND k.revoked_ms IS NULL"
    )
    row = connection.execute(text(statement), {"hash": digest(bearer), "now": now_ms}).one_or_none()
    return None if row is None else Principal(row[0], Scope(row[1]), row[2], row[3])


def issue_token(connection: Connection, principal: Principal, now_ms: int) -> str:
    """A token that stands for the key for an hour."""
    token = f"firntoken_{secrets.token_urlsafe(32)}"
    connection.execute(
        access_tokens.insert(),
        {"hash": digest(token), "key_id": principal.key_id, "expires_ms": now_ms + TOKEN_LIFETIME_S * 1_000},
    )
    return token


def forget_old_tokens(connection: Connection, now_ms: int) -> None:
    """Drops tokens that have expired."""
    connection.execute(access_tokens.delete().where(access_tokens.c.expires_ms < now_ms))


class PrincipalCache:
    """Principals by the hash of what was sent, for a few seconds; unknown ones too, so that guessing costs
    nobody a query each."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._known: OrderedDict[bytes, tuple[Principal | None, float]] = OrderedDict()

    def get(self, bearer: str) -> tuple[bool, Principal | None]:
        """(whether it is known, whose it is)."""
        entry = self._known.get(digest(bearer))
        if entry is None or entry[1] < self._clock.monotonic_s():
            return False, None
        return True, entry[0]

    def put(self, bearer: str, principal: Principal | None) -> None:
        """Remembers whose it is."""
        self._known[digest(bearer)] = (principal, self._clock.monotonic_s() + CACHE_LIFETIME_S)
        if len(self._known) > CACHE_MAX:
            self._known.popitem(last=False)
