"""Settings of table maintenance."""

from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr
from pydantic_settings import SettingsConfigDict

from lake.settings.group import MIB, SettingsGroup
from lake.settings.http import CatalogAccess, ControlSettings
from lake.settings.room import RoomSettings


class OptimizeHttp(SettingsGroup):
    """The metrics endpoint."""

    host: Annotated[str, Field(description="address of the metrics endpoint")] = "127.0.0.1"
    port: Annotated[
        int | None,
        Field(description="port of the metrics endpoint; without it there is none", ge=0, le=65535),
    ] = None


class MergeSettings(SettingsGroup):
    """Which files are merged, and how the merged ones are written."""

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
    keyed_files_min: Annotated[
        int,
        Field(
            description=(
                "small files of a bucket of a keyed table from which they are merged at once; fewer rest "
                "for late_cooldown_s"
            ),
            ge=2,
        ),
    ] = 4
    deleted_share_max: Annotated[
        float,
        Field(
            description="share of deleted rows beyond which a file of a keyed table is written anew",
            ge=0,
            le=1,
        ),
    ] = 0.15
    delete_files_max: Annotated[
        int,
        Field(description="delete files of one file of a keyed table beyond which they become one", ge=1),
    ] = 10
    zstd_level: Annotated[
        int,
        Field(
            description=(
                "zstd level of merged files; columns that it makes no smaller, as ids, are compressed by 3"
            ),
            ge=1,
            le=22,
        ),
    ] = 10
    delta_text: Annotated[
        bool,
        Field(
            description=(
                "whether text in merged files may have Parquet's encodings DELTA_LENGTH_BYTE_ARRAY and "
                "DELTA_BYTE_ARRAY, where that is smaller; the vectorized reader of Iceberg for Spark "
                "knows them from 1.11 on, an older one fails"
            )
        ),
    ] = False
    row_group_rows: Annotated[int, Field(description="rows of a row group in merged files", ge=1_000)] = (
        131_072
    )
    token_filter: Annotated[
        bool,
        Field(
            description=(
                "whether files that maintenance writes carry a filter of the words in them, by which "
                "searches pass over files and row groups"
            )
        ),
    ] = True
    manifests_max: Annotated[
        int, Field(description="manifests of data files from which a table's manifests are merged", ge=2)
    ] = 50
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


class ColdSettings(SettingsGroup):
    """When hours become days, and days months."""

    after_s: Annotated[
        float,
        Field(
            description=(
                "seconds after its end until a day or month is cold: its hours become one file, where that "
                "stays below the target size"
            ),
            ge=3_600,
        ),
    ] = 7 * 86_400.0
    late_cooldown_s: Annotated[
        float,
        Field(
            description="seconds a file of a day or month rests before late data makes it be written again",
            ge=0,
        ),
    ] = 86_400.0
    span_share_max: Annotated[
        float,
        Field(
            description=(
                "share of a table's retention that one file may span: with 0.1, days from a retention of "
                "10 days on, months from 310 days on"
            ),
            ge=0,
            le=1,
        ),
    ] = 0.1
    interval_s: Annotated[
        float,
        Field(description="seconds between two looks, in rounds, for hours and days that became cold", gt=0),
    ] = 6 * 3_600.0


class SnapshotsSettings(SettingsGroup):
    """When snapshots expire."""

    count_max: Annotated[
        int,
        Field(
            description=(
                "snapshots a table has at most, those that branches and tags name aside; a commit of "
                "maintenance leaves half of them"
            ),
            ge=1,
        ),
    ] = 10
    age_max_s: Annotated[
        float, Field(description="seconds after which snapshots expire, but for the newest", gt=0)
    ] = 86_400.0
    interval_s: Annotated[
        float,
        Field(
            description=(
                "seconds between two looks, between rounds, for tables with many snapshots and for purges "
                "that are not to wait"
            ),
            gt=0,
        ),
    ] = 300.0


class OptimizeCommit(SettingsGroup):
    """Commits of maintenance against those of other writers."""

    timeout_s: Annotated[
        float, Field(description="seconds until the outcome of a commit counts as unknown", gt=0)
    ] = 30.0
    attempts_max: Annotated[
        int,
        Field(
            description="attempts to commit against other writers before a table waits for the next round",
            ge=1,
        ),
    ] = 50


class LagSettings(SettingsGroup):
    """The ingesters, and how far they may lag before maintenance stands back."""

    ingest_uris: Annotated[
        tuple[str, ...],
        Field(description="base URLs of the ingesters; maintenance stands back while they lag"),
    ] = ()
    ingest_token: Annotated[
        SecretStr | None, Field(description="`ingest.http.token` of the ingesters, where they have one")
    ] = None
    records_max: Annotated[
        int, Field(description="records ingestion may lag before maintenance stands back", ge=0)
    ] = 100_000
    age_max_s: Annotated[
        float,
        Field(description="seconds a record may wait for its table before maintenance stands back", gt=0),
    ] = 1_800.0
    share_floor: Annotated[
        float,
        Field(description="share of a round's work that is done however far ingestion lags", gt=0, le=1),
    ] = 0.1


class RetentionSettings(SettingsGroup):
    """What is deleted, and how soon."""

    interval_s: Annotated[
        float,
        Field(
            description=(
                "seconds between two runs of retention and purge, counted from 1970 on: with a day they are "
                "due at midnight UTC"
            ),
            gt=0,
        ),
    ] = 86_400.0
    reader_grace_s: Annotated[
        float,
        Field(
            description="seconds that files stay after nothing refers to them: Trino's longest query", ge=0
        ),
    ] = 6 * 3_600.0
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
    storage_requests_per_s_max: Annotated[
        float, Field(description="deletions and listings sent to the storage per second", gt=0)
    ] = 500.0


class OptimizeErasure(SettingsGroup):
    """Erasures that the search API asks for."""

    interval_s: Annotated[
        float, Field(description="seconds between two looks, between rounds, for erasures to carry out", gt=0)
    ] = 1.0


class OptimizeSpark(SettingsGroup):
    """The Spark session."""

    master: Annotated[
        str, Field(description="Spark master: local[2], spark://host:7077, k8s://..., yarn")
    ] = "local[2]"
    driver_memory_mb: Annotated[int, Field(description="Java heap of the Spark driver, MiB", ge=512)] = 1_024
    java_options: Annotated[str, Field(description="options of the Spark driver's JVM")] = (
        "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    )
    jars: Annotated[
        Path | None,
        Field(description="folder with Iceberg's jars for Spark; without it there is no rewrite_data_files"),
    ] = None
    options: Annotated[
        dict[str, str], Field(description="further settings of the Spark session, name to value")
    ] = {}
    java_home: Annotated[
        Path | None, Field(description="Java 17 or 21 for Spark; without it JAVA_HOME, then PATH")
    ] = None


class OptimizeSettings(RoomSettings):
    """Table maintenance on Spark."""

    room = "optimize"
    model_config = SettingsConfigDict(env_prefix="FIRN_OPTIMIZE_")

    interval_s: Annotated[
        float,
        Field(
            description="seconds from the start of one round of maintenance to the start of the next", gt=0
        ),
    ] = 3_600.0
    failures_max: Annotated[int, Field(description="failures in a row after which a table pauses", ge=1)] = 3
    pause_s: Annotated[float, Field(description="seconds a table pauses after too many failures", gt=0)] = (
        6 * 3_600.0
    )
    lease_s: Annotated[float, Field(description="seconds the leader's lease lasts without renewal", ge=1)] = (
        30.0
    )
    catalog: CatalogAccess = CatalogAccess()
    control: ControlSettings = ControlSettings()
    http: OptimizeHttp = OptimizeHttp()
    merge: MergeSettings = MergeSettings()
    cold: ColdSettings = ColdSettings()
    snapshots: SnapshotsSettings = SnapshotsSettings()
    commit: OptimizeCommit = OptimizeCommit()
    lag: LagSettings = LagSettings()
    retention: RetentionSettings = RetentionSettings()
    erasure: OptimizeErasure = OptimizeErasure()
    spark: OptimizeSpark = OptimizeSpark()
