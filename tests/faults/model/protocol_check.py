"""What has to hold: at every moment, and at the end."""

from __future__ import annotations

from collections import Counter

from ingest.model.link import TableKey
from tests.faults.model.protocol_rules import Violation
from tests.faults.model.protocol_table import Marks, Record, Table
from tests.faults.model.protocol_world import World


def check_rows(w: World) -> None:
    """After every step: no row is there twice, none is where it does not belong, and a keyed table has the
    rows that its marks say."""
    for name, table in w.tables.items():
        if w.checked.get(name, ()) == (table.uuid, table.head):
            continue
        w.checked[name] = table.uuid, table.head
        if name in w.keyed:
            check_keys(w, name, table)
            continue
        doubled = [str(record) for record, count in Counter(table.rows).items() if count > 1]
        if doubled:
            raise Violation(f"doubled in {name}: {' '.join(doubled)}")
        if any(record.table != name or record.bad for record in table.rows):
            raise Violation(f"{name} holds what does not belong there")


def check_end(w: World) -> None:
    """All healed and drained: every record is in its table, or a dead letter; a keyed table has the row of
    each key's last change."""
    w.checked.clear()
    w.reread_all.clear()
    check_rows(w)
    for name in w.keyed:
        if name in w.tables:
            check_content(w, name, w.tables[name], {p: w.end(p) for p in range(len(w.log))})
    for record in (record for part in w.log for record in part):
        wanted_row = record.table is not None and not record.bad
        if record.table in w.keyed:
            has_row = wanted_row and record.table in w.tables
        else:
            has_row = record.table in w.tables and record in w.tables[record.table].rows
        if wanted_row != has_row or (not wanted_row and record not in w.dead):
            raise Violation(f"lost: {record} of {record.table}")


# ---- keyed tables


def check_keys(w: World, name: str, table: Table) -> None:
    """At most one live row per key; and the rows are what the changes below the marks lead to."""
    doubled = [key for key, count in Counter(row.key for row in table.rows).items() if count > 1]
    if doubled:
        rows = [str(row) for row in table.rows if row.key in doubled]
        raise Violation(f"keys doubled in {name} at #{table.head}: {', '.join(rows)}")
    marks = table.head_marks()
    if marks is not None and name not in w.reread_all:
        check_content(w, name, table, marks)


def check_content(w: World, name: str, table: Table, marks: Marks) -> None:
    """Each key has the row of its last (first) change, in one of its partitions, or none after a delete."""
    rows = {row.key: row for row in table.rows}
    wanted = outcomes(w, name, w.keyed[name], marks)
    for key in sorted(rows.keys() | wanted.keys()):
        row, allowed = rows.get(key), wanted.get(key, [None])
        if row not in allowed:
            expected = " or ".join(str(each) for each in allowed)
            raise Violation(
                f"key {key} of {name} at #{table.head} has the row {row}; by marks {marks} it is {expected}"
            )


def outcomes(w: World, name: str, key: TableKey, marks: Marks) -> dict[int, list[Record | None]]:
    """By key the rows that it may have: one for each partition that has changes of it. What goes by its
    source's order has nothing but puts: of what was deleted nobody knows how new it was."""
    found: dict[int, list[Record | None]] = {}
    if key.order_by == "position":
        puts = [r for part, records in enumerate(w.log) for r in records[: marks.get(part, 0)]]
        ours = [record for record in puts if record.table == name and not record.bad]
        return {row.key: [row] for row in sorted(ours, key=lambda record: record.position)}
    for partition, records in enumerate(w.log):
        at = dict[int, Record | None]()
        for record in records[: marks.get(partition, 0)]:
            if record.table == name and not record.bad:
                apply(at, record, first_wins=key.mode == "first_wins")
        for number, row in at.items():
            found.setdefault(number, []).append(row)
    return {
        number: [row for row in rows if row] or [None] if key.mode == "first_wins" else rows
        for number, rows in found.items()
    }


def apply(at: dict[int, Record | None], record: Record, *, first_wins: bool) -> None:
    """One change after those before it. A truncation stands only where the input has one partition."""
    if record.op == "truncate":
        at.update(dict.fromkeys(at))
    elif first_wins:
        if record.op in ("put", "move") and at.get(record.key) is None:
            at[record.key] = record
    elif record.op == "delete":
        at[record.key] = None
    else:
        if record.op == "move":
            at[record.old] = None
        at[record.key] = record
