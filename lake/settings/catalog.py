"""Settings of the catalog."""

from typing import Annotated, Any

from pydantic import AfterValidator, Field, SecretStr
from pydantic_settings import SettingsConfigDict

from lake.limits import MEANING, PERCENT_MAX, Limit, spell_limit
from lake.retention import parse_retention
from lake.settings.group import MIB, SettingsGroup
from lake.settings.http import HttpSettings, ListenHost, Port
from lake.settings.oidc import OidcSettings
from lake.settings.room import RoomSettings

# What holds where nobody limits it.
ELSEWHERE = {
    Limit.RECORDS_PER_S: "any number",
    Limit.BYTES_PER_S: "any number",
    Limit.STREAMS: "any number",
    Limit.COLUMNS: "as ingest.limits.columns_max says",
    Limit.MEMORY_PERCENT: "as much as is left",
    Limit.SEARCHES_AT_ONCE: "as the settings of the search API say",
    Limit.SEARCH_S_PER_DAY: "any number",
    Limit.SEARCH_BYTES_PER_DAY: "any number",
    Limit.EXPORTS: "as the settings of the search API say",
    Limit.ALERT_RULES: "as the settings of the search API say",
}


class CatalogHttp(HttpSettings):
    """Where the catalog listens, and what it takes from callers."""

    host: ListenHost = "127.0.0.1"
    port: Port = 8181
    request_bytes_max: Annotated[
        int, Field(description="bytes of the largest request body that is read", ge=100_000)
    ] = 64 * 1024 * 1024


class CatalogTls(SettingsGroup):
    """TLS of the catalog's own port."""

    certificate: Annotated[
        str | None, Field(description="file with the TLS certificate chain; empty: plain HTTP")
    ] = None
    key: Annotated[str | None, Field(description="file with the certificate's private key")] = None
    client_ca: Annotated[
        str | None,
        Field(
            description=(
                "file with the CA whose certificates clients have to show, beside their keys; empty: "
                "none is asked for"
            )
        ),
    ] = None


class AccessSettings(SettingsGroup):
    """Who may call."""

    anonymous: Annotated[
        bool, Field(description="let callers in without a key; refused unless the host is loopback")
    ] = False
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


def _limit(limit: Limit, most: int | None = None) -> Any:
    return Field(description=f"{MEANING[limit]}; empty: {ELSEWHERE[limit]}", gt=0, le=most)


class LimitSettings(SettingsGroup):
    """What a tenant may use that has no limits of its own (`python -m query limits`)."""

    records_per_s: Annotated[int | None, _limit(Limit.RECORDS_PER_S)] = None
    bytes_per_s: Annotated[int | None, _limit(Limit.BYTES_PER_S)] = None
    streams: Annotated[int | None, _limit(Limit.STREAMS)] = None
    columns: Annotated[int | None, _limit(Limit.COLUMNS)] = None
    memory_percent: Annotated[int | None, _limit(Limit.MEMORY_PERCENT, PERCENT_MAX)] = None
    searches_at_once: Annotated[int | None, _limit(Limit.SEARCHES_AT_ONCE)] = None
    search_s_per_day: Annotated[int | None, _limit(Limit.SEARCH_S_PER_DAY)] = None
    search_bytes_per_day: Annotated[int | None, _limit(Limit.SEARCH_BYTES_PER_DAY)] = None
    exports: Annotated[int | None, _limit(Limit.EXPORTS)] = None
    alert_rules: Annotated[int | None, _limit(Limit.ALERT_RULES)] = None

    def properties(self) -> dict[str, str]:
        """Returns those that are set, as namespaces have them."""
        set_ones = ((limit, getattr(self, limit.value)) for limit in Limit)
        return {limit.property: spell_limit(most) for limit, most in set_ones if most is not None}


def _checked_retention(text: str) -> str:
    if text.strip():
        parse_retention(text)
    return text.strip()


class CatalogAudit(SettingsGroup):
    """The audit trail: who did what on the catalog itself."""

    enabled: Annotated[bool, Field(description="write the audit trail")] = False
    required: Annotated[bool, Field(description="refuse administrative acts that the trail cannot take")] = (
        True
    )
    folder: Annotated[
        str, Field(description="folder of events that wait until Kafka has them, one below it a worker")
    ] = "state/catalog-audit"
    spool_bytes_max: Annotated[
        int, Field(description="bytes of events of one worker that wait there", ge=MIB)
    ] = 64 * MIB
    uri: Annotated[str, Field(description="base URL of `ingest serve`, which writes the events to Kafka")] = (
        ""
    )
    token: Annotated[
        SecretStr | None, Field(description="`ingest.http.token` of `ingest serve`, where it has one")
    ] = None


class CatalogSettings(RoomSettings):
    """The Iceberg REST catalog."""

    room = "catalog"
    model_config = SettingsConfigDict(env_prefix="FIRN_CATALOG_")

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
    allowed_locations: Annotated[
        list[str], Field(description="URI prefixes besides the warehouse where tables may lie")
    ] = []
    metadata_cache_bytes_max: Annotated[
        int, Field(description="bytes of metadata files kept in memory, compressed", ge=1_000_000)
    ] = 192 * 1024 * 1024
    undo_window_s: Annotated[
        float,
        Field(
            description="seconds for which a dropped table can be brought back before its purge is due", ge=0
        ),
    ] = 3 * 86_400.0
    retention: Annotated[
        str,
        AfterValidator(_checked_retention),
        Field(
            description=(
                "how long rows are kept where neither their stream nor their tenant says so: 30d, 720h; "
                "forever: nobody is reminded; empty: for ever, and the health page says so"
            )
        ),
    ] = ""
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
    commit_rounds_at_once: Annotated[
        int,
        Field(
            description="rounds of commits that run beside each other; one table is in one of them",
            ge=1,
            le=64,
        ),
    ] = 4
    http: CatalogHttp = CatalogHttp()
    tls: CatalogTls = CatalogTls()
    access: AccessSettings = AccessSettings()
    oidc: OidcSettings = OidcSettings()
    audit: CatalogAudit = CatalogAudit()
    limits: LimitSettings = LimitSettings()
