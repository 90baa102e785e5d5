"""What people may do: four roles, each for single tenants or for all, each with the rights of those before.

    need       least role      of
    read       reader          a tenant    search, read and list tables
    commit     writer          a tenant    add rows; whoever commits to a table can change what is in it
    write      writer          a tenant    make tables, and the tenant's namespace
    key        reader          a tenant    be told who one is
    administer operator        a tenant    retention, types, deleting and bringing back, erasing, dead letters
    hold       operator        a tenant    set and lift legal holds
    service    operator        all         leases, tasks, deletions, parked records, lists of all tenants
    limit      administrator   all         what a tenant may use
    admin      administrator   all         purging at once, registering, who did what
    keys       administrator   a tenant    its API keys; all others', of all (key_owners.py)

What a route of the catalog needs stands at the route (`needs=`); the search API asks the catalog whether a
caller may (`GET /firn/v1/permission`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from catalog.access.access import Principal, is_within
from catalog.access.key_lifetime import day
from catalog.access.verbs import Need, Scope, Verb
from catalog.model.error_response import forbidden
from catalog.model.identifier import SEPARATOR, dotted
from lake.tenant import SYSTEM_TENANT

NOWHERE = f"nowhere{SEPARATOR}nobody"  # a namespace of two levels is no tenant's


class Role(StrEnum):
    """What a person is, the more the later."""

    READER = "reader"
    WRITER = "writer"
    OPERATOR = "operator"
    ADMINISTRATOR = "administrator"


RANK: Mapping[Role, int] = {role: rank for rank, role in enumerate(Role)}
# (the least role, whether it has to be for all tenants)
LEAST: Mapping[Need, tuple[Role, bool]] = {
    Need.NOTHING: (Role.READER, False),
    Need.KEY: (Role.READER, False),
    Need.READ: (Role.READER, False),
    Need.COMMIT: (Role.WRITER, False),
    Need.WRITE: (Role.WRITER, False),
    Need.ADMINISTER: (Role.OPERATOR, False),
    Need.HOLD: (Role.OPERATOR, False),
    Need.SERVICE: (Role.OPERATOR, True),
    Need.LIMIT: (Role.ADMINISTRATOR, True),
    Need.ADMIN: (Role.ADMINISTRATOR, True),
    Need.KEYS: (Role.ADMINISTRATOR, False),
}


NEED_OF: Mapping[Verb, Need] = {
    Verb.READ: Need.READ,
    Verb.WRITE: Need.COMMIT,
    Verb.ADMINISTER: Need.ADMINISTER,
    Verb.KEYS: Need.KEYS,
}


@dataclass(frozen=True, slots=True)
class Grant:
    """A role in one namespace and what is below it, or in all (None)."""

    role: Role
    namespace: str | None = None

    def allows(self, need: Need) -> bool:
        """Whether it is enough for that, in some namespace."""
        least, for_all = LEAST[need]
        return RANK[self.role] >= RANK[least] and (self.namespace is None or not for_all)

    def __str__(self) -> str:
        return self.role.value if self.namespace is None else f"{self.role.value}:{dotted(self.namespace)}"


def verbs_of_roles(grants: Iterable[Grant]) -> frozenset[Verb]:
    """The verbs of which one of the roles allows something."""
    known = tuple(grants)
    return frozenset(verb for verb, need in NEED_OF.items() if any(each.allows(need) for each in known))


@dataclass(frozen=True, slots=True)
class Person(Principal):
    """The holder of an issuer's token. `key_id`: issuer and subject, which name the person for ever; `name`:
    what the person is called, which may change. What a key has of its own (`scope`, `namespace`) reaches
    nothing here."""

    scope: Scope = Scope.READ
    namespace: str | None = NOWHERE
    name: str = ""
    issuer: str = ""
    grants: tuple[Grant, ...] = ()

    @property
    def title(self) -> str:
        """What messages call them."""
        return self.name or self.key_id

    @property
    def reached(self) -> tuple[str, ...] | None:
        """The namespaces that the person sees, with what is below them; None: all."""
        reached = [grant.namespace for grant in self.grants]
        return None if None in reached else tuple(sorted({each for each in reached if each is not None}))

    @property
    def is_everywhere(self) -> bool:
        """Whether it makes no difference to the person's rights in which namespace something is."""
        return any(grant.allows(Need.ADMIN) for grant in self.grants)

    @property
    def namespaces(self) -> tuple[str, ...]:
        """All that the person is bound to; none: to none."""
        return self.reached or ()

    def root_of(self, namespace: str) -> str | None:
        """The namespace that the person is bound to in which another one is."""
        return next((root for root in self.namespaces if is_within(namespace, root)), None)

    def at(self, namespace: str) -> "Person":
        """The person with the roles that they have in one namespace, and the verbs that these stand for."""
        there = tuple(
            grant for grant in self.grants if grant.namespace is None or is_within(namespace, grant.namespace)
        )
        return replace(self, grants=there, verbs=verbs_of_roles(there))

    def told_expired(self) -> str:
        """What the person is told whose token's time is over."""
        return f"the session of {self.title} expired on {day(self.expires_ms or 0)}; log in again"

    def bound_to(self, need: Need, namespace: str) -> str | None:
        """The namespace beyond which the person may not do it, as far as they may do it in `namespace`; None:
        they may everywhere."""
        fitting = [grant.namespace for grant in self.grants if grant.allows(need)]
        if None in fitting:
            return None
        return next((own for own in fitting if own is not None and is_within(namespace, own)), NOWHERE)

    def require(self, need: Need, namespace: str | None = None) -> None:
        """Passes when one of the roles allows it there. Raises CatalogError 403."""
        least, for_all = LEAST[need]
        fitting = [grant for grant in self.grants if grant.allows(need)]
        if not fitting:
            has = ", ".join(map(str, self.grants)) or "no role"
            needed = f"{least.value}{' of all tenants' if for_all else ''}"
            raise forbidden(f"this needs the role {needed}; {self.title} has {has}")
        if namespace is None:
            return
        if is_within(namespace, SYSTEM_TENANT.namespace) and not self.is_everywhere:
            raise forbidden("what Firn keeps of who did what is for administrators of all tenants")
        if not any(grant.namespace is None or is_within(namespace, grant.namespace) for grant in fitting):
            raise forbidden(
                f"this needs the role {least.value} of {dotted(namespace)}, which {self.title} has not"
            )
