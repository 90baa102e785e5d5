"""Whose API keys are whose. An administrator of all tenants has all of them; one of single tenants has those
that reach nothing beyond these, makes no wider ones, and none without an end: keys stay when people go."""

from collections.abc import Sequence

from sqlalchemy import Connection, select

from catalog.access.access import Principal
from catalog.access.key_lifetime import Listed
from catalog.access.keys import namespaces_of, not_in_force
from catalog.access.verbs import Need
from catalog.model.error_response import bad_request, forbidden
from catalog.model.identifier import SEPARATOR
from catalog.store.database import api_keys


def has_all(holder: Principal) -> bool:
    """Whether every key is the holder's to make and to end."""
    return holder.bound_to(Need.KEYS, "") is None


def has(holder: Principal, namespaces: Sequence[str]) -> bool:
    """Whether a key that is bound to these namespaces (none: to nothing) is."""
    if not namespaces:
        return has_all(holder)
    return all(holder.allowed(Need.KEYS, namespace) for namespace in namespaces)


def require_to_make(
    holder: Principal, namespaces: Sequence[str], expires_ms: int | None, now_ms: int, lifetime_s: float
) -> None:
    """Passes where the holder may make a key of these namespaces and this end. `lifetime_s`: the longest of
    one that somebody makes for their own tenants, 0: any. Raises CatalogError 400 or 403."""
    if not namespaces and not has_all(holder):
        raise forbidden(
            f"{holder.title} is no administrator of all tenants, as whom one makes a key that reaches them; "
            "bind the key to a namespace"
        )
    for namespace in namespaces:
        holder.require(Need.KEYS, namespace)
    require_end(holder, expires_ms, now_ms, lifetime_s)


def require_end(holder: Principal, expires_ms: int | None, now_ms: int, lifetime_s: float) -> None:
    """Passes where the holder may give a key this end. Raises CatalogError 400."""
    if has_all(holder) or not lifetime_s:
        return
    if expires_ms is None or expires_ms > now_ms + lifetime_s * 1_000:
        raise bad_request(
            f"a key of single tenants, made by their administrator, expires within "
            f"{lifetime_s / 86_400:g} days; write a time like 90d"
        )


def require_key(connection: Connection, holder: Principal, key_id: str) -> None:
    """Passes where a key is the holder's; of others they are told what they are told of ones that are not
    there. Raises CatalogError 404."""
    if has_all(holder):
        return
    columns = (api_keys.c.namespace, api_keys.c.more_namespaces)
    row = connection.execute(select(*columns).where(api_keys.c.id == key_id)).one_or_none()
    if row is None or not has(holder, namespaces_of(row)):
        raise not_in_force(key_id)


def owned(holder: Principal, listed: Sequence[Listed]) -> list[Listed]:
    """Those of the listed keys that are the holder's."""
    if has_all(holder):
        return list(listed)
    return [key for key in listed if has(holder, [SEPARATOR.join(each) for each in key["namespaces"] or ()])]
