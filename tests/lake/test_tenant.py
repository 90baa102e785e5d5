"""Names of tenants and streams, and the identifiers they become."""

import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lake.errors import Reason, Rejected
from lake.tenant import (
    NAME_BYTES_MAX,
    RESERVED_IDENTIFIERS,
    SYSTEM_NAMESPACE,
    TableId,
    TenantId,
    from_identifier,
    parse_stream,
    parse_tenant,
    to_identifier,
)

NAMES = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=40).filter(
    lambda name: isinstance(parse_tenant(name), TenantId)
)
# Names built to collide: everything the escapes are made of.
TRICKY = st.text("_0123456789abcdefABCDEF.-é", min_size=1, max_size=12)


@given(st.one_of(NAMES, TRICKY))
def test_identifier_has_only_lower_case_letters_digits_and_underscores_and_leads_back(name: str) -> None:
    """Every name maps onto `[a-z0-9_]+` and can be read back from there."""
    identifier = to_identifier(name)
    assert re.fullmatch(r"[a-z0-9_]+", identifier)
    assert from_identifier(identifier) == name
    assert identifier not in RESERVED_IDENTIFIERS
    assert identifier != SYSTEM_NAMESPACE


@given(st.one_of(NAMES, TRICKY), st.one_of(NAMES, TRICKY))
def test_two_names_never_share_an_identifier(one: str, other: str) -> None:
    """The mapping is injective, also where Trino folds case."""
    assert (to_identifier(one).lower() == to_identifier(other).lower()) == (one == other)


@given(st.text(string.ascii_lowercase + string.digits + "_", min_size=1, max_size=12))
def test_identifier_of_no_tenant_is_told_apart(identifier: str) -> None:
    """An identifier either leads to the one name that maps to it, or to none."""
    name = from_identifier(identifier)
    assert name is None or to_identifier(name) == identifier


@pytest.mark.parametrize(
    ("name", "identifier"),
    [
        ("acme", "acme"),
        ("Acme", "_41cme"),
        ("my_app", "my__app"),
        ("a-b.c", "a_2db_2ec"),
        ("é", "_c3_a9"),
        ("system", "_73ystem"),
        ("sys", "_73ys"),
        ("information_schema", "information__schema"),
    ],
)
def test_names_map_as_documented(name: str, identifier: str) -> None:
    """Plain letters and digits stand for themselves, `_` is doubled, the rest is hexadecimal, Trino's own
    schemas are escaped."""
    assert to_identifier(name) == identifier


def test_system_namespace_belongs_to_no_tenant() -> None:
    """Firn's own tables lie where no tenant's can."""
    assert from_identifier(SYSTEM_NAMESPACE) is None


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        "",
        b"\xff",
        "a\nb",
        "a\x00",
        "\x85",
        "\u2028",
        "x" * (NAME_BYTES_MAX + 1),
        "é" * (NAME_BYTES_MAX // 2 + 1),
        "\ud800",
    ],
)
def test_name_that_cannot_be_used_is_rejected(raw: str | bytes) -> None:
    """Nothing is stripped, folded or defaulted: the name is refused as a value, with a reason of its kind."""
    tenant, stream = parse_tenant(raw), parse_stream(raw)
    assert isinstance(tenant, Rejected)
    assert isinstance(stream, Rejected)
    assert (tenant.reason, stream.reason) == (Reason.TENANT_INVALID, Reason.STREAM_INVALID)


@pytest.mark.parametrize(
    "raw",
    [" ", "x" * NAME_BYTES_MAX, "é" * (NAME_BYTES_MAX // 2), " padded ", "../..", "a b", "%00", "'; DROP"],
)
def test_name_is_taken_as_it_is(raw: str) -> None:
    """Odd names are names: they are kept exactly, from text and from bytes alike."""
    assert parse_tenant(raw) == parse_tenant(raw.encode()) == TenantId(raw)


def test_table_is_spelled_as_namespace_and_name() -> None:
    """A stream of a tenant is one table."""
    assert str(TableId(TenantId("Acme"), "Web_1")) == "_41cme._57eb__1"
