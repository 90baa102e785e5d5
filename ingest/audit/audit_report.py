"""An audit as JSON and as a table for a terminal."""

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ingest.audit.audit import Audit, FoundExample, PartitionAudit
from ingest.audit.audit_compare import COUNTS

# The others are shown where there is something to count: a terminal has eighty columns.
ALWAYS_SHOWN = ("consumed", "written", "dead_lettered", "parked")


def to_json(audit: Audit) -> dict[str, Any]:
    """One object: the verdict, its sums, and every partition with its first examples."""
    return {
        "clean": audit.is_clean,
        **{name: sum(getattr(each.verdict, name) for each in audit.partitions) for name in COUNTS},
        "tables": len(audit.tables.names),
        "data_files": audit.tables.files,
        "rows": audit.tables.rows,
        "dead_letters_read": audit.dead_letters,
        "parked_records_read": audit.parked_records,
        "tables_with_delete_files": audit.tables.with_deletes,
        "unreadable_tables": audit.tables.unreadable,
        "partitions": [_partition(each) for each in audit.partitions],
    }


def _partition(each: PartitionAudit) -> dict[str, Any]:
    return {
        "topic": each.topic,
        "topic_id": each.topic_id,
        "partition": each.partition,
        "from": each.start,
        "to": each.end,
        "gone": each.gone,
        **{name: getattr(each.verdict, name) for name in COUNTS},
        "examples": [_example(found) for found in each.examples],
    }


def _example(found: FoundExample) -> dict[str, Any]:
    one = found.example
    return {
        "what": one.what,
        "offset": one.offset,
        "index": one.index,
        "tables": list(found.tables),
        "belongs_to": found.belongs_to,
    }


def to_renderable(audit: Audit) -> RenderableType:
    """Tables: the sums per partition, then what is wrong."""
    table = Table(
        title="consumed = written + dead-lettered + parked (+ dropped since), by identity",
        title_justify="left",
    )
    shown = [
        name
        for name in COUNTS
        if name in ALWAYS_SHOWN or any(getattr(each.verdict, name) for each in audit.partitions)
    ]
    table.add_column("topic / partition", overflow="fold")
    for heading in ("offsets", *(name.replace("_", " ") for name in shown)):
        table.add_column(heading, justify="right", no_wrap=True)
    for each in audit.partitions:
        if not each.gone or not each.verdict.is_clean:
            name = f"{each.topic} / {each.partition}{f' (gone: {each.topic_id})' if each.gone else ''}"
            row = Text(name, style="" if each.verdict.is_clean else "red"), f"{each.start} to {each.end}"
            table.add_row(*row, *(f"{getattr(each.verdict, count):,}" for count in shown))
    read = (
        f"{len(audit.tables.names):,} tables, {audit.tables.files:,} data files, {audit.tables.rows:,} "
        f"rows, {audit.dead_letters:,} dead letters"
    )
    notes = [Text(f"read: {read}, {audit.parked_records:,} parked records")]
    if audit.tables.with_deletes:
        names = ", ".join(audit.tables.with_deletes[:5])
        notes.append(
            Text(
                f"{len(audit.tables.with_deletes):,} tables have delete files ({names} ...): rows they "
                "delete are counted as written"
            )
        )
    notes += [Text(f"cannot be read: {sentence}", style="red") for sentence in audit.tables.unreadable]
    return Group(table, *notes, *_wrong(audit), _sentence(audit))


def _wrong(audit: Audit) -> list[RenderableType]:
    if audit.is_clean:
        return []
    table = Table(
        "what",
        "topic",
        "partition",
        "offset",
        "index",
        "in tables",
        "belongs to",
        title="first examples",
        title_justify="left",
    )
    for each in audit.partitions:
        for found in each.examples:
            one = found.example
            index = "all" if one.index is None else str(one.index)
            holders = Text(", ".join(found.tables) or "-")
            table.add_row(
                one.what,
                Text(each.topic),
                str(each.partition),
                str(one.offset),
                index,
                holders,
                Text(found.belongs_to or "-"),
            )
    return [table]


def _sentence(audit: Audit) -> Text:
    if audit.is_clean:
        return Text("clean: no gap, no duplicate", style="green")
    advice = (
        "missing may also mean: removed since by retention, an erasure, or with a dropped table "
        "(--since leaves older records out)"
    )
    return Text(f"NOT CLEAN; {advice}", style="red")
