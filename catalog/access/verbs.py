"""What a route asks for, and what a key allows: its scope, and the verbs to which its maker narrowed it.

    scope         read   write   administer   keys   work lists
    admin          x       x         x          x        x
    maintenance    x    commits    holds                  x
    write          x       x         x                only when not bound
    read           x

`write`: commit rows, make streams. `administer`: retention, declared types, holds, limits, renaming,
dropping, undo. A key without verbs has all of its scope. People have roles instead (roles.py).
"""

from collections.abc import Collection
from enum import StrEnum


class Scope(StrEnum):
    """What a key is for."""

    ADMIN = "admin"
    MAINTENANCE = "maintenance"
    WRITE = "write"
    READ = "read"


class Verb(StrEnum):
    """What a key may do within its scope."""

    READ = "read"
    WRITE = "write"
    ADMINISTER = "administer"
    KEYS = "keys"


class Need(StrEnum):
    """What a route asks for. `KEY`: a key in force, whatever it may."""

    NOTHING = "nothing"
    KEY = "key"
    READ = "read"
    COMMIT = "commit"
    WRITE = "write"
    ADMINISTER = "administer"
    SERVICE = "service"
    HOLD = "hold"
    LIMIT = "limit"
    ADMIN = "admin"
    KEYS = "keys"


_WORK = frozenset({Scope.ADMIN, Scope.MAINTENANCE, Scope.WRITE})
_CHANGE = frozenset({Scope.ADMIN, Scope.WRITE})
_ADMIN = frozenset({Scope.ADMIN})
_ALLOWED: dict[Need, tuple[frozenset[Scope], Verb | None]] = {
    Need.NOTHING: (frozenset(Scope), None),
    Need.KEY: (frozenset(Scope), None),
    Need.READ: (frozenset(Scope), Verb.READ),
    Need.COMMIT: (_WORK, Verb.WRITE),
    Need.WRITE: (_CHANGE, Verb.WRITE),
    Need.ADMINISTER: (_CHANGE, Verb.ADMINISTER),
    Need.SERVICE: (_WORK, Verb.WRITE),
    Need.HOLD: (_WORK, Verb.ADMINISTER),
    Need.LIMIT: (_WORK, Verb.ADMINISTER),
    Need.ADMIN: (_ADMIN, Verb.ADMINISTER),
    Need.KEYS: (_ADMIN, Verb.KEYS),
}
# What no key may that is bound to a namespace: it is of everybody's.
OF_ALL = frozenset({Need.SERVICE, Need.HOLD, Need.LIMIT, Need.ADMIN, Need.KEYS})


def scope_allows(scope: Scope, need: Need) -> bool:
    """Whether keys of a scope may do what is needed, where nothing narrows them."""
    return scope in _ALLOWED[need][0]


def verbs_allow(verbs: Collection[Verb] | None, need: Need) -> bool:
    """Whether a key of these verbs may; None: of all."""
    verb = _ALLOWED[need][1]
    return verbs is None or verb is None or verb in verbs


def verbs_of(scope: Scope) -> frozenset[Verb]:
    """The verbs that a key of a scope has where nothing narrows it."""
    return frozenset(verb for scopes, verb in _ALLOWED.values() if verb is not None and scope in scopes)
