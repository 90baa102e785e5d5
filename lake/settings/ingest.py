"""Settings of ingestion."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, SecretStr, model_validator
from pydantic_settings import SettingsConfigDict

from lake.settings.group import MIB, SettingsGroup
from lake.settings.http import CatalogAccess, ControlSettings, HttpSettings
from lake.settings.kafka import AuditTopic, IngestKafka, InternalTopics, RegistrySettings, UsageTopic
from lake.settings.masking import MaskingSettings
from lake.settings.room import RoomSettings
from lake.settings.topics import REPLAY_STREAM, REPLAY_TENANT, TopicSettings
from lake.system_tables import LETTERS_STREAM
from lake.tenant import SYSTEM_TENANT


class IngestCatalog(CatalogAccess):
    """The Iceberg REST catalog that holds the tables."""

    warehouse: Annotated[
        str, Field(description="where new tables get their locations; empty: where the catalog says")
    ] = ""


class IngestHttp(HttpSettings):
    """What the endpoints of a node and of `ingest serve` take from callers."""

    token: Annotated[
        SecretStr | None,
        Field(description="who calls `ingest serve` or a node has to send this as `Authorization: Bearer`"),
    ] = None
    request_bytes_max: Annotated[
        int, Field(description="bytes of the largest request body that `ingest serve` reads", ge=1_000)
    ] = 16 * MIB


class NodeSettings(SettingsGroup):
    """The health and metrics endpoint of a node."""

    host: Annotated[
        str,
        Field(
            description=(
                "address of a node's health and metrics endpoint; beyond loopback it needs http.token"
            )
        ),
    ] = "127.0.0.1"
    port: Annotated[
        int, Field(description="port of the health and metrics endpoint; 0: any free one", ge=0, le=65535)
    ] = 8383
    tenant_metrics_max: Annotated[
        int,
        Field(
            description=(
                "tenants that have metrics of their own, the busiest ones; all others are one; 0: no tenant "
                "has any"
            ),
            ge=0,
            le=1_000,
        ),
    ] = 20
    uri: Annotated[
        str,
        Field(
            description=(
                "base URL of the running node's endpoint, for buffers and breakers; empty: they are left out"
            )
        ),
    ] = "http://127.0.0.1:8383"


class ServeSettings(SettingsGroup):
    """The endpoint of `ingest serve`."""

    host: Annotated[
        str, Field(description="address `ingest serve` listens on; beyond loopback it needs http.token")
    ] = "127.0.0.1"
    port: Annotated[
        int, Field(description="port `ingest serve` listens on; 0: any free one", ge=0, le=65535)
    ] = 8384
    tails_max: Annotated[
        int, Field(description="live tails that run at once; each reads all input topics", ge=1)
    ] = 8


# So many intervals a table with little traffic may wait where no setting says: a file every five minutes for
# a handful of rows costs a commit each, and merging them.
COLD_INTERVALS = 3


class FlushSettings(SettingsGroup):
    """When a table's records are written and committed."""

    interval_s: Annotated[
        float, Field(description="seconds after its first record until a table is flushed", gt=0)
    ] = 300.0
    visibility_max_s: Annotated[
        float | None,
        Field(
            description=(
                "seconds after which a table with little traffic (less than 64 KiB waiting) is flushed at "
                f"the latest; empty: {COLD_INTERVALS} times interval_s"
            ),
            gt=0,
        ),
    ] = None
    bytes: Annotated[int, Field(description="bytes of raw records after which a table is flushed", gt=0)] = (
        4 * 1024 * MIB
    )
    file_bytes: Annotated[
        int,
        Field(
            description="bytes of a data file of a hot table at which it is closed and the table flushed",
            gt=0,
        ),
    ] = 128 * MIB
    hours_max: Annotated[
        int,
        Field(
            description=(
                "hour partitions of which a hot table has a file open; for more, these are closed first"
            ),
            ge=1,
        ),
    ] = 200
    buffer_bytes_max: Annotated[
        int, Field(description="bytes of raw records all tables together may hold", gt=0)
    ] = 512 * MIB
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

    @property
    def cold_interval_s(self) -> float:
        """Seconds after which a table with little traffic is flushed at the latest."""
        return self.visibility_max_s or COLD_INTERVALS * self.interval_s

    @property
    def within_s(self) -> float:
        """Seconds within which every table is flushed, also one with little traffic."""
        return max(self.interval_s, self.cold_interval_s)


class IngestCommit(SettingsGroup):
    """How a flush becomes part of its table."""

    timeout_s: Annotated[
        float, Field(description="seconds until the outcome of a commit counts as unknown", gt=0)
    ] = 30.0
    snapshots_max: Annotated[
        int,
        Field(
            description=(
                "snapshots of a table from which ingestion takes half of them away itself, since "
                "maintenance is behind; files stay"
            ),
            ge=4,
        ),
    ] = 100
    manifests_max: Annotated[
        int, Field(description="manifests of a table from which ingestion itself gathers them", ge=16)
    ] = 100


class KeyIndexSettings(SettingsGroup):
    """Where the rows of keyed tables are found by their keys."""

    folder: Annotated[Path, Field(description="folder of the key indexes, on a local disk")] = Path(
        "state/ingest/keys"
    )
    bytes_max: Annotated[
        int, Field(description="bytes of the key indexes; the ones unused for longest go first", ge=MIB)
    ] = 10_240 * MIB


class TablesSettings(SettingsGroup):
    """Tables that are new, dropped or failing."""

    new_per_minute: Annotated[
        int,
        Field(
            description=(
                "tables the node creates per minute; records of further ones wait until its memory "
                "is full, then they become dead letters (unstorable)"
            ),
            ge=1,
        ),
    ] = 10_000
    on_deleted: Annotated[
        Literal["park", "dead-letter", "recreate"],
        Field(
            description=(
                "what becomes of records for a dropped table while it may still come back; the table "
                "property firn.on-deleted goes before it"
            )
        ),
    ] = "park"
    park_after_s: Annotated[
        float,
        Field(description="seconds for which a table has to fail alone until its records are parked", gt=0),
    ] = 10.0


class LimitsSettings(SettingsGroup):
    """What a record may be."""

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
    depth_max: Annotated[
        int,
        Field(description="levels of nesting of one record; deeper ones become dead letters", gt=0, le=200),
    ] = 100
    columns_max: Annotated[
        int, Field(description="columns of one table; fields beyond go to _overflow", ge=20)
    ] = 1_000
    late: Annotated[
        Literal["accept"] | Annotated[float, Field(ge=0)],
        Field(
            description=(
                "seconds before its Kafka timestamp a record may be; or accept, which takes any time "
                "and lifts ahead_s too"
            )
        ),
    ] = 3 * 86_400.0
    ahead_s: Annotated[
        float, Field(description="seconds after its Kafka timestamp a record may be", gt=0)
    ] = 86_400.0


class BackfillSettings(SettingsGroup):
    """Files of archives, and records of a topic from before."""

    token_filter: Annotated[
        bool,
        Field(
            description=(
                "whether the files that a backfill writes of whole hours carry a filter of the words in "
                "them, as those of maintenance do"
            )
        ),
    ] = True


class IngestSpark(SettingsGroup):
    """The Spark engine."""

    master: Annotated[
        str,
        Field(description="Spark master of the Spark engine: local[2], spark://host:7077, k8s://..., yarn"),
    ] = "local[2]"
    driver_memory_mb: Annotated[int, Field(description="Java heap of the Spark driver, MiB", ge=512)] = 1_024
    options: Annotated[
        dict[str, str], Field(description="further settings of the Spark session, name to value")
    ] = {}
    java_home: Annotated[
        Path | None, Field(description="Java 17 or 21 for Spark; without it JAVA_HOME, then PATH")
    ] = None
    task_records_max: Annotated[
        int, Field(description="records that one task of the Spark engine reads at most", ge=1)
    ] = 1_000_000
    task_bytes_max: Annotated[
        int, Field(description="bytes of raw records that one task of the Spark engine reads, about", gt=0)
    ] = 256 * MIB


class IngestSettings(RoomSettings):
    """Kafka -> Iceberg."""

    room = "ingest"
    model_config = SettingsConfigDict(env_prefix="FIRN_INGEST_")

    topics: Annotated[
        tuple[TopicSettings, ...], Field(description="the input topics, in TOML as [[ingest.topics]]")
    ] = ()
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
    shares: Annotated[
        int,
        Field(
            description=(
                "parts of the input that nodes at work have among them, and the most nodes that work; 1: one "
                "works, all others stand by. The same on all nodes, and changed while none runs"
            ),
            ge=1,
            le=64,
        ),
    ] = 1
    shutdown_s: Annotated[float, Field(description="seconds SIGTERM leaves for the last flush", gt=0)] = 40.0
    kafka: IngestKafka = IngestKafka()
    registry: RegistrySettings = RegistrySettings()
    internal_topics: InternalTopics = InternalTopics()
    masking: MaskingSettings = MaskingSettings()
    audit: AuditTopic = AuditTopic()
    usage: UsageTopic = UsageTopic()
    catalog: IngestCatalog = IngestCatalog()
    control: ControlSettings = ControlSettings()
    http: IngestHttp = IngestHttp()
    node: NodeSettings = NodeSettings()
    serve: ServeSettings = ServeSettings()
    flush: FlushSettings = FlushSettings()
    commit: IngestCommit = IngestCommit()
    tables: TablesSettings = TablesSettings()
    key_index: KeyIndexSettings = KeyIndexSettings()
    limits: LimitsSettings = LimitsSettings()
    backfill: BackfillSettings = BackfillSettings()
    spark: IngestSpark = IngestSpark()

    @model_validator(mode="after")
    def _check_topics(self) -> Self:
        own = {
            f"internal_topics.{name}": getattr(self.internal_topics, name)
            for name in ("dead_letters", "replay", "parked")
        }
        if len(set(own.values())) < len(own):
            raise ValueError(f"{', '.join(own)} name one topic twice; give each its own")
        names = [topic.name for topic in self.topics]
        if not all(names):
            raise ValueError("topics: one of them has an empty name")
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"topics: {', '.join(twice)} stands there more than once")
        for setting in ("internal_topics.dead_letters", "internal_topics.parked"):
            if own[setting] in names:
                raise ValueError(
                    f"topics: {own[setting]} is the {setting}, which Firn writes; an input topic has to be "
                    "another one"
                )
        return self

    @model_validator(mode="after")
    def _check_shares(self) -> Self:
        if self.shares > 1 and self.engine == "spark":
            raise ValueError(
                "shares: on Spark executors read, and one driver is enough; leave it at 1 with engine spark"
            )
        return self

    @model_validator(mode="after")
    def _check_masking(self) -> Self:
        for topic in self.topics if self.masking.key is None else ():
            if topic.masking is not None and topic.masking.hashes:
                raise ValueError(
                    f"topics: rule {topic.masking.hashes[0]} of {topic.name} hashes, and masking.key is "
                    "empty; name a file that holds one (`openssl rand -hex 32`) as masking.key_file"
                )
        return self

    @property
    def letters_topic(self) -> TopicSettings | None:
        """The dead-letter topic as an input topic: what is read of its messages is one JSON object each.
        None where dead letters are no rows."""
        if not self.internal_topics.dead_letters_table or not self.topics:
            return None
        return TopicSettings(
            name=self.internal_topics.dead_letters,
            format="json",
            tenant=(f"const:{SYSTEM_TENANT.name}",),
            stream=(f"const:{LETTERS_STREAM}",),
        )

    def with_letters_topic(self) -> "IngestSettings":
        """These settings with the dead-letter topic among the input topics, where dead letters are rows."""
        letters = self.letters_topic
        if letters is None or letters in self.topics:
            return self
        return self.model_copy(update={"topics": (*self.topics, letters)})

    def with_own_topics(self) -> "IngestSettings":
        """These settings with those of Firn's own topics among the input topics that are read as such: the
        replay topic, and as `with_letters_topic` says. Where there is no other, there is nothing to read."""
        if not self.topics or any(topic.name == self.internal_topics.replay for topic in self.topics):
            return self.with_letters_topic()
        replay = TopicSettings(
            name=self.internal_topics.replay,
            format="replay",
            tenant=(f"header:{REPLAY_TENANT}",),
            stream=(f"header:{REPLAY_STREAM}",),
        )
        with_replay = self.model_copy(update={"topics": (*self.topics, replay)})
        return with_replay.with_letters_topic()
