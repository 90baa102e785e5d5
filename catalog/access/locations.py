"""Where tables may lie and which files a commit may name: those of the table itself, or what an administrator
granted.

| who asks | location of a new table | files that a commit names |
|---|---|---|
| a key bound to a namespace | the catalog's choice, or a folder of its namespace alone | below the table's
location, or a prefix granted to the table; manifests are read first (commit_inspection.py) |
| any other key | below the warehouse or allowed_locations | the same, unread |
| an administrator's | the same; moves tables | also below allowed_locations; grants prefixes |

What is granted stands in the table property `firn.file-locations`, where every reader finds it.
"""

import os
import re
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any

import orjson

from catalog.access.access import Principal
from catalog.access.verbs import Need
from catalog.model import metrics
from catalog.model.error_response import bad_request, forbidden
from catalog.model.identifier import SEPARATOR
from lake.errors import ForeignFileError
from lake.holds import PROPERTY as HOLDS_PROPERTY
from lake.limits import is_limit
from lake.storage import canonical
from lake.table_location import GRANTS_PROPERTY, PATH_PROPERTIES, TableLocation, is_plain_path, parse_grants

Json = dict[str, Any]
# The folders of tables whose location the catalog or ingestion chose begin with two digits of their uuid; the
# journal of names has its own.
_TAKEN_FOLDER = re.compile(r"[0-9a-f]{2}|_firn.*", re.IGNORECASE)


def is_administrator(by: Principal) -> bool:
    """Whether somebody may grant what others may not have."""
    return by.allowed(Need.ADMIN)


@lru_cache(maxsize=4_096)
def table_location_of(location: object, granted: str | None, more: tuple[str, ...] = ()) -> TableLocation:
    """The place of a table; `more`: canonical prefixes besides. Raises CatalogError 403."""
    try:
        table_location = TableLocation.at(location, granted)
    except ForeignFileError as error:
        raise forbidden(str(error)) from error
    return TableLocation((*table_location.prefixes, *more)) if more else table_location


def check_file(table_location: TableLocation, what: str, uri: object) -> None:
    """Raises CatalogError 403 where a file is not the table's, and counts it."""
    try:
        table_location.check(uri)
    except ForeignFileError as error:
        metrics.foreign_files.labels(what).inc()
        raise forbidden(f"{what}: {error}") from error


def check_paths(table_location: TableLocation, properties: Mapping[str, str]) -> None:
    """Raises CatalogError 403 where a property makes writers put files elsewhere."""
    for key in PATH_PROPERTIES:
        path = properties.get(key)
        if path:
            check_file(table_location, key, f"{path.rstrip('/')}/-")


def check_grants(text: str) -> str:
    """What a property grants, as it came. Raises CatalogError 400 where no reader would take it."""
    try:
        for prefix in parse_grants(text):
            TableLocation.at(prefix)
    except ForeignFileError as error:
        raise bad_request(str(error)) from error
    return text


def granting(properties: Mapping[str, str], location: str) -> dict[str, str]:
    """The property that grants one location more."""
    known = parse_grants(properties.get(GRANTS_PROPERTY))
    return {GRANTS_PROPERTY: orjson.dumps([*known, *({f"{location}/"} - set(known))]).decode()}


def check_own_location(
    location: str, chosen: str, namespace: str | None, namespace_folder: str, warehouse: str
) -> bool:
    """Whether the location of a bound key's new table has to be compared with others': not where it is the
    one the catalog would have `chosen`.

    Otherwise it has to be in the folder that the catalog gives the namespace, or in
    `<warehouse>/<level>/...`; with `namespace` None nowhere. Raises CatalogError 403.
    """
    table_location = canonical(location).rstrip("/")
    _check_no_links(table_location, warehouse)
    if chosen and table_location == canonical(chosen):
        return False
    if namespace is None:
        raise forbidden(
            f"location {location!r:.500} is not one that a key of some streams may choose; leave it out"
        )
    levels = namespace.split(SEPARATOR)
    has_folder = (
        is_plain_path("/".join(levels))
        and not any("/" in level for level in levels)
        and not _TAKEN_FOLDER.fullmatch(levels[0])
    )
    own = f"{warehouse}/{'/'.join(levels)}/"
    folders = [f"{canonical(namespace_folder)}/", *([own] if has_folder else [])]
    if not any(
        table_location.startswith(folder) and is_plain_path(table_location[len(folder) :])
        for folder in folders
    ):
        metrics.foreign_files.labels("location").inc()
        raise forbidden(
            f"location {location!r:.500} is not one that a key bound to a namespace may choose; leave the "
            "location out" + (f", or choose one below {own}" if has_folder else "")
        )
    return True


def check_namespace_properties(by: Principal, namespace: str, names: Collection[str]) -> None:
    """Engines put new tables below a namespace's `location`. Raises CatalogError 403 where a bound key would
    lead them elsewhere or change what its tenant may use, or anybody would write legal holds by hand: two who
    do that at once lose one. Of people, administrators alone change what a tenant may use."""
    if HOLDS_PROPERTY in names:
        raise forbidden(
            f"the property {HOLDS_PROPERTY} is written by /firn/v1/holds alone, for keys that are bound "
            "to no namespace; leave it out"
        )
    leads = by.bound_to(Need.WRITE, namespace) is None
    limits = by.allowed(Need.LIMIT, namespace)
    for name in names:
        if (name == "location" and not leads) or (is_limit(name) and not limits):
            raise forbidden(
                "only a key that is bound to no namespace, or an administrator, sets or removes the property "
                f"{name:.80} of a namespace; leave it out"
            )


def _check_no_links(table_location: str, warehouse: str) -> None:
    """On a disk, a symbolic link below the warehouse would make one table's folder another's."""
    if table_location.startswith("file:") and table_location.startswith(f"{warehouse}/"):
        path, root = table_location.removeprefix("file://"), warehouse.removeprefix("file://")
        if os.path.realpath(path) != os.path.realpath(root) + path[len(root) :]:
            raise forbidden(
                f"location {table_location!r:.500} is reached by a symbolic link; choose another one"
            )


def check_registered(metadata: Json, metadata_location: str, table_location: TableLocation) -> None:
    """Every file that registered metadata of a table names. Raises CatalogError 403."""
    check_file(table_location, "metadata-location", metadata_location)
    for snapshot in metadata.get("snapshots") or ():
        for what, uri in named_by(snapshot):
            check_file(table_location, what, uri)
    for key, path in (
        ("metadata-log", "metadata-file"),
        ("statistics", "statistics-path"),
        ("partition-statistics", "statistics-path"),
    ):
        for entry in metadata.get(key) or ():
            check_file(table_location, path, entry.get(path))
    check_paths(table_location, metadata.get("properties") or {})


def named_by(snapshot: Mapping[str, Any]) -> Sequence[tuple[str, object]]:
    """(what, URI) of the files that a snapshot names: its manifest list, or in old tables its manifests."""
    manifests = snapshot.get("manifests")
    if manifests is not None and not isinstance(manifests, list):
        raise bad_request("'manifests' of a snapshot must be a list of texts")
    found: list[tuple[str, object]] = [("manifest", uri) for uri in manifests or ()]
    return [("manifest-list", snapshot["manifest-list"]), *found] if "manifest-list" in snapshot else found
