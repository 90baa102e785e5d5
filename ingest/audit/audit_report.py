"""An audit as JSON and as a table for a terminal."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ingest.audit.audit import Audit, FoundExample, PartitionAudit
from ingest.audit.audit_compare import COUNTS
from ingest.audit.audit_key_compare import KeyCounts
from ingest.audit.audit_keys import FoundKey, TableAudit

# The others are shown where there is something to count: a terminal has eighty columns.
ALWAYS_SHOWN = ("consumed", "written", "dead_lettered", "parked")


def to_json(audit: Audit) -> dict[str, Any]:
    """One object: the verdict, its sums, and every partition with its first examples."""
    return {
        "clean": audit.is_clean,
        **_sums(audit),
        "tables": len(audit.tables.names),
        "data_files": audit.tables.files,
        "rows": audit.tables.rows,
        "dead_letters_read": audit.dead_letters,
        "parked_records_read": audit.parked_records,
        "tables_with_delete_files": audit.tables.with_deletes,
        "unreadable_tables": audit.tables.unreadable,
        "partitions": [_partition(each) for each in audit.partitions],
        "keyed_tables": [_keyed(each) for each in audit.keyed],
    }


def _sums(audit: Audit) -> dict[str, int]:
    """The counts of all partitions, and what rows of keyed tables are wrong; a row that they miss is a
    change of a partition."""
    sums = {name: sum(getattr(each.verdict, name) for each in audit.partitions) for name in COUNTS}
    for name in ("doubled", "astray", "stale"):
        sums[name] = sums.get(name, 0) + sum(getattr(each.counts, name) for each in audit.keyed)
    return sums


def _keyed(each: TableAudit) -> dict[str, Any]:
    return {
        "table": each.table,
        "mode": each.key.mode,
        "key": list(each.key.columns),
        "order_by": each.key.order_by,
        **asdict(each.counts),
        "examples": [asdict(found) for found in each.examples],
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
    return Group(table, *notes, *_keys(audit), *_wrong(audit), _sentence(audit))


def _keys(audit: Audit) -> Iterator[RenderableType]:
    """Keyed tables: the keys that are alive by the input, and those that are there."""
    if not audit.keyed:
        return
    table = Table(
        title="keys alive by the input = keys in the table (- what the input does not tell any more)",
        title_justify="left",
    )
    table.add_column("table", overflow="fold")
    shown = [
        name
        for name in asdict(KeyCounts())
        if name in ("alive", "keys") or any(getattr(each.counts, name) for each in audit.keyed)
    ]
    for name in shown:
        table.add_column(name.replace("_", " "), justify="right")
    for each in audit.keyed:
        title = Text(f"{each.table} ({each.key.mode})", style="" if each.counts.is_clean else "red")
        table.add_row(title, *(f"{getattr(each.counts, count):,}" for count in shown))
    yield table
    wrong = [(each.table, found) for each in audit.keyed for found in each.examples]
    if wrong:
        yield _wrong_keys(wrong)


def _wrong_keys(wrong: Sequence[tuple[str, FoundKey]]) -> Table:
    table = Table("what", "table", "key", "topic", "partition", "offset")
    table.title, table.title_justify = "first keys that are not as the input says", "left"
    for name, found in wrong:
        place = "-" if found.partition is None else str(found.partition)
        table.add_row(
            found.what,
            Text(name),
            Text(found.key or "-"),
            Text(found.topic or "-"),
            place,
            str(found.offset),
        )
    return table


def _wrong(audit: Audit) -> list[RenderableType]:
    if not any(each.examples for each in audit.partitions):
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
