"""Settings of ingestion that are about Kafka."""

from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr

from lake.settings.group import SettingsGroup

# Of Kafka's client: what says how the brokers are reached. What Firn's promises stand on is not for anybody
# to set.
KAFKA_OPTIONS = (
    "security.",
    "sasl.",
    "ssl.",
    "enable.ssl.",
    "enable.sasl.",
    "https.",
    "socket.",
    "broker.address.",
    "client.",
    "metadata.",
    "reconnect.",
)


def _kafka_options(options: dict[str, SecretStr]) -> dict[str, SecretStr]:
    if foreign := sorted(name for name in options if not name.startswith(KAFKA_OPTIONS)):
        raise ValueError(
            f"{', '.join(foreign)} cannot be set; what can are the settings of Kafka's client that begin "
            f"with {', '.join(KAFKA_OPTIONS)}"
        )
    return options


class IngestKafka(SettingsGroup):
    """The brokers, and the consumer group that reads them."""

    bootstrap_servers: Annotated[str, Field(description="Kafka brokers, host:port separated by commas")] = (
        "127.0.0.1:9092"
    )
    options: Annotated[
        dict[str, SecretStr],
        AfterValidator(_kafka_options),
        Field(
            description=(
                "how Kafka's client reaches the brokers: its settings security.*, sasl.*, ssl.* and "
                "the like, name to value"
            )
        ),
    ] = {}
    group: Annotated[str, Field(description="Kafka consumer group that holds the offsets")] = "firn"
    check_crcs: Annotated[
        bool,
        Field(
            description=(
                "compare the checksums of Kafka's batches; a node whose client dies of a damaged "
                "batch goes on without, and says so"
            )
        ),
    ] = True


def _without_credentials(url: str) -> str:
    if "@" in url:
        raise ValueError("url holds a user; set user and password beside it, which are kept out of messages")
    return url


class RegistrySettings(SettingsGroup):
    """The schema registry of messages in Confluent's wire format: Avro, Protobuf, JSON Schema."""

    url: Annotated[
        str,
        AfterValidator(_without_credentials),
        Field(
            description=(
                "base URLs of the schema registry, separated by commas; empty: no message is read with one"
            )
        ),
    ] = ""
    user: Annotated[str, Field(description="user of basic authentication; empty: none")] = ""
    password: Annotated[SecretStr | None, Field(description="password of basic authentication")] = None
    ca: Annotated[
        str | None,
        Field(description="PEM file with the certificates that are trusted here; without it that of tls.ca"),
    ] = None
    timeout_s: Annotated[float, Field(description="seconds until a request is given up", gt=0)] = 10.0
    schemas_max: Annotated[int, Field(description="schemas that are kept at a time", ge=1)] = 4_096
    unknown_s: Annotated[
        float,
        Field(description="seconds after which the registry is asked again for a schema it lacks", ge=0),
    ] = 60.0


class InternalTopics(SettingsGroup):
    """Firn's own topics."""

    dead_letters: Annotated[str, Field(description="where messages go that cannot be stored")] = (
        "firn.dead-letters"
    )
    replay: Annotated[
        str, Field(description="where dead letters go to be read again; beside `topics` an input topic too")
    ] = "firn.replay"
    parked: Annotated[str, Field(description="where the records of tables wait that take none for now")] = (
        "firn.parked"
    )
    signing_keys: Annotated[
        tuple[Annotated[SecretStr, Field(min_length=16)], ...],
        Field(
            description=(
                "secrets by which messages in Firn's own topics are signed: the first signs, any is "
                "accepted; needed beyond loopback brokers"
            )
        ),
    ] = ()
    unsigned_below: Annotated[
        dict[str, int],
        Field(
            description=(
                "what was written before there were signing_keys: topic:partition to the offset below "
                "which unsigned messages are Firn's own"
            )
        ),
    ] = {}
