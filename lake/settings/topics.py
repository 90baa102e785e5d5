"""Settings of the input topics."""

from typing import Annotated, Literal, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from lake.settings.masking import TopicMasking

# A dead letter sent again has its table in its headers: it was routed when it was sent, by the rules of the
# topic it first came from.
REPLAY_TENANT, REPLAY_STREAM = "firn.tenant", "firn.stream"
# How records are read, and how the messages of a topic are. What a name means says the registry of formats in
# `ingest`; a test holds that it knows just these.
RecordFormat = Literal["auto", "json", "text", "otlp_proto"]
FormatName = Literal[RecordFormat, "replay"]


def _time_zone(name: str) -> str:
    try:
        if name != "UTC":
            ZoneInfo(name)
    except (ValueError, OSError, ZoneInfoNotFoundError) as error:
        raise ValueError(f"{name!r} is no time zone; use a name like UTC or Europe/Berlin") from error
    return name


def needs_value(rule: str) -> bool:
    """Returns whether a rule for the tenant or the stream looks into the values of messages."""
    return rule.startswith("field:")


ChangeMode = Literal["append", "history", "upsert", "delete_only", "first_wins"]
ChangeFormat = Literal["debezium", "flattened_debezium", "maxwell", "keyed_json"]
ChangeOrder = Literal["offset", "position", "time"]


class ChangeSettings(BaseModel):
    """How a topic of changes is read, and what its changes do to rows."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    mode: Annotated[
        ChangeMode,
        Field(
            description=(
                "history: every change is a row; upsert: one row per key, the last change wins; delete_only: "
                "deletes remove rows, other changes are passed over; first_wins: a key that is there is not "
                "written again"
            )
        ),
    ] = "upsert"
    format: Annotated[ChangeFormat, Field(description="how the messages say what changed")] = "debezium"
    key: Annotated[
        tuple[str, ...],
        Field(description="fields of the row that are its key; none: the message key is the key"),
    ] = ()
    order_by: Annotated[
        ChangeOrder,
        Field(
            description=(
                "offset: changes are applied as Kafka has them; position, time: one that is older, by the "
                "source's log or clock, than the row it would replace is passed over"
            )
        ),
    ] = "offset"
    buckets: Annotated[
        int, Field(description="parts of a new table, by the first column of its key", ge=1, le=4_096)
    ] = 1
    placeholder: Annotated[
        str, Field(description="what the connector sends for a value that it does not know")
    ] = "__debezium_unavailable_value"
    history: Annotated[
        bool,
        Field(
            description=(
                "the stream NAME_history beside the stream NAME has every change as a row (beside a mode "
                "whose tables have keys)"
            )
        ),
    ] = False

    @model_validator(mode="after")
    def _check_history(self) -> Self:
        if self.history and self.mode in ("append", "history"):
            raise ValueError(f"history = true is for a mode whose tables have keys, and mode is {self.mode}")
        return self


class TopicSettings(BaseModel):
    """How one input topic is read. Rules are tried in order, the first that yields a name wins."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, Field(description="name of the topic")]
    format: Annotated[
        FormatName,
        Field(
            description=(
                "auto: JSON, NDJSON, OTLP and known kinds of lines are told from the message; "
                "replay: Firn's own topic of dead letters sent again"
            )
        ),
    ] = "auto"
    start: Annotated[
        Literal["earliest", "latest"],
        Field(
            description=(
                "where a group that has read nothing of the topic begins; after latest, `ingest "
                "backfill kafka` brings in what came before"
            )
        ),
    ] = "earliest"
    time_zone: Annotated[
        str,
        AfterValidator(_time_zone),
        Field(description="zone of times that name none, as in syslog: an IANA name"),
    ] = "UTC"
    changes: Annotated[
        ChangeSettings | None, Field(description="the messages are changes of rows; empty: they are records")
    ] = None
    tenant: Annotated[
        tuple[str, ...],
        Field(
            description=(
                "rules for the tenant: header:NAME, field:NAME, key, topic:REGEX (its first group), "
                "const:NAME"
            )
        ),
    ] = (
        "header:tenant",
        "field:tenant",
    )
    stream: Annotated[
        tuple[str, ...],
        Field(description="rules for the stream, of the same form; `logs` where none yields a name"),
    ] = ("header:stream",)
    masking: Annotated[
        TopicMasking | None,
        Field(
            description="what of its messages is dropped, hashed or cut before anything else happens to it"
        ),
    ] = None

    @model_validator(mode="after")
    def _check_masking(self) -> Self:
        if self.masking is None:
            return self
        if self.format == "replay":
            raise ValueError(
                "masking: dead letters are masked by the rules of the topic they first came from"
            )
        if self.format == "text" and (told := [rule.name for rule in self.masking.rules if rule.fields]):
            raise ValueError(
                f"masking: rule {told[0]} names fields, and lines have none in a topic of text; use format = "
                '"auto", or cut by patterns'
            )
        if self.masking.withholds_surplus:
            self._check_withholding()
        return self

    def _check_withholding(self) -> None:
        """Raises ValueError where limits could not be asked about without the values of messages."""
        if self.has_changes:
            raise ValueError("masking: changes of rows are under no limit; leave over_limit as it is")
        if needs_value(self.tenant[0] if self.tenant else "") or any(map(needs_value, self.stream)):
            raise ValueError(
                "masking: over_limit = withhold is for topics whose messages name tenant and stream in a "
                "header, the key or the topic; a field is known only once the value is read"
            )

    @property
    def has_changes(self) -> bool:
        """Whether its messages are changes of rows, not records to be appended."""
        return self.changes is not None and self.changes.mode != "append"
