"""The first answer to a request, kept under its Idempotency-Key in the transaction that made the change.

Iceberg REST specification, header `Idempotency-Key`: the same key gives the same first result; answers 2xx
and 4xx are final, 5xx are not kept, so that a repeated request finds out. One request may hold many
independent items, each kept for itself.
"""

import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import orjson
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from catalog.model.error_response import CatalogError, bad_request, outcome_unknown
from catalog.store.database import Database, idempotency, is_passing

LIFETIME_S = 1_800
LIFETIME_TEXT = "PT30M"
KEY_BYTES_MAX = 200


@dataclass(frozen=True, slots=True)
class RequestKey:
    """An Idempotency-Key, the item of the request it stands for, and what the request said."""

    key: str
    item: int
    fingerprint: bytes


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer ready to send: status and body."""

    status: int
    body: bytes = b""

    @property
    def is_final(self) -> bool:
        """Whether a repetition may be answered with it."""
        return self.status < 500


def fingerprint(*parts: bytes) -> bytes:
    """Sixteen bytes that tell two requests apart."""
    digest = blake2b(digest_size=16)
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.digest()


def check_key(key: str) -> str:
    """A key as the header brings it. Raises CatalogError 400."""
    if not key or len(key.encode()) > KEY_BYTES_MAX or not key.isprintable():
        raise bad_request(
            f"Idempotency-Key must be printable text of 1 to {KEY_BYTES_MAX} bytes; a UUID is usual"
        )
    return key


def find_replies(
    connection: Connection, database: Database, keys: Iterable[RequestKey]
) -> dict[tuple[str, int], Reply]:
    """The kept answers of these keys. Each is checked against the request's fingerprint: another request
    under the same key gets 422."""
    wanted = {(key.key, key.item): key for key in keys}
    if not wanted:
        return {}
    statement = f"SELECT key, item, fingerprint, status, body FROM idempotency WHERE {database.among('key')}"
    rows = connection.execute(text(statement), {"keys": database.many(sorted({key for key, _ in wanted}))})
    found = {}
    for key, item, known, status, body in rows:
        request = wanted.get((key, item))
        if request is not None:
            found[key, item] = (
                Reply(status, zlib.decompress(body))
                if bytes(known) == request.fingerprint
                else _other_request(key)
            )
    return found


def _other_request(key: str) -> Reply:
    message = f"Idempotency-Key {key} was used for a different request; use a new key for each request"
    return refused(CatalogError(422, "UnprocessableEntityException", message))


def keep_replies(connection: Connection, replies: Sequence[tuple[RequestKey, Reply]], now_ms: int) -> None:
    """Keeps final answers, in the transaction of the change they speak of."""
    rows = [
        {
            "key": key.key,
            "item": key.item,
            "fingerprint": key.fingerprint,
            "status": reply.status,
            "body": zlib.compress(reply.body, 1),
            "created_ms": now_ms,
        }
        for key, reply in replies
        if reply.is_final
    ]
    if rows:
        connection.execute(idempotency.insert(), rows)


def forget_old_replies(connection: Connection, now_ms: int) -> int:
    """Drops answers older than their lifetime; returns how many."""
    return connection.execute(
        idempotency.delete().where(idempotency.c.created_ms < now_ms - LIFETIME_S * 1_000)
    ).rowcount


def once(
    database: Database, key: RequestKey | None, now_ms: int, work: Callable[[Connection], Reply]
) -> Reply:
    """Runs a change of the database in one transaction, or answers as the first time.

    Raises CatalogError: nothing was changed, except with status 500, when the database's answer to COMMIT is
    missing.
    """
    reply = None
    try:
        with database.write() as connection:
            reply = _once(connection, database, key, now_ms, work)
    except DBAPIError as error:
        if reply is None or is_passing(error):
            raise
        raise outcome_unknown(
            f"the database did not answer the end of a transaction ({error.orig}); look, or repeat it under "
            "its Idempotency-Key"
        ) from error
    return reply


def _once(
    connection: Connection,
    database: Database,
    key: RequestKey | None,
    now_ms: int,
    work: Callable[[Connection], Reply],
) -> Reply:
    if key is None:
        return work(connection)
    known = find_replies(connection, database, [key]).get((key.key, key.item))
    if known is not None:
        return known
    savepoint = connection.begin_nested()
    try:
        reply = work(connection)
        savepoint.commit()
    except CatalogError as error:
        savepoint.rollback()
        reply = refused(error)
    keep_replies(connection, [(key, reply)], now_ms)
    return reply


def refused(error: CatalogError) -> Reply:
    """The answer to a refused request."""
    return Reply(error.status, orjson.dumps(error.body()))
