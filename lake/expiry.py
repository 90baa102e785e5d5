"""Which snapshots of a table may go, whoever takes them away."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from lake.marks import MARKS_PROPERTY


def expirable(
    metadata: Mapping[str, Any], *, keep: int, age_max_ms: int | None, now_ms: int, adding: int = 0
) -> tuple[int, ...]:
    """Ids of the snapshots to remove, the oldest first.

    What a branch or tag names always stays, and so does the nearest ancestor of the head that repeats the
    marks: without it nobody could tell that the table was moved back. Of the others the newest stay, as far
    as they are younger than `age_max_ms` (None: however old), and all together, with the `adding` that the
    same commit brings, are at most `keep` (more only where those that always stay are more).
    """
    snapshots = sorted(metadata.get("snapshots", ()), key=_age)
    staying = {ref["snapshot-id"] for ref in metadata.get("refs", {}).values()}
    if metadata.get("current-snapshot-id") is not None:
        staying.add(metadata["current-snapshot-id"])
    staying |= _marked(metadata, {snapshot["snapshot-id"]: snapshot for snapshot in snapshots})
    room = keep - adding - sum(s["snapshot-id"] in staying for s in snapshots)
    gone = []
    for snapshot in reversed(snapshots):
        if snapshot["snapshot-id"] in staying:
            continue
        if room > 0 and (age_max_ms is None or now_ms - snapshot["timestamp-ms"] < age_max_ms):
            room -= 1
        else:
            gone.append(int(snapshot["snapshot-id"]))
    return tuple(reversed(gone))


def unneeded_schemas(metadata: Mapping[str, Any], gone: Collection[int]) -> tuple[int, ...]:
    """Ids of the schemas that nobody needs once the snapshots `gone` are away: each new column leaves one
    behind, with all columns in it, and every reader and every commit takes all of them in.

    The current schema stays, those that kept snapshots name, and the one of the highest id, so that no id
    is given twice. Files tell by field ids what they hold, and manifests have the schema that they were
    written with.
    """
    named = {s.get("schema-id") for s in metadata.get("snapshots", ()) if s["snapshot-id"] not in gone}
    ids = [int(schema["schema-id"]) for schema in metadata.get("schemas", ())]
    staying = {metadata.get("current-schema-id"), max(ids, default=None), *named}
    return tuple(each for each in ids if each not in staying)


def without_snapshots(
    metadata: Mapping[str, Any],
    request: Mapping[str, Any],
    gone: Sequence[int],
    *,
    moving: Collection[str],
    schemas_too: bool,
) -> dict[str, Any]:
    """The request of a commit with snapshots going in it. `schemas_too`: and the schemas that they alone
    needed, which not every catalog lets go.

    Every branch and tag but those that are `moving` has to name what it does: what is removed under a ref
    takes the ref away with it.
    """
    refs = {name: ref["snapshot-id"] for name, ref in metadata.get("refs", {}).items() if name not in moving}
    requirements: list[Any] = [
        *request["requirements"],
        *({"type": "assert-ref-snapshot-id", "ref": name, "snapshot-id": at} for name, at in refs.items()),
    ]
    updates = [*request["updates"], {"action": "remove-snapshots", "snapshot-ids": list(gone)}]
    if schemas := unneeded_schemas(metadata, gone) if schemas_too else ():
        current = metadata["current-schema-id"]  # another one may be by then what nobody needs now
        requirements.append({"type": "assert-current-schema-id", "current-schema-id": current})
        updates.append({"action": "remove-schemas", "schema-ids": list(schemas)})
    return {**request, "requirements": requirements, "updates": updates}


def _age(snapshot: Mapping[str, Any]) -> tuple[int, int]:
    return snapshot.get("sequence-number", 0), snapshot["timestamp-ms"]


def _marked(metadata: Mapping[str, Any], known: Mapping[int, Mapping[str, Any]]) -> set[int]:
    """The head's nearest ancestor, itself included, that repeats the marks, and those between, by which it is
    found."""
    path: set[int] = set()
    at = known.get(metadata.get("current-snapshot-id", -1))
    while at is not None and at["snapshot-id"] not in path:
        path.add(at["snapshot-id"])
        if MARKS_PROPERTY in at.get("summary", {}):
            return path
        at = known.get(at.get("parent-snapshot-id", -1))
    return set()  # nobody says: there is nothing to keep
