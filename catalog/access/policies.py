"""Properties that say how a tenant's rows are kept and called: which of them keys know and change that reach
some streams alone, or were not made to administer."""

from collections.abc import Mapping

from catalog.access.access import Principal
from catalog.access.verbs import Verb
from catalog.model.error_response import forbidden
from lake.holds import PROPERTY as HOLDS_PROPERTY
from lake.holds import parse_holds, spell_holds
from lake.retention import PROPERTY as RETENTION_PROPERTY
from lake.retention import SET_BY_PROPERTY
from lake.stream_pattern import reaches
from lake.table_layout import DECLARED_TYPES_PROPERTY, STREAM_PROPERTY, TENANT_PROPERTY

# Of tables: who writes rows leaves them as they are.
ADMINISTERED = frozenset({RETENTION_PROPERTY, SET_BY_PROPERTY, DECLARED_TYPES_PROPERTY})


def known_properties(by: Principal, properties: Mapping[str, str]) -> Mapping[str, str]:
    """A namespace's properties as a key may know them: a legal hold on a stream tells that it is there."""
    if by.streams is None or HOLDS_PROPERTY not in properties:
        return properties
    holds = parse_holds(properties[HOLDS_PROPERTY])
    known = [hold for hold in holds if hold.stream is None or reaches(by.streams, hold.stream)]
    return {**properties, HOLDS_PROPERTY: spell_holds(known)}


def check_table_properties(
    by: Principal, before: Mapping[str, str], changes: Mapping[str, str | None]
) -> None:
    """What a commit makes of a table's properties; None: it removes them. Raises CatalogError 403 where the
    key was not made to administer, or would call the table otherwise than it reaches it."""
    if by.verbs is None and by.streams is None:  # most keys, at each commit
        return
    changed = {name: value for name, value in changes.items() if before.get(name) != value}
    refused = set[str]() if by.may(Verb.ADMINISTER) else ADMINISTERED & changed.keys()
    if by.streams is not None:
        stream = changed.get(STREAM_PROPERTY)
        if STREAM_PROPERTY in changed and (stream is None or not reaches(by.streams, stream)):
            refused |= {STREAM_PROPERTY}
        if TENANT_PROPERTY in changed and TENANT_PROPERTY in before:
            refused |= {TENANT_PROPERTY}
    for name in sorted(refused):
        raise forbidden(f"{by.title} is not for the property {name} of a table; leave it out")
