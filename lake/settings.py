"""Every setting of every room: one class per room, one row per setting with its default, unit and help.

Values come, the later the stronger, from the default here, from the section named like the room in one TOML file (`firn.toml` in
the working directory, or where `FIRN_CONFIG` points), from the environment (`FIRN_<ROOM>_<SETTING>`), and from the command line.
"""

import os
import tomllib
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from lake.errors import SettingsError

CONFIG_VARIABLE = "FIRN_CONFIG"
CONFIG_DEFAULT = "firn.toml"
MIB = 1024 * 1024


def config_file() -> Path:
    """The one TOML file of the stack; it need not exist."""
    return Path(os.environ.get(CONFIG_VARIABLE, CONFIG_DEFAULT))


class _TomlSection(PydanticBaseSettingsSource):
    """The section of the TOML file that belongs to one room."""

    def __init__(self, settings_cls: type[BaseSettings], room: str) -> None:
        super().__init__(settings_cls)
        self._room = room

    def get_field_value(self, field: Any, field_name: str) -> tuple[Any, str, bool]:
        return field.default, field_name, False

    def __call__(self) -> dict[str, Any]:
        path = config_file()
        if not path.is_file():
            return {}
        try:
            document = tomllib.loads(path.read_text())
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise SettingsError(f"{path} is not valid TOML ({error}); correct it or point {CONFIG_VARIABLE} at another file") from error
        return dict(document.get(self._room, {}))


class RoomSettings(BaseSettings):
    """Base of the rooms' settings; a wrong value is one `SettingsError` that names the setting and where to set it."""

    room: ClassVar[str]
    model_config = SettingsConfigDict(extra="forbid", frozen=True)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the base class calls by name
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, _TomlSection(settings_cls, cls.room)

    @classmethod
    def load(cls, **overrides: Any) -> Self:
        """Reads all sources; overrides that are None (a flag not given) do not count."""
        try:
            return cls(**{name: value for name, value in overrides.items() if value is not None})
        except ValidationError as error:
            rows = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()]
            prefix = str(cls.model_config.get("env_prefix", ""))
            raise SettingsError(
                f"settings of {cls.room}: {'; '.join(rows)}. Set it as {prefix}<NAME>, in section [{cls.room}] of {config_file()}, or by its flag"
            ) from error


class StorageSettings(RoomSettings):
    """Object storage. Local files need none of this."""

    room = "storage"
    model_config = SettingsConfigDict(env_prefix="FIRN_STORAGE_", extra="forbid", frozen=True)

    s3_endpoint: Annotated[str | None, Field(description="URL of an S3-compatible endpoint; empty: AWS")] = None
    s3_region: Annotated[str, Field(description="S3 region")] = "us-east-1"
    s3_access_key_id: Annotated[str | None, Field(description="S3 access key; empty: the environment's usual credentials")] = None
    s3_secret_access_key: Annotated[SecretStr | None, Field(description="S3 secret key")] = None
    s3_path_style: Annotated[bool, Field(description="address buckets by path instead of by host name")] = True
    request_timeout_s: Annotated[float, Field(description="seconds until one storage request is given up", gt=0)] = 60.0


class CatalogSettings(RoomSettings):
    """The Iceberg REST catalog."""

    room = "catalog"
    model_config = SettingsConfigDict(env_prefix="FIRN_CATALOG_", extra="forbid", frozen=True)

    database_url: Annotated[str, Field(description="SQLAlchemy URL: sqlite:///path or postgresql+psycopg://user@host/db")] = "sqlite:///state/catalog.db"
    warehouse: Annotated[str, Field(description="URI below which tables get their locations: file:///path or s3://bucket/prefix")] = ""
    host: Annotated[str, Field(description="address to listen on")] = "127.0.0.1"
    port: Annotated[int, Field(description="port to listen on; 0: any free one", ge=0, le=65535)] = 8181
    anonymous: Annotated[bool, Field(description="let callers in without a key; refused unless the host is loopback")] = False
    allowed_locations: Annotated[list[str], Field(description="URI prefixes besides the warehouse where tables may lie")] = []
    metadata_cache_bytes_max: Annotated[int, Field(description="bytes of metadata files kept in memory", ge=1_000_000)] = 96 * 1024 * 1024
    request_bytes_max: Annotated[int, Field(description="bytes of the largest request body that is read", ge=100_000)] = 64 * 1024 * 1024
    commit_rounds_at_once: Annotated[int, Field(description="rounds of commits that run beside each other; one table is in one of them", ge=1, le=64)] = 4


class TopicSettings(BaseModel):
    """How one input topic is read. Rules are tried in order, the first that yields a name wins."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, Field(description="name of the topic")]
    format: Annotated[Literal["auto", "json", "text"], Field(description="auto: what starts with { is JSON, anything else a text line")] = "auto"
    tenant: Annotated[tuple[str, ...], Field(description="rules for the tenant: header:NAME, field:NAME, key, topic:REGEX (its first group), const:NAME")] = (
        "header:tenant",
        "field:tenant",
    )
    stream: Annotated[tuple[str, ...], Field(description="rules for the stream, of the same form; `logs` where none yields a name")] = ("header:stream",)


class IngestSettings(RoomSettings):
    """Kafka -> Iceberg."""

    room = "ingest"
    model_config = SettingsConfigDict(env_prefix="FIRN_INGEST_", extra="forbid", frozen=True)

    bootstrap_servers: Annotated[str, Field(description="Kafka brokers, host:port separated by commas")] = "127.0.0.1:9092"
    group: Annotated[str, Field(description="Kafka consumer group that holds the offsets")] = "firn"
    topics: Annotated[tuple[TopicSettings, ...], Field(description="the input topics, in TOML as [[ingest.topics]]")] = ()
    dead_letter_topic: Annotated[str, Field(description="where messages go that cannot be stored")] = "firn.dead-letters"
    catalog_uri: Annotated[str, Field(description="base URL of the REST catalog")] = "http://127.0.0.1:8181"
    catalog_token: Annotated[SecretStr | None, Field(description="API key for the catalog")] = None
    warehouse: Annotated[str, Field(description="where new tables get their locations; empty: where the catalog says")] = ""
    host: Annotated[str, Field(description="address of the health and metrics endpoint")] = "127.0.0.1"
    port: Annotated[int, Field(description="port of the health and metrics endpoint; 0: any free one", ge=0, le=65535)] = 8383
    flush_interval_s: Annotated[float, Field(description="seconds after its first record until a table is flushed", gt=0)] = 300.0
    flush_bytes: Annotated[int, Field(description="bytes of raw records after which a table is flushed", gt=0)] = 256 * MIB
    buffer_bytes_max: Annotated[int, Field(description="bytes of raw records all tables together may hold", gt=0)] = 512 * MIB
    record_bytes_max: Annotated[int, Field(description="bytes of one message; larger ones become dead letters", gt=0)] = 4 * MIB
    depth_max: Annotated[int, Field(description="levels of nesting of one record; deeper ones become dead letters", gt=0, le=200)] = 100
    columns_max: Annotated[int, Field(description="columns of one table; fields beyond go to _overflow", ge=20)] = 1_000
    late_limit: Annotated[Literal["accept"] | float, Field(description="seconds before its Kafka timestamp a record may be; or accept")] = 3 * 86_400.0
    ahead_limit_s: Annotated[float, Field(description="seconds after its Kafka timestamp a record may be", gt=0)] = 86_400.0
    commit_timeout_s: Annotated[float, Field(description="seconds until the outcome of a commit counts as unknown", gt=0)] = 30.0
    shutdown_s: Annotated[float, Field(description="seconds SIGTERM leaves for the last flush", gt=0)] = 60.0


class OptimizeSettings(RoomSettings):
    """Table maintenance on Spark."""

    room = "optimize"
    model_config = SettingsConfigDict(env_prefix="FIRN_OPTIMIZE_", extra="forbid", frozen=True)

    catalog_uri: Annotated[str, Field(description="base URL of the REST catalog")] = "http://127.0.0.1:8181"
    catalog_token: Annotated[SecretStr | None, Field(description="API key for the catalog")] = None


class QuerySettings(RoomSettings):
    """Search, SQL and the HTTP API."""

    room = "query"
    model_config = SettingsConfigDict(env_prefix="FIRN_QUERY_", extra="forbid", frozen=True)

    catalog_uri: Annotated[str, Field(description="base URL of the REST catalog")] = "http://127.0.0.1:8181"
    catalog_token: Annotated[SecretStr | None, Field(description="API key for the catalog")] = None
    trino_uri: Annotated[str, Field(description="base URL of the Trino coordinator")] = "http://127.0.0.1:8080"
    host: Annotated[str, Field(description="address to listen on")] = "127.0.0.1"
    port: Annotated[int, Field(description="port to listen on; 0: any free one", ge=0, le=65535)] = 8282


class InfraSettings(RoomSettings):
    """The stack on one machine."""

    room = "infra"
    model_config = SettingsConfigDict(env_prefix="FIRN_INFRA_", extra="forbid", frozen=True)

    state: Annotated[Path, Field(description="folder of the running stack: its state file, logs and data; relative to the repository root")] = Path("state")
    cache: Annotated[Path, Field(description="folder of downloaded JVM parts (FIRN_CACHE goes before it); relative to the repository root")] = Path(".cache")
    kafka_heap_mb: Annotated[int, Field(description="Java heap of Kafka, MiB", ge=192)] = 512
    trino_heap_mb: Annotated[int, Field(description="Java heap of Trino, MiB", ge=768)] = 1024
    ready_timeout_factor: Annotated[float, Field(description="multiplies every time limit for becoming ready; raise it on a slow machine", gt=0)] = 1.0
