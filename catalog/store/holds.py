"""Legal holds (`lake/holds.py`) as namespaces have them: set and lifted one at a time, so that two who do it
at once lose nothing, and asked wherever something would be taken away that one holds."""

import secrets

import orjson
from sqlalchemy import Connection, text

from catalog.model.error_response import CatalogError, bad_request, forbidden, held
from catalog.model.identifier import Identifier, dotted
from catalog.store import namespaces
from catalog.store.database import Database
from lake.holds import PROPERTY, Hold, TableHolds, parse_holds, spell_holds
from lake.limits import PREFIX as LIMITS
from lake.limits import is_limit
from lake.retention import PROPERTY as RETENTION

HOLDS_MAX = 200
REASON_MAX = 1_000
LIFT = "whoever may lift holds lifts it first"


def check_not_held(connection: Connection, database: Database, identifier: Identifier, act: str) -> None:
    """Raises CatalogError 403 where a hold is about this table, `act` being what is not done then. None is
    set until the transaction ends."""
    holds = holds_of(connection, identifier, locking=database.locking())
    if holds.holds:
        raise held(f"{identifier} {act}: {holds.holds[0]} is on it; {LIFT}")


def holds_of(connection: Connection, identifier: Identifier, *, locking: str = "") -> TableHolds:
    """Those about a table; they stay as they are until the transaction ends where `locking` says so."""
    try:
        properties = namespaces.load_properties(connection, identifier.namespace, locking=locking)
    except CatalogError:  # no namespace: one with holds is not dropped
        return TableHolds()
    return TableHolds.of(identifier.name, properties)


def check_kept(
    connection: Connection, database: Database, source: Identifier, destination: Identifier
) -> None:
    """A table that is held keeps its names, or gets one under which it is held as before. Raises CatalogError
    403."""
    held_as = holds_of(connection, source, locking=database.locking()).holds
    if source.namespace != destination.namespace or any(hold.stream is not None for hold in held_as):
        check_not_held(connection, database, source, f"is not renamed to {destination}")


def new_id() -> str:
    """What the next hold is called."""
    return secrets.token_hex(4)


def set_hold(connection: Connection, database: Database, path: str, hold: Hold) -> None:
    """Puts a hold on a namespace. Raises CatalogError 404, or 400 where it would hold nothing or says too
    much."""
    if hold.start is not None and hold.end is not None and hold.end <= hold.start:
        raise bad_request("the hold ends before it begins; swap 'from' and 'until'")
    if not 0 < len(hold.reason) <= REASON_MAX:
        raise bad_request(f"a hold has a reason of at most {REASON_MAX} characters; name the case")
    known = _known(connection, database, path)
    if len(known) >= HOLDS_MAX:
        raise bad_request(f"{dotted(path)} has {len(known)} holds; lift some, or set one for all streams")
    _write(connection, database, path, [*known, hold])


def lift_hold(connection: Connection, database: Database, path: str, hold_id: str) -> Hold:
    """Takes a hold away, and returns it. Raises CatalogError 404."""
    known = _known(connection, database, path)
    lifted = next((hold for hold in known if hold.id == hold_id), None)
    if lifted is None:
        raise CatalogError(
            404, "NoSuchHoldException", f"{dotted(path)} has no legal hold {hold_id!r:.80}; list the holds"
        )
    _write(connection, database, path, [hold for hold in known if hold is not lifted])
    return lifted


def _known(connection: Connection, database: Database, path: str) -> tuple[Hold, ...]:
    properties = namespaces.load_properties(connection, path, locking=database.locking())
    return parse_holds(properties.get(PROPERTY))


def _write(connection: Connection, database: Database, path: str, holds: list[Hold]) -> None:
    updates = {PROPERTY: spell_holds(holds)} if holds else {}
    namespaces.update_properties(
        connection, path, [] if holds else [PROPERTY], updates, locking=database.locking()
    )


def policies(
    connection: Connection, after: str, limit: int, *, limits_alone: bool = False
) -> list[tuple[str, dict[str, str]]]:
    """Namespaces that say anything of retention, legal holds or limits, by their paths, each with these
    properties; the first from the one after `after` on. `limits_alone`: no others than of limits."""
    wanted = {"limits": f'%"{LIMITS}%'}
    if not limits_alone:
        wanted |= {"retention": f'%"{RETENTION}"%', "holds": f'%"{PROPERTY}"%'}
    said = " OR ".join(f"properties LIKE :{name}" for name in wanted)
    found = connection.execute(
        text(
            f"SELECT path, properties FROM namespaces WHERE path > :after AND ({said}) ORDER BY path LIMIT "
            ":limit"
        ),
        {"after": after, "limit": limit, **wanted},
    )
    is_told = is_limit if limits_alone else _is_policy
    return [
        (path, {name: said for name, said in orjson.loads(told).items() if is_told(name)})
        for path, told in found
    ]


def _is_policy(name: str) -> bool:
    return name in (RETENTION, PROPERTY) or is_limit(name)


def check_droppable(connection: Connection, database: Database, path: str, *, may_limit: bool) -> None:
    """A namespace with holds stays: tables that were dropped out of it would lose them. One with limits stays
    unless the caller may change these (`may_limit`): made anew it would be without them. Raises CatalogError
    403, 404."""
    properties = namespaces.load_properties(connection, path, locking=database.locking())
    if known := parse_holds(properties.get(PROPERTY)):
        raise held(f"{dotted(path)} is not dropped: {known[0]} is on it; {LIFT}")
    if not may_limit and any(map(is_limit, properties)):
        raise forbidden(
            f"{dotted(path)} is not dropped: it has limits, which only a key that is bound to no namespace, "
            "or an administrator, takes away"
        )
