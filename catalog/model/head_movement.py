"""How a commit moved the head of a table's main branch: forward over new snapshots, back, or not at all.

Forward movements feed the dirty-partition index. A movement to something that is no descendant of the head
before (a rollback, a replaced table) makes ingest's marks lie: property marks do not go back with a snapshot.
"""

from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Movement:
    """The head before and after, and the snapshots between them, oldest first; `chain` is None where the new
    head is no descendant."""

    before: int | None
    after: int | None
    chain: tuple[Json, ...] | None
    has_marks: bool
    unpartitioned: bool

    @property
    def moved_back(self) -> bool:
        """Whether ingest must be told."""
        return self.chain is None and self.has_marks


def movement_between(
    before: int | None, old_snapshots: list[Json], has_marks: bool, metadata: Json
) -> Movement | None:
    """The movement from a head to that of changed metadata; None where it stayed."""
    after = metadata.get("current-snapshot-id")
    if after == before:
        return None
    chain = None if after is None else chain_to(before, after, [*old_snapshots, *metadata["snapshots"]])
    return Movement(
        before, after, chain, has_marks, not any(spec["fields"] for spec in metadata["partition-specs"])
    )


def chain_to(before: int | None, after: int, snapshots: list[Json]) -> tuple[Json, ...] | None:
    """The snapshots after `before` up to `after`, oldest first; None where `after` does not descend from it
    (or, from nothing, its history is cut)."""
    known = {snapshot["snapshot-id"]: snapshot for snapshot in snapshots}
    chain: list[Json] = []
    at: int | None = after
    while at is not None and at != before:
        snapshot = known.get(at)
        if snapshot is None or len(chain) > len(known):
            return None
        chain.append(snapshot)
        at = snapshot.get("parent-snapshot-id")
    return tuple(reversed(chain)) if at == before else None
