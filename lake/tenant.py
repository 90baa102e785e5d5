"""Tenants and streams: names from outside, parsed once, mapped to identifiers that every engine spells the
same way.

A tenant becomes an Iceberg namespace, a stream a table in it. Trino folds identifiers to lower case and file
systems have rules of their own, so a name maps to `[a-z0-9_]` only, injectively and reversibly: lower-case
ASCII letters and digits stand for themselves, `_` becomes `__`, every other UTF-8 byte becomes `_` and two
hexadecimal digits. `Acme` is `_41cme`, `my_app` is `my__app`.
"""

import re
from functools import lru_cache
from typing import NamedTuple

from lake.errors import Reason, Rejected
from lake.short_texts import kept_of_short_texts

NAME_BYTES_MAX = 100
# Trino keeps schemas of its own under these names in every catalog; a tenant called so is escaped at its
# first letter.
RESERVED_IDENTIFIERS = frozenset({"system", "sys", "information_schema"})
# No tenant maps to it ("_s" is no escape), so Firn's own tables can never collide with a tenant's.
SYSTEM_NAMESPACE = "firn_system"

_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789")
_ESCAPED = re.compile(r"__|_([0-9a-f]{2})")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class TenantId(NamedTuple):
    """A tenant's name exactly as it came in; at most 100 bytes of UTF-8 without control characters, never
    folded."""

    name: str

    @property
    def namespace(self) -> str:
        """The identifier of the tenant's namespace, `[a-z0-9_]+`."""
        return to_identifier(self.name)


# Firn's own streams that people search, as who did what. Only topics whose one rule is `const:system` write
# there, and only administrators search it.
SYSTEM_TENANT = TenantId("system")


class TableId(NamedTuple):
    """A stream of a tenant: one Iceberg table."""

    tenant: TenantId
    stream: str

    @property
    def table(self) -> str:
        """The identifier of the table inside the tenant's namespace."""
        return to_identifier(self.stream)

    def __str__(self) -> str:
        return f"{self.tenant.namespace}.{self.table}"


@kept_of_short_texts(65_536)
def parse_tenant(raw: str | bytes) -> TenantId | Rejected:
    """Parses a tenant's name once, at the edge. Never strips, folds or defaults: what cannot be used is
    `Rejected`."""
    name = _parse_name(raw)
    return (
        TenantId(name) if isinstance(name, str) else Rejected(Reason.TENANT_INVALID, f"tenant {name.detail}")
    )


@kept_of_short_texts(65_536)
def parse_stream(raw: str | bytes) -> str | Rejected:
    """Parses a stream's name by the same rules as a tenant's."""
    name = _parse_name(raw)
    return name if isinstance(name, str) else Rejected(Reason.STREAM_INVALID, f"stream {name.detail}")


def _parse_name(raw: str | bytes) -> str | Rejected:
    try:
        encoded = raw if isinstance(raw, bytes) else raw.encode()
        name = encoded.decode()
    except UnicodeError:
        return Rejected(Reason.TENANT_INVALID, "name is not valid UTF-8")
    if not encoded:
        return Rejected(Reason.TENANT_INVALID, "name is empty")
    if len(encoded) > NAME_BYTES_MAX:
        return Rejected(
            Reason.TENANT_INVALID, f"name has {len(encoded)} bytes, at most {NAME_BYTES_MAX} are allowed"
        )
    if _CONTROL.search(name):
        return Rejected(Reason.TENANT_INVALID, "name contains control characters")
    return name


@lru_cache(maxsize=65_536)
def to_identifier(name: str) -> str:
    """Maps a parsed name injectively onto `[a-z0-9_]+`; `from_identifier` is its inverse."""
    parts = [chr(b) if b in _PLAIN else "__" if b == 0x5F else f"_{b:02x}" for b in name.encode()]
    identifier = "".join(parts)
    return f"_{ord(name[0]):02x}{identifier[1:]}" if identifier in RESERVED_IDENTIFIERS else identifier


def from_identifier(identifier: str) -> str | None:
    """The name behind an identifier, or None where no name maps to it (a namespace that is not a
    tenant's)."""
    raw, at = bytearray(), 0
    while at < len(identifier):
        if identifier[at] != "_":
            raw.append(ord(identifier[at]) & 0xFF)
            at += 1
        elif match := _ESCAPED.match(identifier, at):
            raw.append(int(match[1], 16) if match[1] else 0x5F)
            at = match.end()
        else:
            return None
    try:
        name = raw.decode()
    except UnicodeDecodeError:
        return None
    return name if name and to_identifier(name) == identifier else None
