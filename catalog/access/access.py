"""Who may do what: API keys stored as hashes, tokens bought with them, and what each reaches. People, who
come with a token of the issuer, have roles (roles.py).

A key is `firn_<id>_<secret>`; the secret has 256 random bits, so one round of SHA-256 is all the hashing it
needs. What a key may is its scope's, narrowed by its verbs (verbs.py). A key bound to namespaces sees these
and what is below them, in listings too; one of some streams sees no other tables of its namespaces, and is
told of others what it is told of ones that are not there. A key may have an end, and the tokens bought with
it have it too. A key that was rotated has two secrets until the former one ends (keys.py).
"""

import hashlib
import hmac
import secrets
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Any

import orjson
from sqlalchemy import Connection, select, text

from catalog.access.verbs import OF_ALL, Need, Scope, Verb, scope_allows, verbs_allow
from catalog.model.error_response import CatalogError, forbidden
from catalog.model.identifier import SEPARATOR, Identifier, dotted
from catalog.store.database import access_tokens, api_keys
from catalog.store.tables import TABLE, missing
from lake.clock import SYSTEM_CLOCK, Clock
from lake.stream_pattern import reaches_table
from lake.tenant import SYSTEM_TENANT

TOKEN_LIFETIME_S = 3_600
CACHE_LIFETIME_S = 5.0  # how long a revoked key may still be taken by a process that has just seen it
CACHE_MAX = 10_000
_SYSTEM = SYSTEM_TENANT.namespace


@dataclass(frozen=True, slots=True)
class Principal:
    """The holder of a key: its scope, the namespace it is bound to (None: all), and when the key expires
    (None: never).

    `more_namespaces`: to which it is bound besides; `streams`: the patterns of those it reaches in its
    namespaces, `verbs`: what it may of its scope, None for all. `by_former_secret`: it showed the one that a
    rotation replaced, which ends at `expires_ms`.
    """

    key_id: str
    scope: Scope
    namespace: str | None = None
    expires_ms: int | None = None
    more_namespaces: tuple[str, ...] = ()
    streams: tuple[str, ...] | None = None
    verbs: frozenset[Verb] | None = None
    by_former_secret: bool = False

    @property
    def namespaces(self) -> tuple[str, ...]:
        """All that it is bound to; none: it is not bound."""
        return () if self.namespace is None else (self.namespace, *self.more_namespaces)

    @property
    def title(self) -> str:
        """What messages call the holder."""
        return f"key {self.key_id}"

    @property
    def reached(self) -> tuple[str, ...] | None:
        """The namespaces that the holder sees, with what is below them; None: all."""
        return self.namespaces or None

    @property
    def is_everywhere(self) -> bool:
        """Whether it makes no difference to the holder's rights in which namespace something is."""
        return self.namespace is None

    def bound_to(self, need: Need, namespace: str) -> str | None:  # noqa: ARG002 - a person's roles differ
        """The namespace beyond which the holder may not do it, as far as it may do it in `namespace`; None:
        it may everywhere."""
        return None if self.namespace is None else self.root_of(namespace) or self.namespace

    def at(self, namespace: str) -> "Principal":  # noqa: ARG002
        """The holder with the rights that it has in one namespace."""
        return self

    def allowed(self, need: Need, namespace: str | None = None) -> bool:
        """Whether `require` lets it pass."""
        try:
            self.require(need, namespace)
        except CatalogError:
            return False
        return True

    def has_expired(self, now_ms: int) -> bool:
        """Whether the key's time is over."""
        return self.expires_ms is not None and self.expires_ms <= now_ms

    def root_of(self, namespace: str) -> str | None:
        """The namespace it is bound to in which another one is; None where it reaches it not by that."""
        if namespace == self.namespace:  # nearly always, and each commit of a batch asks
            return namespace
        if self.streams is not None:  # of namespaces themselves; nothing below is a stream of theirs
            return namespace if namespace in self.namespaces else None
        return next((root for root in self.namespaces if is_within(namespace, root)), None)

    def reaches(self, table: Identifier) -> bool:
        """Whether it knows of a table, provided that it reaches the namespace."""
        return reaches_table(self.streams, table.name)

    def may(self, verb: Verb) -> bool:
        """Whether it may do something, as far as its verbs tell."""
        return self.verbs is None or verb in self.verbs

    def require(self, need: Need, namespace: str | None = None) -> None:
        """Passes when the key allows it there. Raises CatalogError 403."""
        if not scope_allows(self.scope, need):
            raise forbidden(
                f"key {self.key_id} has scope {self.scope}, which does not allow {need}; use a key with "
                "another scope"
            )
        if not verbs_allow(self.verbs, need):
            raise forbidden(
                f"key {self.key_id} was made for {', '.join(sorted(self.verbs or ()))} alone, which "
                f"does not allow {need}; use another key"
            )
        if self.namespace is None:
            return
        if self.namespace == _SYSTEM or _SYSTEM in self.more_namespaces:
            raise forbidden(f"key {self.key_id} is bound to what only administrators see; revoke it")
        if need in OF_ALL:
            raise forbidden(f"{self._bound}; this needs a key that is not bound")
        if namespace is not None and self.root_of(namespace) is None:
            raise forbidden(f"{self._bound}; it does not reach {dotted(namespace)}")

    def require_table(
        self, need: Need, table: Identifier, kind: str = TABLE, *, creates: bool = False
    ) -> None:
        """The same for a table or view; one that the key does not reach is missing, whether or not it is
        there. `creates`: something is to be of that name. Raises CatalogError 403 or 404."""
        self.require(need, table.namespace)
        if self.streams is None or (kind == TABLE and self.reaches(table)):
            return
        if creates:
            raise forbidden(f"key {self.key_id} {self._some_streams}; {table} is none of them")
        raise missing(table, kind)

    def require_whole(self, need: Need, namespace: str) -> None:
        """The same for what is about all streams of a namespace. Raises CatalogError 403."""
        self.require(need, namespace)
        if self.streams is not None:
            raise forbidden(
                f"key {self.key_id} {self._some_streams}; this is about all of {dotted(namespace)}: use a "
                "key that reaches it whole"
            )

    @property
    def _bound(self) -> str:
        return f"key {self.key_id} is bound to namespace {', '.join(map(dotted, self.namespaces))}"

    @property
    def _some_streams(self) -> str:
        return f"reaches the streams {', '.join(self.streams or ())} alone"


EVERYBODY = Principal("anonymous", Scope.ADMIN)


def is_within(namespace: str, root: str) -> bool:
    """Whether a namespace is another one or below it."""
    return namespace == root or namespace.startswith(root + SEPARATOR)


def digest(secret: str) -> bytes:
    """What the database keeps of a secret."""
    return hashlib.sha256(secret.encode()).digest()


def any_key(connection: Connection, now_ms: int) -> bool:
    """Whether anybody could get in with a key."""
    statement = text(
        "SELECT 1 FROM api_keys WHERE revoked_ms IS NULL AND (expires_ms IS NULL OR expires_ms > :now) LIMIT "
        "1"
    )
    return connection.execute(statement, {"now": now_ms}).scalar() is not None


def find_by_credentials(connection: Connection, key_id: str, secret: str) -> Principal | None:
    """The principal of an id and secret, None where they do not fit. Its key or secret may have expired: who
    has it is told so."""
    row = connection.execute(
        select(*_HOLDER, api_keys.c.hash, api_keys.c.former_hash, api_keys.c.former_until_ms)
        .where(api_keys.c.id == key_id)
        .where(api_keys.c.revoked_ms.is_(None))
    ).one_or_none()
    if row is None:
        return None
    shown = digest(secret)
    if hmac.compare_digest(bytes(row.hash), shown):
        return _principal(row)
    if row.former_hash is not None and hmac.compare_digest(bytes(row.former_hash), shown):
        return _until(_principal(row), row.former_until_ms)
    return None


def find_by_bearer(connection: Connection, bearer: str, now_ms: int) -> Principal | None:
    """The principal of a key or token as it comes in the Authorization header. See `find_by_credentials`."""
    if bearer.startswith("firn_"):
        key_id, _, secret = bearer.removeprefix("firn_").partition("_")
        return find_by_credentials(connection, key_id, secret)
    row = connection.execute(
        select(*_HOLDER, access_tokens.c.secret_until_ms)
        .join(access_tokens, access_tokens.c.key_id == api_keys.c.id)
        .where(access_tokens.c.hash == digest(bearer))
        .where(access_tokens.c.expires_ms > now_ms)
        .where(api_keys.c.revoked_ms.is_(None))
    ).one_or_none()
    return None if row is None else _until(_principal(row), row.secret_until_ms)


_HOLDER = (
    api_keys.c.id,
    api_keys.c.scope,
    api_keys.c.namespace,
    api_keys.c.expires_ms,
    api_keys.c.more_namespaces,
    api_keys.c.streams,
    api_keys.c.verbs,
)


def _principal(row: Any) -> Principal:
    """The principal of a row that begins with the columns of `_HOLDER`."""
    key_id, scope, namespace, expires_ms, more, streams, verbs = row[: len(_HOLDER)]
    return Principal(
        key_id,
        Scope(scope),
        namespace,
        expires_ms,
        () if more is None else tuple(orjson.loads(more)),
        None if streams is None else tuple(orjson.loads(streams)),
        None if verbs is None else frozenset(map(Verb, orjson.loads(verbs))),
    )


def _until(principal: Principal, secret_until_ms: int | None) -> Principal:
    """The holder of a secret that ends at some time, None: with the key."""
    if secret_until_ms is None or (
        principal.expires_ms is not None and principal.expires_ms <= secret_until_ms
    ):
        return principal
    return replace(principal, expires_ms=secret_until_ms, by_former_secret=True)


def issue_token(connection: Connection, principal: Principal, now_ms: int) -> str:
    """A token that stands for the key for an hour. One that was bought with a former secret, or with another
    such token, ends with it."""
    token = f"firntoken_{secrets.token_urlsafe(32)}"
    row = {
        "hash": digest(token),
        "key_id": principal.key_id,
        "expires_ms": now_ms + TOKEN_LIFETIME_S * 1_000,
        "secret_until_ms": principal.expires_ms if principal.by_former_secret else None,
    }
    connection.execute(access_tokens.insert(), row)
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
