"""What maintenance does with keyed tables: it writes files anew without their deleted rows, while others
commit.

    begin    reads some files of a table, and writes one with their rows
    commit   loads the table: where an input is gone, or a row that was left out is there again, it gives
             up; deletes that came to the inputs meanwhile become deletes of the output, or it gives up
"""

from __future__ import annotations

from tests.faults.model.protocol_table import Delta, Files, Table
from tests.faults.model.protocol_world import (
    SELDOM,
    Body,
    Merge,
    MergeCommit,
    Message,
    Pick,
    World,
    add_files,
    commit_merge,
    repeated_marks,
)

MERGES_MAX = 2


def act_merge(w: World, pick: Pick) -> str | None:
    """Somebody begins to merge files of a keyed table; the oldest of many merges is killed."""
    names = [name for name in sorted(w.keyed) if name in w.tables and w.tables[name].files.data]
    if not names:
        return None
    name = names[pick(len(names))]
    table = w.tables[name]
    numbers = sorted(table.files.data)
    first = pick(len(numbers))
    inputs = tuple(numbers[first : first + 1 + pick(len(numbers))])
    if len(w.merges) >= MERGES_MAX:
        end_merge(w, w.merges[0])
    merge = begin_merge(w, name, table, inputs)
    w.merges.append(merge)
    return f"somebody merges files {' '.join(map(str, inputs))} of {name} into {merge.output}"


def begin_merge(w: World, name: str, table: Table, inputs: tuple[int, ...]) -> Merge:
    """Writes the file that is to take the place of the inputs."""
    live = [(file, at, row) for file, at, row in table.files.live() if file in inputs]
    places = {(file, at): position for position, (file, at, _) in enumerate(live)}
    rows = tuple(row for _, _, row in live)
    return Merge(name, table.uuid, inputs, table.files, w.next_id(), places, rows)


def act_merge_commit(w: World, pick: Pick) -> str | None:
    """A merge that is written is compared with the table as it is, and sent."""
    ready = [merge for merge in w.merges if not merge.sent]
    if not ready or pick(4 * SELDOM):
        return None
    merge = ready[pick(len(ready))]
    table = w.tables.get(merge.table)
    if table is None or table.dropped or table.uuid != merge.uuid or not has_inputs(w, merge, table.files):
        end_merge(w, merge)
        return f"the merge into {merge.output} is given up: its inputs are gone"
    carried = carried_over(merge, table.files) if w.rules.merges_carry_deletes else frozenset()
    if carried and not pick(3):
        end_merge(w, merge)
        return f"the merge into {merge.output} is given up: its inputs have other rows now"
    if carried:
        w.seen["carried over"] += 1
    added = ((merge.output, merge.rows),) if merge.rows else ()
    deleted = ((merge.output, carried),) if carried else ()
    delta = Delta(added, deleted, merge.inputs)
    body = MergeCommit(merge.table, table.uuid, table.head, table.sequence + 1, w.next_id(), delta)
    merge.sent = True
    w.air.append(Message(body, merge))
    return f"somebody sends {body}"


def has_inputs(w: World, merge: Merge, files: Files) -> bool:
    """Whether the table still has all that was merged, and no row of it that was left out: a rollback takes
    deletes back, too."""
    has_files = all(file in files.data for file in merge.inputs)
    has_deletes = all(
        merge.reads.deleted.get(file, frozenset()) <= files.deleted.get(file, frozenset())
        for file in merge.inputs
    )
    return (has_files or not w.rules.merges_need_their_inputs) and (
        has_deletes or not w.rules.merges_need_their_deletes
    )


def carried_over(merge: Merge, files: Files) -> frozenset[int]:
    """Positions in the output of rows that were deleted after they were read."""
    new = [
        (file, at)
        for file in merge.inputs
        for at in files.deleted.get(file, frozenset()) - merge.reads.deleted.get(file, frozenset())
    ]
    return frozenset(merge.places[place] for place in new)


def deliver_merge(w: World, merge: Merge, body: Body, fate: str) -> str:
    """A merge arrives at the catalog, or not. After a conflict it is compared again; of unknown outcome it is
    left, and what is there is merged anew."""
    assert isinstance(body, MergeCommit)
    result = "lost" if fate == "lost" else commit_merge(w, body)
    w.seen[f"merge {result}"] += 1
    if result == "conflict" and fate != "answer lost":
        merge.sent = False
    else:
        end_merge(w, merge)
    return f"{body}: {result} {fate}"


def end_merge(w: World, merge: Merge) -> None:
    """It is over, or given up."""
    if merge in w.merges:
        w.merges.remove(merge)


def rewrite(w: World, table: Table, *, repeats_marks: bool) -> None:
    """All files become one, in one step: by an engine that repeats the marks, or not."""
    rows = tuple(row for _, _, row in table.files.live())
    added = ((w.next_id(), rows),) if rows else ()
    marks = repeated_marks(w, table) if repeats_marks else None
    add_files(w, table, w.next_id(), Delta(added, (), tuple(table.files.data)), marks)
