"""What a message of a topic of changes says, and what it does to the rows of its table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ingest.changes.change import Cells, Change, Op, PassedOver
from ingest.changes.source_position import position_text
from ingest.convert.read_changes import ReadingTerms, read_change
from ingest.decode.event_time import instant_text
from ingest.model.source import Source
from ingest.route.router import Envelope
from lake.errors import Rejected
from lake.settings import ChangeSettings, IngestSettings, TopicSettings


@dataclass(frozen=True)
class ExplainedChange:
    """`mode`, `format`, `order_by` as the topic's settings say. `op`, `key`, `position`, `time`: of the
    change. `effect`: what it does to its table, in a sentence.

    `row`: name, type and value of each column of the row after the change, or before a delete. `unavailable`:
    columns that keep what the row has. `old_key`: the key that the row had before.
    """

    mode: str
    format: str
    order_by: str
    op: str | None
    key: Mapping[str, Any]
    old_key: Mapping[str, Any] | None
    position: str | None
    time: str | None
    effect: str
    row: Sequence[Mapping[str, Any]]
    unavailable: Sequence[str]
    errors: Sequence[Mapping[str, str | None]]


def explain_change(
    settings: IngestSettings, topic: TopicSettings, changes: ChangeSettings, envelope: Envelope
) -> ExplainedChange | Rejected:
    """Reads a message as ingestion does. Raises RegistryUnavailableError."""
    terms = ReadingTerms.of(settings)
    source = Source(topic.name, "", 0, topic.format, topic.time_zone, changes)
    read = read_change(envelope.key, envelope.value, envelope.headers, source, terms)
    if isinstance(read, Rejected):
        return read
    told = (changes.mode, changes.format, changes.order_by)
    if isinstance(read, PassedOver):
        effect = f"none: it is no change of a row ({read.notice.value})"
        return ExplainedChange(*told, None, {}, None, None, None, effect, [], [], [])
    return ExplainedChange(
        *told,
        read.op.value,
        _plain(read.key),
        None if read.old_key is None else _plain(read.old_key),
        None if read.position is None else position_text(read.position),
        None if read.time_us is None else instant_text(read.time_us),
        _effect(read, changes),
        _row(read.row),
        sorted(read.unavailable),
        [{"field": bad.field, "value": bad.value, "reason": bad.reason.value} for bad in read.errors],
    )


def _effect(change: Change, changes: ChangeSettings) -> str:
    if changes.mode == "history":
        return _effect_on_history(change)
    if change.op is Op.TRUNCATE:
        return "removes all rows of the table"
    if change.repeats_delete and changes.order_by != "offset":
        return "none: the delete before it says the same"
    is_delete = change.op is Op.DELETE
    if changes.mode == "first_wins":
        return "none: deletes are passed over" if is_delete else "a row, unless there is one of its key"
    older = "" if changes.order_by == "offset" else f", unless the row is newer by its {changes.order_by}"
    if is_delete:
        return f"removes the row of its key, if there is one{older}"
    if changes.mode == "delete_only":
        return "none: all but deletes are passed over"
    moved = "" if change.op is not Op.UPDATE or change.old_key is None else "; the row of its old key goes"
    return f"the row of its key{older}{moved}"


def _effect_on_history(change: Change) -> str:
    if change.repeats_delete:
        return "none: the delete before it says the same"
    return f"a row more, with the _op {change.op.value}"


def _plain(cells: Cells) -> dict[str, Any]:
    return {name: _value(value) for name, value in cells.values.items()}


def _row(cells: Cells) -> list[dict[str, Any]]:
    return [
        {"name": name, "kind": str(cells.types.get(name, "not said")), "value": _value(value)}
        for name, value in cells.values.items()
    ]


def _value(value: Any) -> Any:
    """A value as JSON has it."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return str(value) if isinstance(value, str) else value
    return value.hex() if isinstance(value, bytes) else str(value)


def change_tables(change: ExplainedChange) -> RenderableType:
    """The change for a terminal."""
    facts = Table(show_header=False, box=None)
    for name, value in (
        ("changes", f"{change.mode}, {change.format}, ordered by {change.order_by}"),
        ("change", change.op),
        ("key", _pairs(change.key)),
        *((("old key", _pairs(change.old_key)),) if change.old_key else ()),
        ("position", change.position),
        ("time", change.time),
        ("effect", change.effect),
        *((("kept as they are", ", ".join(change.unavailable)),) if change.unavailable else ()),
    ):
        facts.add_row(Text(name, style="bold"), _shown(value))
    if not change.row:
        return facts
    table = Table("column", "type", "value", title="row", title_justify="left")
    for column in change.row:
        table.add_row(_shown(column["name"]), _shown(column["kind"]), _shown(column["value"]))
    for error in change.errors:
        table.add_row(
            Text("_errors", style="red"), error["reason"], _shown(f"{error['field']}: {error['value']}")
        )
    return Group(facts, table)


def _pairs(key: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in key.items())


def _shown(value: Any) -> Text:
    return Text(
        "-" if value is None or value == "" else str(value).encode("utf-8", "backslashreplace").decode()
    )
