"""What a commit asserts about the table it was made for. A requirement that fails is the only reason for 409
CommitFailedException.

Iceberg REST specification, `TableRequirement`: assert-create, assert-table-uuid, assert-ref-snapshot-id,
assert-last-assigned-field-id, assert-current-schema-id, assert-last-assigned-partition-id,
assert-default-spec-id, assert-default-sort-order-id; for views assert-view-uuid. Firn's own is
assert-firn-holds.
"""

from collections.abc import Callable, Sequence
from typing import Any

from catalog.model.error_response import bad_request, commit_failed
from catalog.model.json_fields import integer, string
from lake.holds import REQUIREMENT as HOLDS

Json = dict[str, Any]


def check_requirements(requirements: Sequence[Json], metadata: Json | None, *, view: bool = False) -> None:
    """Passes when every requirement holds for the metadata (None: the table does not exist). Raises
    CatalogError 409, or 400 for an unknown one."""
    for requirement in requirements:
        kind = requirement.get("type")
        if kind == "assert-create":
            if metadata is not None:
                raise commit_failed(f"Requirement failed: {'view' if view else 'table'} already exists")
            continue
        check = (_VIEW_CHECKS if view else _TABLE_CHECKS).get(kind) if isinstance(kind, str) else None
        if check is None:
            raise bad_request(
                f"requirement {kind!r} is unknown; the REST specification lists those of "
                f"{'views' if view else 'tables'}"
            )
        if metadata is None:
            raise commit_failed(
                f"Requirement failed: {kind} needs a table that exists; create it with assert-create alone"
            )
        check(requirement, metadata)


def is_creation(requirements: Sequence[Json]) -> bool:
    """Whether the commit creates its table; then assert-create must be the only requirement. Raises
    CatalogError 400."""
    kinds = {str(requirement.get("type")) for requirement in requirements}
    if "assert-create" in kinds and len(kinds) > 1:
        raise bad_request(
            "Invalid create requirements: assert-create goes with no other requirement, but "
            f"{sorted(kinds - {'assert-create'})} came with it"
        )
    return "assert-create" in kinds


def _uuid(requirement: Json, metadata: Json) -> None:
    expected = metadata.get("table-uuid")
    if string(requirement, "uuid").lower() != str(expected).lower():
        raise commit_failed(
            f"Requirement failed: UUID does not match: expected {expected} != {requirement['uuid']}"
        )


def _view_uuid(requirement: Json, metadata: Json) -> None:
    expected = metadata.get("view-uuid")
    if string(requirement, "uuid").lower() != str(expected).lower():
        raise commit_failed(
            f"Requirement failed: view UUID does not match: expected {expected} != {requirement['uuid']}"
        )


def _ref(requirement: Json, metadata: Json) -> None:
    name = string(requirement, "ref")
    expected = requirement.get("snapshot-id")
    if expected is not None:
        expected = integer(requirement, "snapshot-id")
    ref = metadata.get("refs", {}).get(name)
    if ref is None:
        if expected is not None:
            raise commit_failed(f"Requirement failed: branch or tag {name} is missing, expected {expected}")
    elif expected is None:
        raise commit_failed(f"Requirement failed: {ref['type']} {name} was created concurrently")
    elif expected != ref["snapshot-id"]:
        raise commit_failed(
            f"Requirement failed: {ref['type']} {name} has changed: expected id {expected} != "
            f"{ref['snapshot-id']}"
        )


def _number(field: str, what: str, key: str, default: int) -> Callable[[Json, Json], None]:
    def check(requirement: Json, metadata: Json) -> None:
        expected, found = integer(requirement, key), metadata.get(field, default)
        if expected != found:
            raise commit_failed(f"Requirement failed: {what} changed: expected id {expected} != {found}")

    return check


def _holds(requirement: Json, _: Json) -> None:
    """Of its form alone: the transaction of the swap compares it with the namespace."""
    asserted_holds([requirement])


def asserted_holds(requirements: Sequence[Json]) -> list[str | None]:
    """The legal holds that a commit relies on, as `lake.holds` asserts them. Raises CatalogError 400."""
    texts = [each.get("holds") for each in requirements if each.get("type") == HOLDS]
    if not all(text is None or isinstance(text, str) for text in texts):
        raise bad_request(f"'holds' of {HOLDS} must be a text or null")
    return texts


_TABLE_CHECKS: dict[str, Callable[[Json, Json], None]] = {
    "assert-table-uuid": _uuid,
    HOLDS: _holds,
    "assert-ref-snapshot-id": _ref,
    "assert-last-assigned-field-id": _number(
        "last-column-id", "last assigned field id", "last-assigned-field-id", 0
    ),
    "assert-current-schema-id": _number("current-schema-id", "current schema", "current-schema-id", 0),
    "assert-last-assigned-partition-id": _number(
        "last-partition-id", "last assigned partition id", "last-assigned-partition-id", 999
    ),
    "assert-default-spec-id": _number("default-spec-id", "default partition spec", "default-spec-id", 0),
    "assert-default-sort-order-id": _number(
        "default-sort-order-id", "default sort order", "default-sort-order-id", 0
    ),
}
_VIEW_CHECKS: dict[str, Callable[[Json, Json], None]] = {
    "assert-view-uuid": _view_uuid,
    "assert-table-uuid": _view_uuid,
}
