"""Settings of search, SQL and the HTTP API."""

from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr
from pydantic_settings import SettingsConfigDict

from lake.settings.group import MIB, SettingsGroup
from lake.settings.http import CatalogAccess, ControlSettings, HttpSettings, ListenHost, Port
from lake.settings.room import RoomSettings


class QueryHttp(HttpSettings):
    """Where the API listens, and what it takes from callers."""

    host: ListenHost = "127.0.0.1"
    port: Port = 8282
    request_bytes_max: Annotated[
        int, Field(description="bytes of the largest request body that is read", ge=1_000)
    ] = 4 * MIB


class IngestAccess(SettingsGroup):
    """`ingest serve`."""

    uri: Annotated[
        str,
        Field(
            description=(
                "base URL of `ingest serve`, for lag, dead letters and live tail; empty: answers "
                "cannot tell the lag"
            )
        ),
    ] = ""
    token: Annotated[
        SecretStr | None, Field(description="`ingest.http.token` of `ingest serve`, where it has one")
    ] = None


class ClientSettings(SettingsGroup):
    """The API as the command line asks it."""

    uri: Annotated[str, Field(description="base URL of the API that the command line speaks to")] = (
        "http://127.0.0.1:8282"
    )
    key: Annotated[SecretStr | None, Field(description="API key of the command line")] = None


class TrinoSettings(SettingsGroup):
    """Trino, as the API asks it."""

    uri: Annotated[str, Field(description="base URL of the Trino coordinator")] = "http://127.0.0.1:8080"
    catalog: Annotated[str, Field(description="name of Trino's catalog that holds the log tables")] = "lake"
    user: Annotated[str, Field(description="user the room's queries run as in Trino")] = "firn"
    password: Annotated[
        SecretStr | None, Field(description="password of that user, where Trino asks for one")
    ] = None
    access: Annotated[
        Path | None,
        Field(
            description=(
                "folder that `python -m query trino-access` wrote, where the API may write the rules "
                "of new tenants; empty: it does not"
            )
        ),
    ] = None
    ca: Annotated[
        str | None,
        Field(description="file with the certificates that Trino's TLS is trusted by; empty: the machine's"),
    ] = None


class SearchSettings(SettingsGroup):
    """Limits of searches and live tails."""

    timeout_s: Annotated[
        float, Field(description="seconds a search may take; then it answers with what it has", gt=0)
    ] = 30.0
    page_rows_max: Annotated[int, Field(description="rows of one page of a search", ge=1, le=100_000)] = (
        10_000
    )
    page_bytes_max: Annotated[
        int,
        Field(
            description="bytes of values of one page of a search, which ends there; `next` goes on", ge=1024
        ),
    ] = 64 * MIB
    scan_bytes_max: Annotated[int, Field(description="bytes of data files one search may open", gt=0)] = (
        64 * 1024 * MIB
    )
    filter_cache_bytes_max: Annotated[
        int,
        Field(
            description=(
                "bytes of token filters of data files that are kept on disk, by which searches pass over "
                "files; 0: searches do without"
            ),
            ge=0,
        ),
    ] = 2 * 1024 * MIB
    concurrent_per_tenant: Annotated[
        int,
        Field(
            description="searches of one tenant that run at once; as many again wait, more are refused", ge=1
        ),
    ] = 8
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
    queue_timeout_s: Annotated[
        float, Field(description="seconds a search waits for its turn before it is refused", ge=0)
    ] = 10.0
    tails_per_tenant: Annotated[int, Field(description="live tails of one tenant that run at once", ge=1)] = 2


class SqlSettings(SettingsGroup):
    """Limits of the SQL endpoint."""

    timeout_s: Annotated[
        float, Field(description="seconds a statement of the SQL endpoint may take", gt=0)
    ] = 300.0
    parse_cpu_s: Annotated[
        float, Field(description="seconds of processor time that reading one statement may take", gt=0)
    ] = 3.0
    readers: Annotated[
        int, Field(description="processes that read statements; each tenant uses one at a time", ge=1)
    ] = 2
    bytes_max: Annotated[
        int,
        Field(description="bytes of values the SQL endpoint gives back; exports have no such limit", ge=1024),
    ] = 16 * MIB
    rows_max: Annotated[
        int, Field(description="rows the SQL endpoint gives back; exports have no such limit", ge=1)
    ] = 10_000
    concurrent_per_tenant: Annotated[
        int,
        Field(
            description="statements of one tenant that run at once; as many again wait, more are refused",
            ge=1,
        ),
    ] = 4
    requests_max: Annotated[
        int,
        Field(
            description="statements that run at once; the last quarter is for tenants of which none runs",
            ge=4,
            le=1_000,
        ),
    ] = 32


class EmbeddedSettings(SettingsGroup):
    """The engine in process, DuckDB."""

    scan_bytes_max: Annotated[
        int,
        Field(
            description="bytes of data files up to which a search runs in process; above it Trino does", ge=0
        ),
    ] = 4 * 1024 * MIB
    memory_bytes: Annotated[
        int,
        Field(
            description="memory of the in-process engine; what it keeps of files that it has read takes up "
            "to a quarter of that besides",
            ge=64 * MIB,
        ),
    ] = 1024 * MIB
    threads: Annotated[
        int, Field(description="threads of the in-process engine; 0: one per processor", ge=0)
    ] = 0
    file_cache_bytes_max: Annotated[
        int, Field(description="bytes of files fetched from S3 that are kept on disk", ge=0)
    ] = 8 * 1024 * MIB


class ExportSettings(SettingsGroup):
    """Exports that are kept as files."""

    part_rows: Annotated[
        int,
        Field(
            description=(
                "rows of one part of an export, about; a part that was begun is written again after a restart"
            ),
            ge=1,
        ),
    ] = 250_000
    kept_s: Annotated[
        float, Field(description="seconds after its start until a finished export is removed", gt=0)
    ] = 7 * 86_400.0
    count_per_tenant: Annotated[
        int,
        Field(
            description=(
                "exports that are kept of one tenant; more are refused until one is deleted or too old"
            ),
            ge=1,
        ),
    ] = 100
    bytes_per_tenant: Annotated[
        int,
        Field(
            description=(
                "bytes of exports that are kept of one tenant; one that would grow beyond stops, and "
                "can be resumed"
            ),
            gt=0,
        ),
    ] = 64 * 1024 * MIB


class ErasureSettings(SettingsGroup):
    """Erasures."""

    grace_s: Annotated[
        float,
        Field(
            description="seconds that files which held erased rows stay for queries that still read them",
            ge=0,
        ),
    ] = 3_600.0
    wait_s: Annotated[
        float,
        Field(
            description=(
                "seconds an erasure waits until what had reached Kafka is in the tables; after that "
                "it ends as incomplete"
            ),
            ge=0,
        ),
    ] = 3_600.0


class AuditSettings(SettingsGroup):
    """The audit trail: who did what."""

    enabled: Annotated[
        bool,
        Field(description="write the audit trail; it goes by `ingest.uri` to the topic `ingest.audit.topic`"),
    ] = False
    required: Annotated[
        bool,
        Field(description="refuse administrative acts that the trail cannot take; searches always go on"),
    ] = True
    spool_bytes_max: Annotated[
        int,
        Field(description="bytes of events that wait on this machine until Kafka has them", ge=MIB),
    ] = 256 * MIB


class UsageSettings(SettingsGroup):
    """What tenants used, as a table."""

    enabled: Annotated[
        bool,
        Field(
            description=(
                "write what tenants used into `system.usage`; it goes by `ingest.uri` to the topic "
                "`ingest.usage.topic`"
            )
        ),
    ] = False
    interval_s: Annotated[
        float,
        Field(
            description=(
                "seconds between two looks at what all tables say of what came into them; after midnight "
                "(UTC) there is one at once"
            ),
            gt=0,
            le=86_400.0,
        ),
    ] = 21_600.0


class ElasticsearchSettings(SettingsGroup):
    """The part of Elasticsearch's API that is answered, under `/elasticsearch`."""

    enabled: Annotated[
        bool,
        Field(
            description="answer Elasticsearch's requests under /elasticsearch, with the same keys and limits"
        ),
    ] = True
    searches_max: Annotated[
        int, Field(description="searches of one request to `_msearch`; more are refused", ge=1, le=1_000)
    ] = 50
    indices_max: Annotated[
        int, Field(description="indices that one search may be about; more are refused", ge=1, le=100)
    ] = 50


class AlertSettings(SettingsGroup):
    """Rules over what is logged, and whom they tell."""

    enabled: Annotated[
        bool,
        Field(
            description=(
                "evaluate the rules of alerts, one server at a time; needs `ingest.uri`, which says until "
                "when everything is in the tables"
            )
        ),
    ] = False
    alertmanagers: Annotated[
        tuple[str, ...],
        Field(
            description="base URLs of Prometheus Alertmanagers; each is told of every alert", max_length=10
        ),
    ] = ()
    webhook_targets: Annotated[
        tuple[str, ...],
        Field(
            description=(
                "hosts with ports, like hooks.example.org:443, to which webhooks of rules may go; link-local "
                "addresses and those of clouds' metadata are refused all the same"
            )
        ),
    ] = ()
    webhook_secret: Annotated[
        SecretStr | None,
        Field(
            description=(
                "secret of which each tenant's key for signing webhooks is made (`python -m query rules "
                "key`); without it no webhook is sent"
            )
        ),
    ] = None
    pages_uri: Annotated[
        str,
        Field(description="base URL of the front end, which links of alerts lead to; empty: they have none"),
    ] = ""
    rules_per_tenant: Annotated[
        int, Field(description="rules that are kept of one tenant whose limits say nothing", ge=1)
    ] = 200
    groups_max: Annotated[
        int, Field(description="groups for which one rule alerts at once", ge=1, le=1_000)
    ] = 100
    every_min_s: Annotated[
        float, Field(description="seconds; rules that would be looked at more often are refused", ge=1)
    ] = 60.0
    catch_up_s: Annotated[
        float,
        Field(
            description="seconds; windows that are older when they could be looked at are passed over", gt=0
        ),
    ] = 86_400.0
    resend_s: Annotated[
        float,
        Field(
            description=(
                "seconds after which Alertmanager is told again of an alert that goes on; it takes one for "
                "over that it did not hear of four times as long, or for five minutes"
            ),
            gt=0,
        ),
    ] = 60.0
    shown_s: Annotated[
        float,
        Field(
            description=(
                "seconds between an alert and its end, where Alertmanager hears of both late; more than its "
                "`group_wait`"
            ),
            ge=0,
        ),
    ] = 60.0
    lease_s: Annotated[
        float,
        Field(description="seconds after which another server evaluates in place of one that died", ge=1),
    ] = 6.0


class BoardSettings(SettingsGroup):
    """Boards of searches, which tenants keep."""

    per_tenant: Annotated[int, Field(description="boards that are kept of one tenant", ge=1, le=1_000)] = 100


class QuerySettings(RoomSettings):
    """Search, SQL and the HTTP API."""

    room = "query"
    model_config = SettingsConfigDict(env_prefix="FIRN_QUERY_")

    state: Annotated[str, Field(description="folder of exports and of files fetched from S3")] = "state/query"
    catalog: CatalogAccess = CatalogAccess()
    control: ControlSettings = ControlSettings()
    http: QueryHttp = QueryHttp()
    ingest: IngestAccess = IngestAccess()
    client: ClientSettings = ClientSettings()
    trino: TrinoSettings = TrinoSettings()
    search: SearchSettings = SearchSettings()
    sql: SqlSettings = SqlSettings()
    embedded: EmbeddedSettings = EmbeddedSettings()
    export: ExportSettings = ExportSettings()
    erasure: ErasureSettings = ErasureSettings()
    audit: AuditSettings = AuditSettings()
    usage: UsageSettings = UsageSettings()
    alerts: AlertSettings = AlertSettings()
    boards: BoardSettings = BoardSettings()
    elasticsearch: ElasticsearchSettings = ElasticsearchSettings()
