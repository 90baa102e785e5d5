"""What becomes of one message, and why: its tenant and table, its records with every column, and by which
rule, format and field each was told.

The table is taken to be new: a declared type, the limit of columns, or an older spelling of a name may change
what a real one stores.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ingest.convert.row import Row, row_of
from ingest.convert.terms import Columns, Terms, TimeLimits
from ingest.decode.decoder import Pairs, decode, take_apart
from ingest.decode.event_time import instant_text, zone
from ingest.decode.formats.registry import BATCH_RECORD, recognise
from ingest.decode.formats.rejected_record import RejectedRecord
from ingest.mask.masks import mask_of
from ingest.mask.message_mask import Parts, withheld_of
from ingest.route.router import Envelope, Router
from ingest.serve.explain_change import ExplainedChange, change_tables, explain_change
from lake.clock import SYSTEM_CLOCK, Clock, epoch_ms
from lake.errors import Reason, Rejected
from lake.log_schema import MESSAGE, SEVERITY, TIMESTAMP, new_log_schema
from lake.settings import FormatName, IngestSettings, TopicSettings
from lake.tenant import TableId


@dataclass(frozen=True)
class ExplainedColumn:
    """A value as it is stored. `path` is the field it came from, as a JSON Pointer."""

    name: str
    kind: str
    value: Any
    path: str | None


@dataclass(frozen=True)
class ExplainedRecord:
    """A record: its columns, or why it becomes a dead letter."""

    index: int
    read_as: str
    timestamp: str | None
    timestamp_why: str | None
    columns: Sequence[ExplainedColumn]
    errors: Sequence[Mapping[str, str | None]]
    overflow: str | None
    rejected: str | None


@dataclass(frozen=True)
class ExplainedRule:
    """A rule of the topic's masking, and how many values of the message it has changed."""

    name: str
    action: str
    values: int


@dataclass(frozen=True)
class Explanation:
    """A message as it is kept: where it goes, how it was read, and its records, or the change of a row that
    it is."""

    topic: str
    topic_why: str
    tenant: str | None
    tenant_why: str
    stream: str | None
    stream_why: str
    table: str | None
    read_as: str
    rejected: str | None
    records: Sequence[ExplainedRecord]
    change: ExplainedChange | None = None
    masked: Sequence[ExplainedRule] = ()

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def topic_settings(settings: IngestSettings, name: str | None) -> tuple[TopicSettings, str]:
    """The settings of a topic, and where they came from: the one named, else the only one there is, else the
    defaults."""
    if name is None and len(settings.topics) == 1:
        return settings.topics[0], "the only topic in the settings"
    for topic in settings.topics:
        if topic.name == name:
            return topic, "as the settings say"
    return TopicSettings(name=name or "-"), "not in the settings: the defaults of a topic"


def explain(
    settings: IngestSettings, topic: TopicSettings, why: str, envelope: Envelope, timestamp_ms: int
) -> Explanation:
    """Explains a message. `timestamp_ms`: its Kafka timestamp, ms since 1970; `why`: where the topic's
    settings came from."""
    envelope, masked, withheld = _masked(settings, topic, envelope, timestamp_ms)
    target = withheld or _limited(settings, topic, envelope) or Router(topic).route(envelope)
    table = target if isinstance(target, TableId) else None
    read_as, read = _read(settings, topic, envelope, timestamp_ms)
    refused = target if isinstance(target, Rejected) else read if isinstance(read, Rejected) else None
    return Explanation(
        topic.name,
        why,
        None if table is None else table.tenant.name,
        _tenant_why(topic, envelope),
        None if table is None else table.stream,
        _stream_why(topic, envelope),
        None if table is None else str(table),
        read_as,
        None if refused is None else f"{refused.reason.value}: {refused.detail}",
        [] if isinstance(read, (Rejected, ExplainedChange)) else read,
        read if isinstance(read, ExplainedChange) else None,
        masked,
    )


def _masked(
    settings: IngestSettings, topic: TopicSettings, envelope: Envelope, timestamp_ms: int
) -> tuple[Envelope, Sequence[ExplainedRule], Rejected | None]:
    """What of a message is kept, by which rules, and why nothing is, where that is so."""
    mask = mask_of(settings, topic)
    if mask is None:
        return envelope, (), None
    target = Router(topic).route(envelope)
    parts = Parts(envelope.key, envelope.headers, envelope.value, timestamp_ms)
    left = mask.masked_one(parts, target.stream if isinstance(target, TableId) else None)
    rules = [
        ExplainedRule(rule.name, rule.action, values) for rule, values in mask.take_counts().values.items()
    ]
    withheld = None if left.value else withheld_of(left.headers)
    return Envelope(topic.name, left.key, left.headers, left.value), rules, withheld


def _read(
    settings: IngestSettings, topic: TopicSettings, envelope: Envelope, timestamp_ms: int
) -> tuple[str, Sequence[ExplainedRecord] | ExplainedChange | Rejected]:
    changes = topic.changes
    if changes is None or not topic.has_changes:
        return _records(settings, topic, envelope.value or b"", timestamp_ms)
    return f"a change, {changes.format}", explain_change(settings, topic, changes, envelope)


def _limited(settings: IngestSettings, topic: TopicSettings, envelope: Envelope) -> Rejected | None:
    if not envelope.value:
        if topic.has_changes:
            return None  # it says that the row of its key is gone
        return Rejected(Reason.EMPTY, "the message has no value")
    if len(envelope.value) > settings.limits.record_bytes_max:
        return Rejected(
            Reason.TOO_LARGE,
            f"{len(envelope.value)} bytes, limits.record_bytes_max is {settings.limits.record_bytes_max}",
        )
    return None


def _tenant_why(topic: TopicSettings, envelope: Envelope) -> str:
    for rule in topic.tenant:
        alone = Router(topic.model_copy(update={"tenant": (rule,), "stream": ()})).route(envelope)
        if not (isinstance(alone, Rejected) and alone.reason is Reason.TENANT_MISSING):
            return f"rule {rule}"
    return f"no rule yields one ({', '.join(topic.tenant) or 'there is none'})"


def _stream_why(topic: TopicSettings, envelope: Envelope) -> str:
    for rule in topic.stream:
        # As a rule for the tenant it tells whether it yields a name at all.
        alone = Router(topic.model_copy(update={"tenant": (rule,), "stream": ()})).route(envelope)
        if not (isinstance(alone, Rejected) and alone.reason is Reason.TENANT_MISSING):
            return f"rule {rule}"
    return "the default: no rule yields one"


def _records(
    settings: IngestSettings, topic: TopicSettings, value: bytes, timestamp_ms: int
) -> tuple[str, Sequence[ExplainedRecord] | Rejected]:
    batch = take_apart(value, topic.format, settings.limits.depth_max) if value else None
    if isinstance(batch, Rejected):
        return "several records", batch
    if batch is None:
        one = _record(settings, topic, 0, value, topic.format, timestamp_ms)
        return one.read_as, [one]
    explained = [
        _dead(index, "one of several", one)
        if isinstance(one, RejectedRecord)
        else _record(settings, topic, index, one, BATCH_RECORD, timestamp_ms)
        for index, one in enumerate(batch)
    ]
    return f"{batch.title}: {len(batch)} records", explained


def _record(
    settings: IngestSettings,
    topic: TopicSettings,
    index: int,
    value: bytes,
    form: FormatName,
    timestamp_ms: int,
) -> ExplainedRecord:
    fields = decode(value, form, settings.limits.depth_max)
    if isinstance(fields, Rejected):
        return _dead(index, "unreadable", fields)
    columns, local = Columns(new_log_schema(), settings.limits.columns_max), zone(topic.time_zone)
    if isinstance(fields, Pairs):
        read_as = "JSON object"
    else:
        known = recognise(fields, timestamp_ms * 1000, local)
        read_as = "plain line" if known is None else known[0].title
    row = row_of(fields, timestamp_ms, Terms(columns, TimeLimits.of(settings), local))
    return _dead(index, read_as, row) if isinstance(row, Rejected) else _stored(index, read_as, row, columns)


def _stored(index: int, read_as: str, row: Row, columns: Columns) -> ExplainedRecord:
    path = row.origins.get(TIMESTAMP)
    why = "the Kafka timestamp: the record gives none" if path is None else f"field {path}"
    standard = (SEVERITY, MESSAGE)
    told = [
        ExplainedColumn(name, str(columns.kind(name)), row.values.get(name), row.origins.get(name))
        for name in standard
        if name in row.values
    ]
    others = [
        ExplainedColumn(name, str(columns.kind(name)), value, columns.path(name))
        for name, value in row.values.items()
        if name not in standard
    ]
    return ExplainedRecord(
        index, read_as, instant_text(row.timestamp_us), why, [*told, *others], row.errors, row.overflow, None
    )


def _dead(index: int, read_as: str, rejected: Rejected) -> ExplainedRecord:
    return ExplainedRecord(
        index, read_as, None, None, [], [], None, f"{rejected.reason.value}: {rejected.detail}"
    )


def now_ms(clock: Clock = SYSTEM_CLOCK) -> int:
    """The time in ms since 1970, which a message gets that was given none."""
    return epoch_ms(clock.now())


def to_renderable(explanation: Explanation) -> RenderableType:
    """The explanation for a terminal."""
    facts = Table(show_header=False, box=None)
    for name, value, why in (
        ("topic", explanation.topic, explanation.topic_why),
        ("tenant", explanation.tenant, explanation.tenant_why),
        ("stream", explanation.stream, explanation.stream_why),
        ("table", explanation.table, ""),
        ("read as", explanation.read_as, ""),
        *([("dead letter", explanation.rejected, "")] if explanation.rejected else ()),
        *(("masked", f"{rule.values} by {rule.name}", rule.action) for rule in explanation.masked),
    ):
        facts.add_row(Text(name, style="bold"), _shown(value), Text(why, style="dim"))
    change = [] if explanation.change is None else [change_tables(explanation.change)]
    return Group(facts, *change, *map(_record_table, explanation.records))


def _record_table(record: ExplainedRecord) -> RenderableType:
    table = Table(title=f"record {record.index}: {record.read_as}", title_justify="left")
    for heading in ("column", "type", "value", "from"):
        table.add_column(heading, overflow="fold")
    if record.rejected is not None:
        return Group(
            Text(f"record {record.index}: {record.read_as}", style="italic"),
            Text(f"dead letter: {record.rejected}", style="red"),
        )
    table.add_row(TIMESTAMP, "timestamptz", record.timestamp, Text(record.timestamp_why or ""))
    for column in record.columns:
        table.add_row(Text(column.name), column.kind, _shown(column.value), Text(column.path or ""))
    for error in record.errors:
        table.add_row(
            Text("_errors", style="red"), error["reason"], _shown(error["value"]), _shown(error["field"])
        )
    if record.overflow is not None:
        table.add_row(Text("_overflow"), "string", _shown(record.overflow), Text("beyond limits.columns_max"))
    return table


def _shown(value: Any) -> Text:
    return Text("-" if value is None else str(value).encode("utf-8", "backslashreplace").decode())
