"""What goes with snapshots: schemas that nobody needs after them."""

from typing import Any

from lake.expiry import unneeded_schemas, without_snapshots


def _metadata(current: int, schemas: int, snapshots: dict[int, int | None]) -> dict[str, Any]:
    """`snapshots`: the schema of each, None where it names none."""
    return {
        "current-schema-id": current,
        "schemas": [{"schema-id": each} for each in range(schemas)],
        "snapshots": [
            {"snapshot-id": snapshot} | ({} if schema is None else {"schema-id": schema})
            for snapshot, schema in snapshots.items()
        ],
        "refs": {
            "main": {"type": "branch", "snapshot-id": max(snapshots)},
            "audit": {"type": "tag", "snapshot-id": min(snapshots)},
        },
    }


def test_schemas_of_kept_snapshots_and_the_current_one_stay() -> None:
    """All others go, those that no snapshot was ever made with among them."""
    metadata = _metadata(5, 6, {1: 0, 2: 1, 3: 3, 4: None})
    assert unneeded_schemas(metadata, {2}) == (1, 2, 4)
    assert unneeded_schemas(metadata, ()) == (2, 4)
    assert unneeded_schemas(metadata, {1, 2, 3}) == (0, 1, 2, 3, 4)


def test_the_highest_id_is_never_free_again() -> None:
    """Somebody may have made an older schema the current one; the next new one gets an id that none had."""
    assert unneeded_schemas(_metadata(1, 4, {1: 1}), ()) == (0, 2)


def test_metadata_without_lists_needs_nothing() -> None:
    """As what other writers leave out."""
    assert unneeded_schemas({}, ()) == ()


def test_schemas_go_in_the_commit_of_the_snapshots_if_the_current_one_is_still_it() -> None:
    """And branches and tags still name what they did, but for those that move."""
    metadata = _metadata(2, 3, {1: 0, 2: 1, 3: 2})
    request = {"requirements": [{"type": "assert-table-uuid"}], "updates": [{"action": "add-snapshot"}]}
    changed = without_snapshots(metadata, request, (2,), moving=("main",), schemas_too=True)
    assert changed["requirements"] == [
        {"type": "assert-table-uuid"},
        {"type": "assert-ref-snapshot-id", "ref": "audit", "snapshot-id": 1},
        {"type": "assert-current-schema-id", "current-schema-id": 2},
    ]
    assert changed["updates"] == [
        {"action": "add-snapshot"},
        {"action": "remove-snapshots", "snapshot-ids": [2]},
        {"action": "remove-schemas", "schema-ids": [1]},
    ]


def test_schemas_stay_where_the_catalog_lets_none_go() -> None:
    """Snapshots go all the same."""
    metadata = _metadata(2, 3, {1: 0, 2: 1, 3: 2})
    request: dict[str, Any] = {"requirements": [], "updates": []}
    changed = without_snapshots(metadata, request, (2,), moving=("main", "audit"), schemas_too=False)
    assert changed == {
        "requirements": [],
        "updates": [{"action": "remove-snapshots", "snapshot-ids": [2]}],
    }
