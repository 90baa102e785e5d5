"""What a key may, as one decision: by scope, verbs, namespaces and streams."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.access.access import Principal
from catalog.access.keys import Narrowing, check_narrowing
from catalog.access.locations import is_administrator
from catalog.access.policies import check_table_properties, known_properties
from catalog.access.verbs import OF_ALL, Need, Scope, Verb, verbs_of
from catalog.model.error_response import CatalogError
from catalog.model.identifier import Identifier
from catalog.store.tables import TABLE, VIEW
from lake.holds import PROPERTY as HOLDS_PROPERTY
from lake.holds import Hold, parse_holds, spell_holds
from lake.retention import PROPERTY as RETENTION_PROPERTY
from lake.table_layout import STREAM_PROPERTY, TENANT_PROPERTY
from lake.tenant import to_identifier

# Before keys had verbs: what each scope allowed, by what routes asked for then.
ALLOWED = {
    Need.READ: {*Scope},
    Need.COMMIT: {Scope.ADMIN, Scope.MAINTENANCE, Scope.WRITE},
    Need.WRITE: {Scope.ADMIN, Scope.WRITE},
    Need.ADMINISTER: {Scope.ADMIN, Scope.WRITE},
    Need.SERVICE: {Scope.ADMIN, Scope.MAINTENANCE, Scope.WRITE},
    Need.HOLD: {Scope.ADMIN, Scope.MAINTENANCE, Scope.WRITE},
    Need.ADMIN: {Scope.ADMIN},
    Need.KEYS: {Scope.ADMIN},
}
NAMESPACES = ("acme", "other", "acme\x1fbelow", "acmes")
STREAMS = ("web-1", "web-2", "Web-1", "logs", "wеb-1")
principals = st.builds(
    Principal,
    st.just("k"),
    st.sampled_from(Scope),
    st.none() | st.sampled_from(NAMESPACES),
    st.none(),
    st.lists(st.sampled_from(NAMESPACES), max_size=2).map(tuple),
    st.none()
    | st.lists(st.sampled_from(("web*", "logs", "*-1", "Web-1")), min_size=1, max_size=2).map(tuple),
    st.none() | st.frozensets(st.sampled_from(Verb), min_size=1),
)
needs = st.sampled_from(sorted(ALLOWED))


def refusal(principal: Principal, need: Need, *where: Any, **options: Any) -> CatalogError | None:
    """Why it may not, None where it may."""
    try:
        (principal.require_table if options or len(where) > 1 else principal.require)(need, *where, **options)
    except CatalogError as error:
        return error
    return None


@pytest.mark.parametrize("need", ALLOWED)
@pytest.mark.parametrize("scope", Scope)
@pytest.mark.parametrize("bound", [None, "acme"])
def test_a_key_of_before_has_the_rights_of_before(need: Need, scope: Scope, bound: str | None) -> None:
    """Without verbs and streams: its scope's row; bound, nothing that is of all, and its namespace alone."""
    key = Principal("k", scope, bound)
    allowed = scope in ALLOWED[need] and (bound is None or need not in OF_ALL)
    assert (refusal(key, need, "acme") is None) == allowed
    assert (refusal(key, need, "other") is None) == (allowed and bound is None)
    assert refusal(key, Need.KEY) is None
    table = Identifier("acme", "Any Name")
    for kind in (TABLE, VIEW):
        assert (refusal(key, need, table, kind) is None) == allowed


@given(principals, needs, st.sampled_from(NAMESPACES), st.sampled_from(STREAMS), st.booleans())
def test_what_narrows_a_key_gives_it_nothing(
    key: Principal, need: Need, namespace: str, stream: str, creates: bool
) -> None:
    """Whatever it may, the same key without verbs and streams may, too; and each of them is kept to."""
    table = Identifier(namespace, to_identifier(stream))
    if refusal(key, need, table, TABLE, creates=creates) is not None:
        return
    wide = Principal("k", key.scope, key.namespace, None, key.more_namespaces)
    assert refusal(wide, need, table, TABLE, creates=creates) is None
    assert not key.namespaces or any(f"{namespace}\x1f".startswith(f"{root}\x1f") for root in key.namespaces)
    if key.streams is not None:
        assert key.namespace is None or namespace in key.namespaces
        assert any(
            stream == each or ("*" in each and stream.startswith("web"[: each.index("*")]))
            for each in key.streams
        )
        assert stream != STREAMS[-1] or "*-1" in key.streams
    verbs = {Need.READ: Verb.READ, Need.ADMINISTER: Verb.ADMINISTER, Need.KEYS: Verb.KEYS}
    assert key.verbs is None or verbs.get(need) is None or verbs[need] in key.verbs


@given(principals, needs, st.sampled_from(STREAMS))
def test_a_stream_that_a_key_does_not_reach_is_as_one_that_is_not_there(
    key: Principal, need: Need, stream: str
) -> None:
    """The decision knows nothing of what there is: it says of each name outside the same, and to whoever
    would make something of that name that it may not."""
    table = Identifier("acme", to_identifier(stream))
    if refusal(key, need, "acme") is not None or key.reaches(table):
        return
    for kind, what in ((TABLE, "NoSuchTableException"), (VIEW, "NoSuchViewException")):
        found = refusal(key, need, table, kind)
        assert found is not None
        assert (found.status, found.kind) == (404, what)
    made = refusal(key, need, table, TABLE, creates=True)
    assert made is not None
    assert made.status == 403


def test_a_key_of_streams_knows_no_views_and_nothing_below() -> None:
    """What a view reads cannot be told from its name; what lies below the namespace is no stream of it."""
    key = Principal("k", Scope.WRITE, "acme", streams=("*",))
    assert refusal(key, Need.READ, Identifier("acme", "web"), TABLE) is None
    assert refusal(key, Need.READ, Identifier("acme", "web"), VIEW) is not None
    assert refusal(key, Need.READ, "acme\x1fbelow") is not None
    with pytest.raises(CatalogError, match="about all of acme"):
        key.require_whole(Need.ADMINISTER, "acme")


def test_who_does_not_administer_grants_nothing() -> None:
    """Not even with an administrator's scope."""
    verbs = frozenset({Verb.READ, Verb.WRITE})
    assert is_administrator(Principal("k", Scope.ADMIN))
    assert not is_administrator(Principal("k", Scope.ADMIN, verbs=verbs))
    assert not is_administrator(Principal("k", Scope.WRITE))


def test_what_no_key_can_be_made_of() -> None:
    """Each with a sentence."""
    system = Narrowing(("_73ystem",))
    for scope, narrowing, why in (
        (Scope.ADMIN, Narrowing(("acme",)), "is not bound"),
        (Scope.READ, system, "administrators"),
        (Scope.READ, Narrowing(("acme", *system.namespaces)), "administrators"),
        (Scope.READ, Narrowing((), ("web*",)), "bind the key"),
        (Scope.READ, Narrowing(("acme",), ("a**",)), "at most one"),
        (Scope.READ, Narrowing(("acme",), ()), "at least one"),
        (Scope.READ, Narrowing(("acme",), None, frozenset({Verb.WRITE})), "has the verbs read, not write"),
        (Scope.WRITE, Narrowing(("acme",), None, frozenset({Verb.KEYS})), "not keys"),
        (Scope.WRITE, Narrowing(("acme",), None, frozenset()), "at least one verb"),
        (Scope.READ, Narrowing(tuple(map(str, range(101)))), "at most 100"),
    ):
        with pytest.raises(CatalogError, match=why):
            check_narrowing(scope, narrowing)
    check_narrowing(Scope.ADMIN, Narrowing(verbs=frozenset(Verb)))
    assert verbs_of(Scope.MAINTENANCE) == {Verb.READ, Verb.WRITE, Verb.ADMINISTER}


def test_policies_are_for_those_who_administer() -> None:
    """Who writes rows changes no retention and no name; who knows some streams is told of their holds
    alone."""
    writer = Principal("k", Scope.WRITE, "acme", verbs=frozenset({Verb.READ, Verb.WRITE}))
    some = Principal("k", Scope.WRITE, "acme", streams=("web*",))
    kept = {RETENTION_PROPERTY: "1d", STREAM_PROPERTY: "web-1", TENANT_PROPERTY: "acme"}
    check_table_properties(writer, kept, {**kept, "other": "1"})
    check_table_properties(some, kept, {RETENTION_PROPERTY: "2d", STREAM_PROPERTY: "web-2"})
    check_table_properties(some, {}, kept)
    for by, changes in (
        (writer, {RETENTION_PROPERTY: "2d"}),
        (writer, {RETENTION_PROPERTY: None}),
        (some, {STREAM_PROPERTY: "logs"}),
        (some, {STREAM_PROPERTY: None}),
        (some, {TENANT_PROPERTY: "other"}),
    ):
        with pytest.raises(CatalogError, match="is not for the property"):
            check_table_properties(by, kept, changes)
    holds = [Hold("1", None), Hold("2", "web-1"), Hold("3", "logs")]
    told = known_properties(some, {HOLDS_PROPERTY: spell_holds(holds), "a": "b"})
    assert [hold.id for hold in parse_holds(told[HOLDS_PROPERTY])] == ["1", "2"]
    assert parse_holds(known_properties(some, {HOLDS_PROPERTY: "?"})[HOLDS_PROPERTY])[0].stream is None
    assert known_properties(writer, {HOLDS_PROPERTY: "?"}) == {HOLDS_PROPERTY: "?"}
