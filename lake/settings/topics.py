"""Settings of the input topics."""

from typing import Annotated, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

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


# How the messages of a topic of changes say what changed. `ingest` has a registry of these, too.
ChangeFormat = Literal["debezium", "flattened_debezium", "maxwell", "keyed_json"]


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
