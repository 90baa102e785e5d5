"""API keys as the database has them: made, listed, rotated, revoked. What each may is decided in access.py.

A rotation gives the same key another secret: id, bounds, scope and note stay, so that limits, audit trail and
whoever is told its id know it as the one it was. The former secret stays in force until the overlap is over.
There is one former secret at most: the next rotation ends it at once.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from sqlalchemy import Connection, text

from catalog.access.access import digest
from catalog.access.verbs import Scope, Verb, verbs_of
from catalog.model.error_response import CatalogError, bad_request
from catalog.model.identifier import SEPARATOR, dotted, levels
from catalog.store.database import Database, access_tokens, api_keys
from lake.stream_pattern import problem_of
from lake.tenant import SYSTEM_TENANT

NAMESPACES_MAX = 100


@dataclass(frozen=True, slots=True)
class Narrowing:
    """To what a key is narrowed besides its scope: its namespaces (none: all), patterns of the streams in
    them, verbs; None for all."""

    namespaces: tuple[str, ...] = ()
    streams: tuple[str, ...] | None = None
    verbs: frozenset[Verb] | None = None


def check_narrowing(scope: Scope, narrowing: Narrowing) -> None:
    """Raises CatalogError 400 where no key can be made so."""
    if narrowing.namespaces and scope not in (Scope.READ, Scope.WRITE):
        raise bad_request(
            f"a key with scope {scope} is not bound to a namespace; bind read or write keys only"
        )
    if SYSTEM_TENANT.namespace in narrowing.namespaces:
        raise bad_request("what Firn keeps of who did what is for administrators, whose keys are not bound")
    if len(narrowing.namespaces) > NAMESPACES_MAX:
        raise bad_request(f"a key is bound to at most {NAMESPACES_MAX} namespaces")
    if narrowing.streams is not None:
        if not narrowing.namespaces:
            raise bad_request("streams are a tenant's; bind the key to a namespace, too")
        if (problem := problem_of(narrowing.streams)) is not None:
            raise bad_request(problem)
    if narrowing.verbs is not None:
        if not narrowing.verbs:
            raise bad_request("name at least one verb, or leave the verbs out")
        if more := narrowing.verbs - verbs_of(scope):
            raise bad_request(
                f"a key with scope {scope} has the verbs {', '.join(sorted(verbs_of(scope)))}, not "
                f"{', '.join(sorted(more))}"
            )


def create_key(
    connection: Connection,
    scope: Scope,
    namespace: str | None,
    note: str,
    now_ms: int,
    expires_ms: int | None = None,
    *,
    narrowing: Narrowing | None = None,
) -> str:
    """Makes a key and returns it; nobody can read it again. `namespace`: the one it is bound to, where
    `narrowing` does not say it. Raises CatalogError 400."""
    narrowing = narrowing or Narrowing(() if namespace is None else (namespace,))
    check_narrowing(scope, narrowing)
    first, *more = dict.fromkeys(narrowing.namespaces) or (None,)
    key_id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    row = {
        "id": key_id,
        "hash": digest(secret),
        "scope": scope.value,
        "namespace": first,
        "more_namespaces": _json(more) if more else None,
        "streams": None if narrowing.streams is None else _json(narrowing.streams),
        "verbs": None if narrowing.verbs is None else _json(sorted(narrowing.verbs)),
        "note": note,
        "created_ms": now_ms,
        "expires_ms": expires_ms,
    }
    connection.execute(api_keys.insert(), row)
    return f"firn_{key_id}_{secret}"


def rotate_key(
    connection: Connection,
    key_id: str,
    now_ms: int,
    overlap_ms: int,
    new_end: tuple[int | None] | None = None,
) -> str:
    """Gives a key another secret and returns it whole; nobody can read it again. The one before, and tokens
    bought with it, end after `overlap_ms`, one before that now. `new_end`: the key's, (None,) for never;
    None: as it was. Raises CatalogError 404."""
    secret, until_ms = secrets.token_urlsafe(32), now_ms + overlap_ms
    values = {
        "hash": digest(secret),
        "former_hash": api_keys.c.hash,
        "former_until_ms": until_ms,
        "rotated_ms": now_ms,
        **({} if new_end is None else {"expires_ms": new_end[0]}),
    }
    in_force = (
        (api_keys.c.id == key_id)
        & api_keys.c.revoked_ms.is_(None)
        & (api_keys.c.expires_ms.is_(None) | (api_keys.c.expires_ms > now_ms))
    )
    if not connection.execute(api_keys.update().where(in_force).values(values)).rowcount:
        raise not_in_force(key_id)
    of_key = access_tokens.c.key_id == key_id
    connection.execute(
        access_tokens.delete().where(of_key).where(access_tokens.c.secret_until_ms.is_not(None))
    )
    connection.execute(access_tokens.update().where(of_key).values(secret_until_ms=until_ms))
    return f"firn_{key_id}_{secret}"


def revoke_key(connection: Connection, key_id: str, now_ms: int) -> None:
    """Ends a key, both of its secrets, and the tokens bought with it. Raises CatalogError 404."""
    done = connection.execute(
        api_keys.update()
        .where(api_keys.c.id == key_id)
        .where(api_keys.c.revoked_ms.is_(None))
        .values(revoked_ms=now_ms)
    ).rowcount
    if not done:
        raise not_in_force(key_id)
    connection.execute(access_tokens.delete().where(access_tokens.c.key_id == key_id))


def not_in_force(key_id: str) -> CatalogError:
    """404: nobody has such a key."""
    return CatalogError(
        404, "NoSuchKeyException", f"no key {key_id} is in force; list the keys to see their ids"
    )


def list_keys(connection: Connection) -> list[dict[str, Any]]:
    """Every key without its secrets. Times are ms since 1970; `namespaces`, `streams`, `verbs` null: all;
    `last-used-ms` null: never, as far as it is noted (key_uses.py)."""
    rows = connection.execute(api_keys.select().order_by(api_keys.c.created_ms, api_keys.c.id))
    return [_listed(row) for row in rows]


def _listed(row: Any) -> dict[str, Any]:
    namespaces = namespaces_of(row)
    return {
        "id": row.id,
        "scope": row.scope,
        "namespace": None if row.namespace is None else levels(row.namespace),
        "namespaces": [levels(each) for each in namespaces] or None,
        "streams": None if row.streams is None else _list(row.streams),
        "verbs": None if row.verbs is None else _list(row.verbs),
        "note": row.note,
        "created-ms": row.created_ms,
        "revoked-ms": row.revoked_ms,
        "expires-ms": row.expires_ms,
        "last-used-ms": row.last_used_ms,
        "rotated-ms": row.rotated_ms,
        "former-secret-until-ms": row.former_until_ms,
    }


def namespaces_of(row: Any) -> tuple[str, ...]:
    """To which the key of a row is bound; none: to nothing."""
    return () if row.namespace is None else (row.namespace, *_list(row.more_namespaces))


def note_uses(connection: Connection, database: Database, uses: Sequence[tuple[str, int]]) -> None:
    """Writes when keys were last used, (id, ms since 1970) each, in one statement."""
    each = (
        "SELECT json_extract(value, '$[0]') AS id, json_extract(value, '$[1]') AS at FROM json_each(:uses)"
        if database.is_sqlite
        else "SELECT value ->> 0 AS id, CAST(value ->> 1 AS BIGINT) AS at FROM "
        "json_array_elements(CAST(:uses AS json)) AS used(value)"
    )
    statement = (
        f"UPDATE api_keys SET last_used_ms = uses.at FROM ({each}) AS uses WHERE api_keys.id = uses.id AND "
        "(last_used_ms IS NULL OR last_used_ms < uses.at)"
    )
    connection.execute(text(statement), {"uses": _json(uses)})


def bound_to(key: Mapping[str, Any]) -> str:
    """The namespaces of a listed key, as people write them."""
    return ", ".join(dotted(SEPARATOR.join(each)) for each in key["namespaces"] or ())


def _json(values: Sequence[Any]) -> str:
    return orjson.dumps(list(values)).decode()


def _list(value: str | None) -> list[str]:
    return [] if value is None else list(orjson.loads(value))
