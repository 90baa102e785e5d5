"""Every setting of every room: one class per room, one row per setting with its default, unit and help.

Values come, the later the stronger, from the default here, from the section named like the room in one TOML
file (`firn.toml` in the working directory, or where `FIRN_CONFIG` points; empty: no file), from the
environment (`FIRN_<ROOM>_<SETTING>`), and from the command line. A secret `x` may stand in a file of its own
instead, which `x_file` names in any of these places (see secret_files.py).
"""

import os
import tomllib
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, ValidationError, model_validator
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict
from pydantic_settings.exceptions import SettingsError as UnreadableVariable

from lake.errors import SettingsError
from lake.secret_files import SecretFileVariables, secret_names, take_secrets

CONFIG_VARIABLE = "FIRN_CONFIG"
CONFIG_DEFAULT = "firn.toml"
DOCS = "docs/settings.md"
MIB = 1024 * 1024
# A dead letter sent again has its table in its headers: it was routed when it was sent, by the rules of the
# topic it first came from.
REPLAY_TENANT, REPLAY_STREAM = "firn.tenant", "firn.stream"


def config_file() -> Path | None:
    """The one TOML file of the stack; None where `FIRN_CONFIG` is empty. Only one that the variable names has
    to exist."""
    name = os.environ.get(CONFIG_VARIABLE, CONFIG_DEFAULT)
    return Path(name) if name else None


def _config_document() -> dict[str, Any]:
    """What the file says. Raises SettingsError."""
    path = config_file()
    if path is None:
        return {}
    try:
        document = tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"{path} is not valid TOML ({error}); correct it or point {CONFIG_VARIABLE} at another file"
        ) from error
    except OSError as error:
        if isinstance(error, FileNotFoundError) and CONFIG_VARIABLE not in os.environ:
            return {}
        told = (
            f"the settings file {path} cannot be read ({error.strerror}); mend that, or point "
            f"{CONFIG_VARIABLE} at another one (empty: no file)"
        )
        raise SettingsError(told) from error
    rooms = [room.room for room in RoomSettings.__subclasses__()]
    if strangers := [f"`{name}`" for name in document if name not in rooms]:
        raise SettingsError(
            f"{path}: {', '.join(strangers)} at its top level belongs to no room; its sections are "
            f"{', '.join(f'[{room}]' for room in rooms)}"
        )
    return document


class _TomlSection(PydanticBaseSettingsSource):
    """The section of the TOML file that belongs to one room."""

    def __init__(self, settings_cls: type[BaseSettings], room: str) -> None:
        super().__init__(settings_cls)
        self._room = room

    def get_field_value(self, field: Any, field_name: str) -> tuple[Any, str, bool]:
        return field.default, field_name, False

    def __call__(self) -> dict[str, Any]:
        section = _config_document().get(self._room, {})
        if not isinstance(section, dict):
            raise SettingsError(
                f"{config_file()}: `{self._room}` is no table; write its settings below a line [{self._room}]"
            )
        return section


class RoomSettings(BaseSettings):
    """Base of the rooms' settings; a wrong value is one `SettingsError` that names the setting and where to
    set it."""

    room: ClassVar[str]
    # Errors never repeat what was given: it may be a secret.
    model_config = SettingsConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, hide_input_in_errors=True
    )

    @model_validator(mode="before")
    @classmethod
    def _secrets_of_files(cls, given: Any) -> Any:
        return take_secrets(cls, given) if isinstance(given, dict) else given

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the base class calls by name
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (
            init_settings,
            env_settings,
            SecretFileVariables(settings_cls),
            _TomlSection(settings_cls, cls.room),
        )

    @classmethod
    def load(cls, **overrides: Any) -> Self:
        """Reads all sources; overrides that are None (a flag not given) do not count."""
        try:
            return cls(**{name: value for name, value in overrides.items() if value is not None})
        except UnreadableVariable as error:  # a list or table in the environment that is no JSON
            prefix = str(cls.model_config.get("env_prefix", ""))
            raise SettingsError(
                f"settings of {cls.room}: {error}. Lists and tables in {prefix}* variables are written as "
                "JSON"
            ) from error
        except ValidationError as error:
            raise SettingsError(f"settings of {cls.room}: {cls._told(error.errors())}") from error

    @classmethod
    def _told(cls, errors: list[ErrorDetails]) -> str:
        """What is wrong, and where to put it right."""
        unknown = [error["type"] == "extra_forbidden" for error in errors]
        rows = [
            cls._unknown(error["loc"]) if is_unknown else _wrong(error)
            for error, is_unknown in zip(errors, unknown, strict=True)
        ]
        advice = []
        if not all(unknown):
            file = config_file()
            section = f", in section [{cls.room}] of {file}," if file else ""
            advice.append(f"Set it as {cls.model_config.get('env_prefix', '')}<NAME>{section} or by its flag")
        if any(unknown):
            advice.append(f"{DOCS} has all settings")
        return ". ".join(["; ".join(rows), *advice])

    @classmethod
    def _unknown(cls, place: tuple[int | str, ...]) -> str:
        """Says that a setting does not exist, and which one may be meant."""
        known = (
            [*cls.model_fields, *(f"{name}_file" for name in secret_names(cls))]
            if len(place) == 1
            else [*TopicSettings.model_fields]
        )
        close = get_close_matches(str(place[-1]), known, 1)
        return f"there is no setting {_dotted(place)}" + (f", perhaps `{close[0]}` is meant" if close else "")


def _wrong(error: ErrorDetails) -> str:
    message = error["msg"].removeprefix("Value error, ")
    return f"{_dotted(error['loc'])}: {message}" if error["loc"] else message


def _dotted(place: tuple[int | str, ...]) -> str:
    return ".".join(map(str, place))


# What the services that speak HTTP have in common.
AllowedHosts = Annotated[
    tuple[str, ...],
    Field(
        description="names that requests may carry in their Host header, besides localhost, the machine's "
        "own, `host` and, where others reach it, numbers: "
        "those of a proxy or a Kubernetes service; `*.example.org` for all below one, `*` for any"
    ),
]
AllowedOrigins = Annotated[
    tuple[str, ...],
    Field(
        description=(
            "origins, like https://tools.example.org, of the web pages that may speak to this "
            "service from a browser, besides its own"
        )
    ),
]
RequestTimeout = Annotated[
    float,
    Field(
        description=(
            "seconds in which a request has to arrive whole, and in which a client that reads "
            "nothing of its answer is given up"
        ),
        gt=0,
    ),
]
ConnectionsMax = Annotated[
    int,
    Field(
        description="open connections; beyond, the one goes that has kept the server waiting longest", ge=8
    ),
]


class StorageSettings(RoomSettings):
    """Object storage. Local files need none of this."""

    room = "storage"
    model_config = SettingsConfigDict(env_prefix="FIRN_STORAGE_", extra="forbid", frozen=True)

    s3_endpoint: Annotated[str | None, Field(description="URL of an S3-compatible endpoint; empty: AWS")] = (
        None
    )
    s3_region: Annotated[str, Field(description="S3 region")] = "us-east-1"
    s3_access_key_id: Annotated[
        str | None, Field(description="S3 access key; empty: the environment's usual credentials")
    ] = None
    s3_secret_access_key: Annotated[SecretStr | None, Field(description="S3 secret key")] = None
    s3_path_style: Annotated[bool, Field(description="address buckets by path instead of by host name")] = (
        True
    )
    request_timeout_s: Annotated[
        float, Field(description="seconds until one storage request is given up", gt=0)
    ] = 60.0


class TlsSettings(RoomSettings):
    """Certificates of every HTTP client: to the catalog, between the rooms, to Trino."""

    room = "tls"
    model_config = SettingsConfigDict(env_prefix="FIRN_TLS_", extra="forbid", frozen=True)

    ca: Annotated[
        str | None,
        Field(
            description="PEM file with certificates that are trusted beside the usual ones: a private CA's"
        ),
    ] = None
    certificate: Annotated[
        str | None,
        Field(description="PEM file with the certificate that a client shows, where a service asks for one"),
    ] = None
    key: Annotated[
        str | None,
        Field(description="PEM file with that certificate's private key; empty: it is in the same file"),
    ] = None


class CatalogSettings(RoomSettings):
    """The Iceberg REST catalog."""

    room = "catalog"
    model_config = SettingsConfigDict(env_prefix="FIRN_CATALOG_", extra="forbid", frozen=True)

    database_url: Annotated[
        SecretStr,
        Field(
            description=(
                "SQLAlchemy URL: sqlite:///path or postgresql+psycopg://user@host/db; it may hold a "
                "password, so it counts as a secret"
            )
        ),
    ] = SecretStr("sqlite:///state/catalog.db")
    warehouse: Annotated[
        str,
        Field(description="URI below which tables get their locations: file:///path or s3://bucket/prefix"),
    ] = ""
    host: Annotated[str, Field(description="address to listen on")] = "127.0.0.1"
    port: Annotated[int, Field(description="port to listen on; 0: any free one", ge=0, le=65535)] = 8181
    anonymous: Annotated[
        bool, Field(description="let callers in without a key; refused unless the host is loopback")
    ] = False
    allowed_locations: Annotated[
        list[str], Field(description="URI prefixes besides the warehouse where tables may lie")
    ] = []
    metadata_cache_bytes_max: Annotated[
        int, Field(description="bytes of metadata files kept in memory, compressed", ge=1_000_000)
    ] = 192 * 1024 * 1024
    request_bytes_max: Annotated[
        int, Field(description="bytes of the largest request body that is read", ge=100_000)
    ] = 64 * 1024 * 1024
    undo_window_s: Annotated[
        float,
        Field(
            description="seconds for which a dropped table can be brought back before its purge is due", ge=0
        ),
    ] = 3 * 86_400.0
    workers: Annotated[
        int, Field(description="processes that serve; more than one needs PostgreSQL", ge=1, le=64)
    ] = 1
    control: Annotated[
        bool,
        Field(
            description=(
                "serve only leases, parked records and tasks, beside another catalog; needs no warehouse"
            )
        ),
    ] = False
    tls_certificate: Annotated[
        str | None, Field(description="file with the TLS certificate chain; empty: plain HTTP")
    ] = None
    tls_key: Annotated[str | None, Field(description="file with the certificate's private key")] = None
    tls_client_ca: Annotated[
        str | None,
        Field(
            description=(
                "file with the CA whose certificates clients have to show, beside their keys; empty: "
                "none is asked for"
            )
        ),
    ] = None
    allowed_hosts: AllowedHosts = ()
    allowed_origins: AllowedOrigins = ()
    request_timeout_s: RequestTimeout = 60.0
    connections_max: ConnectionsMax = 1_000
    bound_key_lifetime_s: Annotated[
        float,
        Field(
            description=(
                "seconds after which a key that is bound to a namespace expires, where its maker "
                "does not say; 0: never"
            ),
            ge=0,
        ),
    ] = 365 * 86_400.0
    commit_rounds_at_once: Annotated[
        int,
        Field(
            description="rounds of commits that run beside each other; one table is in one of them",
            ge=1,
            le=64,
        ),
    ] = 4


def _time_zone(name: str) -> str:
    try:
        if name != "UTC":
            ZoneInfo(name)
    except (ValueError, OSError, ZoneInfoNotFoundError) as error:
        raise ValueError(f"{name!r} is no time zone; use a name like UTC or Europe/Berlin") from error
    return name


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


# How records are read, and how the messages of a topic are. What a name means says the registry of formats in
# `ingest`; a test holds that it knows just these.
RecordFormat = Literal["auto", "json", "text", "otlp_proto"]
FormatName = Literal[RecordFormat, "replay"]


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


class IngestSettings(RoomSettings):
    """Kafka -> Iceberg."""

    room = "ingest"
    model_config = SettingsConfigDict(env_prefix="FIRN_INGEST_", extra="forbid", frozen=True)

    bootstrap_servers: Annotated[str, Field(description="Kafka brokers, host:port separated by commas")] = (
        "127.0.0.1:9092"
    )
    kafka_options: Annotated[
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
    topics: Annotated[
        tuple[TopicSettings, ...], Field(description="the input topics, in TOML as [[ingest.topics]]")
    ] = ()
    dead_letter_topic: Annotated[str, Field(description="where messages go that cannot be stored")] = (
        "firn.dead-letters"
    )
    replay_topic: Annotated[
        str, Field(description="where dead letters go to be read again; beside `topics` an input topic too")
    ] = "firn.replay"
    parked_topic: Annotated[
        str, Field(description="where the records of tables wait that take none for now")
    ] = "firn.parked"
    topic_keys: Annotated[
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
                "what was written before there were topic_keys: topic:partition to the offset below "
                "which unsigned messages are Firn's own"
            )
        ),
    ] = {}
    catalog_uri: Annotated[str, Field(description="base URL of the REST catalog")] = "http://127.0.0.1:8181"
    catalog_token: Annotated[SecretStr | None, Field(description="API key for the catalog")] = None
    control_uri: Annotated[
        str,
        Field(
            description=(
                "base URL of `catalog serve --control`, which holds the node's lease and the parked "
                "records beside another REST catalog"
            )
        ),
    ] = ""
    control_token: Annotated[SecretStr | None, Field(description="API key for the control service")] = None
    warehouse: Annotated[
        str, Field(description="where new tables get their locations; empty: where the catalog says")
    ] = ""
    host: Annotated[
        str,
        Field(
            description=(
                "address of a node's health and metrics endpoint; beyond loopback it needs serve_token"
            )
        ),
    ] = "127.0.0.1"
    port: Annotated[
        int, Field(description="port of the health and metrics endpoint; 0: any free one", ge=0, le=65535)
    ] = 8383
    node_uri: Annotated[
        str,
        Field(
            description=(
                "base URL of the running node's endpoint, for buffers and breakers; empty: they are left out"
            )
        ),
    ] = "http://127.0.0.1:8383"
    serve_host: Annotated[
        str, Field(description="address `ingest serve` listens on; beyond loopback it needs serve_token")
    ] = "127.0.0.1"
    serve_port: Annotated[
        int, Field(description="port `ingest serve` listens on; 0: any free one", ge=0, le=65535)
    ] = 8384
    serve_token: Annotated[
        SecretStr | None,
        Field(description="who calls `ingest serve` or a node has to send this as `Authorization: Bearer`"),
    ] = None
    allowed_hosts: AllowedHosts = ()
    allowed_origins: AllowedOrigins = ()
    request_timeout_s: RequestTimeout = 60.0
    connections_max: ConnectionsMax = 1_000
    request_bytes_max: Annotated[
        int, Field(description="bytes of the largest request body that `ingest serve` reads", ge=1_000)
    ] = 16 * MIB
    tails_max: Annotated[
        int, Field(description="live tails that run at once; each reads all input topics", ge=1)
    ] = 8
    engine: Annotated[
        Literal["local", "spark"],
        Field(description="who reads and writes: the node's own worker processes, or executors of Spark"),
    ] = "local"
    workers: Annotated[
        int,
        Field(
            description="processes of the local engine; one is enough for some 100,000 records a second",
            ge=1,
            le=64,
        ),
    ] = 1
    flush_interval_s: Annotated[
        float, Field(description="seconds after its first record until a table is flushed", gt=0)
    ] = 300.0
    visibility_max_s: Annotated[
        float | None,
        Field(
            description=(
                "seconds after which a table with little traffic is flushed at the latest; empty: "
                "flush_interval_s"
            ),
            gt=0,
        ),
    ] = None
    flush_bytes: Annotated[
        int, Field(description="bytes of raw records after which a table is flushed", gt=0)
    ] = 4 * 1024 * MIB
    file_bytes: Annotated[
        int,
        Field(
            description="bytes of a data file of a hot table at which it is closed and the table flushed",
            gt=0,
        ),
    ] = 128 * MIB
    replay_records_max: Annotated[
        int,
        Field(
            description=(
                "offsets a partition may be routed beyond its oldest unwritten record; then that "
                "one's table is flushed"
            ),
            ge=1,
        ),
    ] = 5_000_000
    hours_per_flush_max: Annotated[
        int,
        Field(
            description=(
                "hour partitions of which a hot table has a file open; for more, these are closed first"
            ),
            ge=1,
        ),
    ] = 200
    new_tables_per_minute: Annotated[
        int,
        Field(
            description=(
                "tables the node creates per minute; records of further ones wait until its memory "
                "is full, then they become dead letters (unstorable)"
            ),
            ge=1,
        ),
    ] = 10_000
    park_after_s: Annotated[
        float,
        Field(description="seconds for which a table has to fail alone until its records are parked", gt=0),
    ] = 10.0
    on_deleted: Annotated[
        Literal["park", "dead-letter", "recreate"],
        Field(
            description=(
                "what becomes of records for a dropped table while it may still come back; the table "
                "property firn.on-deleted goes before it"
            )
        ),
    ] = "park"
    buffer_bytes_max: Annotated[
        int, Field(description="bytes of raw records all tables together may hold", gt=0)
    ] = 512 * MIB
    record_bytes_max: Annotated[
        int, Field(description="bytes of one message; larger ones become dead letters", gt=0)
    ] = 4 * MIB
    batch_bytes_max: Annotated[
        int,
        Field(
            description=(
                "bytes of the largest batch of Kafka's, and of what zstd makes of one; larger ones "
                "are dead letters (unreadable)"
            ),
            ge=52_500_000,
        ),
    ] = 64 * MIB
    check_crcs: Annotated[
        bool,
        Field(
            description=(
                "compare the checksums of Kafka's batches; a node whose client dies of a damaged "
                "batch goes on without, and says so"
            )
        ),
    ] = True
    depth_max: Annotated[
        int,
        Field(description="levels of nesting of one record; deeper ones become dead letters", gt=0, le=200),
    ] = 100
    columns_max: Annotated[
        int, Field(description="columns of one table; fields beyond go to _overflow", ge=20)
    ] = 1_000
    late_limit: Annotated[
        Literal["accept"] | Annotated[float, Field(ge=0)],
        Field(
            description=(
                "seconds before its Kafka timestamp a record may be; or accept, which takes any time "
                "and lifts ahead_limit_s too"
            )
        ),
    ] = 3 * 86_400.0
    ahead_limit_s: Annotated[
        float, Field(description="seconds after its Kafka timestamp a record may be", gt=0)
    ] = 86_400.0
    commit_timeout_s: Annotated[
        float, Field(description="seconds until the outcome of a commit counts as unknown", gt=0)
    ] = 30.0
    table_snapshots_max: Annotated[
        int,
        Field(
            description=(
                "snapshots of a table from which ingestion takes half of them away itself, since "
                "maintenance is behind; files stay"
            ),
            ge=4,
        ),
    ] = 100
    table_manifests_max: Annotated[
        int, Field(description="manifests of a table from which ingestion itself gathers them", ge=16)
    ] = 100
    shutdown_s: Annotated[float, Field(description="seconds SIGTERM leaves for the last flush", gt=0)] = 40.0
    task_records_max: Annotated[
        int, Field(description="records that one task of the Spark engine reads at most", ge=1)
    ] = 1_000_000
    task_bytes_max: Annotated[
        int, Field(description="bytes of raw records that one task of the Spark engine reads, about", gt=0)
    ] = 256 * MIB
    spark_master: Annotated[
        str,
        Field(description="Spark master of the Spark engine: local[2], spark://host:7077, k8s://..., yarn"),
    ] = "local[2]"
    spark_driver_memory_mb: Annotated[
        int, Field(description="Java heap of the Spark driver, MiB", ge=512)
    ] = 1_024
    spark_options: Annotated[
        dict[str, str], Field(description="further settings of the Spark session, name to value")
    ] = {}
    java_home: Annotated[
        Path | None, Field(description="Java 17 or 21 for Spark; without it JAVA_HOME, then PATH")
    ] = None

    @model_validator(mode="after")
    def _check_topics(self) -> Self:
        own = {
            "dead_letter_topic": self.dead_letter_topic,
            "replay_topic": self.replay_topic,
            "parked_topic": self.parked_topic,
        }
        if len(set(own.values())) < len(own):
            raise ValueError(f"{', '.join(own)} name one topic twice; give each its own")
        names = [topic.name for topic in self.topics]
        if not all(names):
            raise ValueError("topics: one of them has an empty name")
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"topics: {', '.join(twice)} stands there more than once")
        for setting in ("dead_letter_topic", "parked_topic"):
            if own[setting] in names:
                raise ValueError(
                    f"topics: {own[setting]} is the {setting}, which Firn writes; an input topic has to be "
                    "another one"
                )
        return self

    def with_replay_topic(self) -> "IngestSettings":
        """These settings with the replay topic among the input topics; where there is no other, there is
        nothing to replay."""
        if not self.topics or any(topic.name == self.replay_topic for topic in self.topics):
            return self
        replay = TopicSettings(
            name=self.replay_topic,
            format="replay",
            tenant=(f"header:{REPLAY_TENANT}",),
            stream=(f"header:{REPLAY_STREAM}",),
        )
        return self.model_copy(update={"topics": (*self.topics, replay)})


class OptimizeSettings(RoomSettings):
    """Table maintenance on Spark."""

    room = "optimize"
    model_config = SettingsConfigDict(env_prefix="FIRN_OPTIMIZE_", extra="forbid", frozen=True)

    catalog_uri: Annotated[str, Field(description="base URL of the REST catalog")] = "http://127.0.0.1:8181"
    catalog_token: Annotated[SecretStr | None, Field(description="API key for the catalog")] = None
    control_uri: Annotated[
        str,
        Field(
            description=(
                "base URL of `catalog serve --control`, which holds the erasures that are asked for "
                "beside another REST catalog"
            )
        ),
    ] = ""
    control_token: Annotated[SecretStr | None, Field(description="API key for the control service")] = None
    host: Annotated[str, Field(description="address of the metrics endpoint")] = "127.0.0.1"
    port: Annotated[
        int | None,
        Field(description="port of the metrics endpoint; without it there is none", ge=0, le=65535),
    ] = None
    interval_s: Annotated[
        float,
        Field(
            description="seconds from the start of one round of maintenance to the start of the next", gt=0
        ),
    ] = 3_600.0
    closed_after_s: Annotated[
        float, Field(description="seconds after its end until an hour counts as closed and is merged", ge=0)
    ] = 600.0
    late_cooldown_s: Annotated[
        float, Field(description="seconds a merged hour rests before late data makes it merge again", ge=0)
    ] = 6 * 3_600.0
    target_file_bytes: Annotated[
        int,
        Field(
            description=(
                "size of merged files; the table property write.target-file-size-bytes goes before it"
            ),
            gt=0,
        ),
    ] = 128 * MIB
    small_file_ratio: Annotated[
        float, Field(description="files below this share of the target size are merged", gt=0, le=1)
    ] = 0.75
    rewrite_bytes_min: Annotated[
        int,
        Field(
            description=(
                "bytes that would become one file from which Spark's rewrite_data_files merges them: "
                "a task holds its rows in memory"
            ),
            gt=0,
        ),
    ] = 512 * MIB
    lone_file_bytes_min: Annotated[
        int,
        Field(
            description=(
                "bytes from which the only file of a closed hour is written anew, once: as ingestion "
                "writes it, it takes half as much space again"
            ),
            gt=0,
        ),
    ] = 1 * MIB
    zstd_level: Annotated[int, Field(description="zstd level of merged files", ge=1, le=22)] = 3
    row_group_rows: Annotated[int, Field(description="rows of a row group in merged files", ge=1_000)] = (
        131_072
    )
    snapshots_max: Annotated[
        int,
        Field(
            description=(
                "snapshots a table has at most, those that branches and tags name aside; a commit of "
                "maintenance leaves half of them"
            ),
            ge=1,
        ),
    ] = 10
    expiry_interval_s: Annotated[
        float,
        Field(description="seconds between two looks, between rounds, for tables with many snapshots", gt=0),
    ] = 300.0
    erasure_interval_s: Annotated[
        float, Field(description="seconds between two looks, between rounds, for erasures to carry out", gt=0)
    ] = 1.0
    snapshot_age_max_s: Annotated[
        float, Field(description="seconds after which snapshots expire, but for the newest", gt=0)
    ] = 86_400.0
    manifests_max: Annotated[
        int, Field(description="manifests of data files from which a table's manifests are merged", ge=2)
    ] = 50
    reader_grace_s: Annotated[
        float,
        Field(
            description="seconds that files stay after nothing refers to them: Trino's longest query", ge=0
        ),
    ] = 6 * 3_600.0
    storage_requests_per_s_max: Annotated[
        float, Field(description="deletions and listings sent to the storage per second", gt=0)
    ] = 500.0
    bin_cost_s_max: Annotated[
        float,
        Field(description="estimated seconds of one Spark task; a bin of tables is committed together", gt=0),
    ] = 10.0
    round_cost_s_max: Annotated[
        float,
        Field(
            description="estimated seconds of merging in one round; what does not fit waits for the next",
            gt=0,
        ),
    ] = 7_200.0
    commit_timeout_s: Annotated[
        float, Field(description="seconds until the outcome of a commit counts as unknown", gt=0)
    ] = 30.0
    commit_attempts_max: Annotated[
        int,
        Field(
            description="attempts to commit against other writers before a table waits for the next round",
            ge=1,
        ),
    ] = 50
    failures_max: Annotated[int, Field(description="failures in a row after which a table pauses", ge=1)] = 3
    pause_s: Annotated[float, Field(description="seconds a table pauses after too many failures", gt=0)] = (
        6 * 3_600.0
    )
    spark_master: Annotated[
        str, Field(description="Spark master: local[2], spark://host:7077, k8s://..., yarn")
    ] = "local[2]"
    spark_driver_memory_mb: Annotated[
        int, Field(description="Java heap of the Spark driver, MiB", ge=512)
    ] = 1_024
    spark_java_options: Annotated[str, Field(description="options of the Spark driver's JVM")] = (
        "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    )
    spark_jars: Annotated[
        Path | None,
        Field(description="folder with Iceberg's jars for Spark; without it there is no rewrite_data_files"),
    ] = None
    spark_options: Annotated[
        dict[str, str], Field(description="further settings of the Spark session, name to value")
    ] = {}
    java_home: Annotated[
        Path | None, Field(description="Java 17 or 21 for Spark; without it JAVA_HOME, then PATH")
    ] = None
    ingest_uris: Annotated[
        tuple[str, ...],
        Field(description="base URLs of the ingesters; maintenance stands back while they lag"),
    ] = ()
    ingest_token: Annotated[
        SecretStr | None, Field(description="serve_token of the ingesters, where they have one")
    ] = None
    lag_records_max: Annotated[
        int, Field(description="records ingestion may lag before maintenance stands back", ge=0)
    ] = 100_000
    lag_age_max_s: Annotated[
        float,
        Field(description="seconds a record may wait for its table before maintenance stands back", gt=0),
    ] = 1_800.0
    lag_share_floor: Annotated[
        float,
        Field(description="share of a round's work that is done however far ingestion lags", gt=0, le=1),
    ] = 0.1
    retention_interval_s: Annotated[
        float, Field(description="seconds between two runs of retention and purge", gt=0)
    ] = 86_400.0
    purge_after_s: Annotated[
        float,
        Field(
            description=(
                "seconds after its drop until a table's files are deleted, and never before the "
                "catalog's undo_window_s"
            ),
            ge=0,
        ),
    ] = 3 * 86_400.0
    orphan_interval_s: Annotated[
        float, Field(description="seconds between two searches for orphan files", gt=0)
    ] = 7 * 86_400.0
    orphan_age_min_s: Annotated[
        float, Field(description="seconds since its last change before a file can count as orphan", ge=3_600)
    ] = 7 * 86_400.0
    lease_s: Annotated[float, Field(description="seconds the leader's lease lasts without renewal", ge=1)] = (
        30.0
    )


class QuerySettings(RoomSettings):
    """Search, SQL and the HTTP API."""

    room = "query"
    model_config = SettingsConfigDict(env_prefix="FIRN_QUERY_", extra="forbid", frozen=True)

    catalog_uri: Annotated[str, Field(description="base URL of the REST catalog")] = "http://127.0.0.1:8181"
    catalog_token: Annotated[SecretStr | None, Field(description="API key for the catalog")] = None
    control_uri: Annotated[
        str,
        Field(
            description=(
                "base URL of `catalog serve --control`, where erasures are asked for "
                "beside another REST catalog"
            )
        ),
    ] = ""
    control_token: Annotated[SecretStr | None, Field(description="API key for the control service")] = None
    trino_uri: Annotated[str, Field(description="base URL of the Trino coordinator")] = (
        "http://127.0.0.1:8080"
    )
    host: Annotated[str, Field(description="address to listen on")] = "127.0.0.1"
    port: Annotated[int, Field(description="port to listen on; 0: any free one", ge=0, le=65535)] = 8282
    allowed_hosts: AllowedHosts = ()
    allowed_origins: AllowedOrigins = ()
    request_timeout_s: RequestTimeout = 60.0
    connections_max: ConnectionsMax = 1_000
    request_bytes_max: Annotated[
        int, Field(description="bytes of the largest request body that is read", ge=1_000)
    ] = 4 * MIB
    ingest_uri: Annotated[
        str,
        Field(
            description=(
                "base URL of `ingest serve`, for lag, dead letters and live tail; empty: answers "
                "cannot tell the lag"
            )
        ),
    ] = ""
    ingest_token: Annotated[
        SecretStr | None, Field(description="serve_token of `ingest serve`, where it has one")
    ] = None
    api: Annotated[str, Field(description="base URL of the API that the command line speaks to")] = (
        "http://127.0.0.1:8282"
    )
    api_key: Annotated[SecretStr | None, Field(description="API key of the command line")] = None
    trino_catalog: Annotated[str, Field(description="name of Trino's catalog that holds the log tables")] = (
        "lake"
    )
    trino_user: Annotated[str, Field(description="user the room's queries run as in Trino")] = "firn"
    trino_password: Annotated[
        SecretStr | None, Field(description="password of that user, where Trino asks for one")
    ] = None
    trino_access: Annotated[
        Path | None,
        Field(
            description=(
                "folder that `python -m query trino-access` wrote, where the API may write the rules "
                "of new tenants; empty: it does not"
            )
        ),
    ] = None
    trino_ca: Annotated[
        str | None,
        Field(description="file with the certificates that Trino's TLS is trusted by; empty: the machine's"),
    ] = None
    search_timeout_s: Annotated[
        float, Field(description="seconds a search may take; then it answers with what it has", gt=0)
    ] = 30.0
    sql_timeout_s: Annotated[
        float, Field(description="seconds a statement of the SQL endpoint may take", gt=0)
    ] = 300.0
    page_rows_max: Annotated[int, Field(description="rows of one page of a search", ge=1, le=100_000)] = (
        10_000
    )
    sql_parse_cpu_s: Annotated[
        float, Field(description="seconds of processor time that reading one statement may take", gt=0)
    ] = 3.0
    sql_readers: Annotated[
        int, Field(description="processes that read statements; each tenant uses one at a time", ge=1)
    ] = 2
    sql_bytes_max: Annotated[
        int,
        Field(description="bytes of values the SQL endpoint gives back; exports have no such limit", ge=1024),
    ] = 16 * MIB
    page_bytes_max: Annotated[
        int,
        Field(
            description="bytes of values of one page of a search, which ends there; `next` goes on", ge=1024
        ),
    ] = 64 * MIB
    sql_rows_max: Annotated[
        int, Field(description="rows the SQL endpoint gives back; exports have no such limit", ge=1)
    ] = 10_000
    scan_bytes_max: Annotated[int, Field(description="bytes of data files one search may open", gt=0)] = (
        64 * 1024 * MIB
    )
    embedded_bytes_max: Annotated[
        int,
        Field(
            description="bytes of data files up to which a search runs in process; above it Trino does", ge=0
        ),
    ] = 4 * 1024 * MIB
    embedded_memory_bytes: Annotated[
        int, Field(description="memory of the in-process engine", ge=64 * MIB)
    ] = 1024 * MIB
    embedded_threads: Annotated[
        int, Field(description="threads of the in-process engine; 0: one per processor", ge=0)
    ] = 0
    concurrent_per_tenant: Annotated[
        int,
        Field(
            description="searches of one tenant that run at once; as many again wait, more are refused", ge=1
        ),
    ] = 8
    sql_concurrent_per_tenant: Annotated[
        int,
        Field(
            description="statements of one tenant that run at once; as many again wait, more are refused",
            ge=1,
        ),
    ] = 4
    requests_max: Annotated[
        int,
        Field(
            description=(
                "requests that run at once, statements aside; the last quarter is for tenants of "
                "which none runs"
            ),
            ge=4,
            le=1_000,
        ),
    ] = 64
    sql_requests_max: Annotated[
        int,
        Field(
            description="statements that run at once; the last quarter is for tenants of which none runs",
            ge=4,
            le=1_000,
        ),
    ] = 32
    tails_per_tenant: Annotated[int, Field(description="live tails of one tenant that run at once", ge=1)] = 2
    queue_timeout_s: Annotated[
        float, Field(description="seconds a search waits for its turn before it is refused", ge=0)
    ] = 10.0
    state: Annotated[str, Field(description="folder of exports and of files fetched from S3")] = "state/query"
    export_part_rows: Annotated[
        int,
        Field(
            description=(
                "rows of one part of an export, about; a part that was begun is written again after a restart"
            ),
            ge=1,
        ),
    ] = 250_000
    exports_kept_s: Annotated[
        float, Field(description="seconds after its start until a finished export is removed", gt=0)
    ] = 7 * 86_400.0
    exports_per_tenant: Annotated[
        int,
        Field(
            description=(
                "exports that are kept of one tenant; more are refused until one is deleted or too old"
            ),
            ge=1,
        ),
    ] = 100
    export_bytes_per_tenant: Annotated[
        int,
        Field(
            description=(
                "bytes of exports that are kept of one tenant; one that would grow beyond stops, and "
                "can be resumed"
            ),
            gt=0,
        ),
    ] = 64 * 1024 * MIB
    erasure_grace_s: Annotated[
        float,
        Field(
            description="seconds that files which held erased rows stay for queries that still read them",
            ge=0,
        ),
    ] = 3_600.0
    erasure_wait_s: Annotated[
        float,
        Field(
            description=(
                "seconds an erasure waits until what had reached Kafka is in the tables; after that "
                "it ends as incomplete"
            ),
            ge=0,
        ),
    ] = 3_600.0
    file_cache_bytes_max: Annotated[
        int, Field(description="bytes of files fetched from S3 that are kept on disk", ge=0)
    ] = 8 * 1024 * MIB


class InfraSettings(RoomSettings):
    """The stack on one machine."""

    room = "infra"
    model_config = SettingsConfigDict(env_prefix="FIRN_INFRA_", extra="forbid", frozen=True)

    state: Annotated[
        Path,
        Field(
            description=(
                "folder of the running stack: its state file, logs and data; relative to the repository root"
            )
        ),
    ] = Path("state")
    cache: Annotated[
        Path,
        Field(
            description=(
                "folder of downloaded JVM parts (FIRN_CACHE goes before it); relative to the repository root"
            )
        ),
    ] = Path(".cache")
    kafka_heap_mb: Annotated[int, Field(description="Java heap of Kafka, MiB", ge=192)] = 512
    trino_heap_mb: Annotated[int, Field(description="Java heap of Trino, MiB", ge=768)] = 1024
    trino_access: Annotated[
        Path | None,
        Field(
            description=(
                "folder that `python -m query trino-access` wrote: Trino then asks for passwords, "
                "over TLS; empty: open on loopback"
            )
        ),
    ] = None
    trino_catalog_token: Annotated[
        SecretStr | None,
        Field(
            description=(
                "API key of scope read that Trino asks the catalog with, where the catalog asks for keys"
            )
        ),
    ] = None
    quick_java: Annotated[
        bool,
        Field(
            description=(
                "compile Java code quickly instead of well: halves start times; turn off to measure "
                "throughput of Kafka or Trino"
            )
        ),
    ] = True
    ready_timeout_factor: Annotated[
        float,
        Field(description="multiplies every time limit for becoming ready; raise it on a slow machine", gt=0),
    ] = 1.0
