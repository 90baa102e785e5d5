"""What the dashboards show, as data. `R`: over which span rates are taken, as Grafana chooses it."""

from dataclasses import dataclass

R = "[$__rate_interval]"


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel. `expressions`: each with its legend; `unit`: as Grafana calls it. A `single` one shows what
    is now."""

    title: str
    expressions: tuple[tuple[str, str], ...]
    unit: str = "short"
    single: bool = False


@dataclass(frozen=True, slots=True)
class Page:
    """One dashboard: its file's name and Grafana's uid are `firn-<name>`."""

    name: str
    title: str
    panels: tuple[Panel, ...]


def now(title: str, expression: str, unit: str = "short") -> Panel:
    """A single figure."""
    return Panel(title, ((expression, title),), unit, single=True)


def rate(title: str, metric: str, label: str = "", unit: str = "cps") -> Panel:
    """What a counter rises by in a second, of all services together, by one of its labels."""
    by = f" by ({label})" if label else ""
    return Panel(title, ((f"sum{by} (rate({metric}{R}))", f"{{{{{label}}}}}" if label else title),), unit)


def quantiles(title: str, metric: str, *, by: str = "") -> Panel:
    """The median and the 95th percentile of a histogram of seconds; by a label the latter alone."""
    group, legend = (f"le, {by}", f"{{{{{by}}}}}") if by else ("le", "95 %")
    buckets = f"sum by ({group}) (rate({metric}_bucket{R}))"
    median = () if by else ((f"histogram_quantile(0.5, {buckets})", "50 %"),)
    return Panel(title, (*median, (f"histogram_quantile(0.95, {buckets})", legend)), "s")


LAG = "max by (topic, partition) (firn_ingest_group_lag_records)"
# Services that do not measure a time show 0.
BEHIND = "time() - max(firn_ingest_complete_until_timestamp_seconds > 0)"
SINCE_ROUND = "time() - max(firn_catalog_maintenance_last_round_timestamp_seconds > 0)"
SINCE_RULES = "time() - max(firn_query_alert_last_round_timestamp_seconds > 0)"
TABLES_PER_TRANSACTION = (
    f"sum(rate(firn_catalog_transaction_tables_sum{R})) / sum(rate(firn_catalog_transaction_tables_count{R}))"
)
PARKED = Panel("Tables parked", (("max by (reason) (firn_ingest_group_tables_parked)", "{{reason}}"),))
DEAD_LETTERS = rate("Dead letters", "firn_ingest_records_dead_lettered_total", "reason")
WRITTEN = rate("Rows committed", "firn_ingest_records_written_total")
UNEXPECTED = rate("Unexpected errors", "firn_ingest_unexpected_errors_total", "what")

LINE = Page(
    "line",
    "Firn: the line at a glance",
    (
        now("Complete until, behind now", BEHIND, "s"),
        now("Records that wait", f"sum({LAG})"),
        now("Tables parked", "sum(max by (reason) (firn_ingest_group_tables_parked)) or vector(0)"),
        now("Since the last round of maintenance", SINCE_ROUND, "s"),
        now("Services that answer", 'sum(up{job=~"firn-.+"})'),
        now("Erasures that wait for the optimizer", "max(firn_query_erasures_waiting_for_optimizer)"),
        Panel(
            "Messages taken from Kafka, rows committed",
            (
                (f"sum(rate(firn_ingest_records_delivered_total{R}))", "messages"),
                (f"sum(rate(firn_ingest_records_written_total{R}))", "rows"),
            ),
            "cps",
        ),
        Panel("Records that wait, by topic", ((f"sum by (topic) ({LAG})", "{{topic}}"),)),
        DEAD_LETTERS,
        quantiles("Rounds of commits", "firn_ingest_commit_round_seconds"),
        rate("Requests refused at the door", "firn_http_requests_refused_total", "why"),
        UNEXPECTED,
    ),
)

INGEST = Page(
    "ingest",
    "Firn: ingestion",
    (
        rate("Messages taken from Kafka", "firn_ingest_records_delivered_total", "topic"),
        WRITTEN,
        Panel("Behind now", ((BEHIND, "complete until"),), "s"),
        Panel("Records that wait", ((f"sum by (topic) ({LAG})", "{{topic}}"),)),
        Panel("Bytes that wait in memory", (("sum(firn_ingest_buffered_bytes)", "bytes"),), "bytes"),
        Panel("Tables with records that wait", (("sum(firn_ingest_buffered_tables)", "tables"),)),
        rate("Tables flushed early, for their bytes", "firn_ingest_tables_flushed_early_total", "why"),
        rate("Commits of tables", "firn_ingest_table_commits_total", "status"),
        quantiles("Rounds of commits", "firn_ingest_commit_round_seconds"),
        DEAD_LETTERS,
        rate("Rows with errors", "firn_ingest_rows_with_errors_total"),
        rate("Messages masked", "firn_ingest_messages_masked_total", "topic"),
        rate("Values masked", "firn_ingest_values_masked_total", "rule"),
        rate("Values withheld by masking", "firn_ingest_values_withheld_total", "topic"),
        PARKED,
        Panel(
            "Tables that fail or wait",
            (
                ("max(firn_ingest_tables_failing)", "failing"),
                ("max(firn_ingest_tables_postponed)", "new ones that wait"),
            ),
        ),
        rate("Changes of keyed tables", "firn_ingest_changes_total", "result"),
        Panel(
            "Tenants that wait longest",
            (("max by (tenant) (firn_ingest_oldest_commit_age_seconds)", "{{tenant}}"),),
            "s",
        ),
        rate("Records that Kafka removed unread", "firn_ingest_records_expired_total", "topic"),
        rate("Dead letters that are no rows", "firn_ingest_dead_letters_not_stored_total", "reason"),
        rate("Batches that nobody can read", "firn_ingest_ranges_unreadable_total", "topic"),
        rate("Foreign messages in Firn's topics", "firn_ingest_untrusted_messages_total", "topic"),
        UNEXPECTED,
    ),
)

MAINTENANCE = Page(
    "maintenance",
    "Firn: maintenance",
    (
        now("Since the last round", SINCE_ROUND, "s"),
        now("Tables without a turn in the last round", "max(firn_optimize_tables_waiting)"),
        rate("Files merged", "firn_optimize_files_merged_total"),
        rate("Files of hours and days made one", "firn_optimize_cold_files_total", "span"),
        rate("Snapshots expired", "firn_optimize_snapshots_expired_total"),
        rate("Files deleted", "firn_optimize_files_deleted_total"),
        rate("Rounds in which a table failed", "firn_optimize_table_failures_total"),
        rate("Files of others that stay", "firn_optimize_foreign_files_total"),
        rate("Erasures", "firn_optimize_erasures_total", "outcome"),
        rate("Tables that ingestion relieved itself", "firn_ingest_table_cleanups_total", "outcome"),
        rate("Snapshots that ingestion expired itself", "firn_ingest_snapshots_expired_total"),
    ),
)

CATALOG = Page(
    "catalog",
    "Firn: catalog",
    (
        rate("Requests", "firn_catalog_requests_total", "operation", "reqps"),
        rate("Answers", "firn_catalog_requests_total", "status", "reqps"),
        quantiles("Requests, 95th percentile", "firn_catalog_request_seconds", by="operation"),
        rate("Commits", "firn_catalog_commits_total", "result"),
        Panel("Tables that share a transaction, mean", ((TABLES_PER_TRANSACTION, "tables"),)),
        Panel("Metadata in memory", (("sum(firn_catalog_metadata_cache_bytes)", "bytes"),), "bytes"),
        Panel("SQLite's log", (("max(firn_catalog_database_log_bytes)", "bytes"),), "bytes"),
        rate("Turns of background tasks that failed", "firn_catalog_background_task_failures_total", "task"),
        Panel("Keys that expire within two weeks", (("max(firn_catalog_keys_expiring)", "keys"),)),
        rate("Foreign files in requests", "firn_catalog_foreign_files_total", "what"),
        rate("Requests refused at the door", 'firn_http_requests_refused_total{job="firn-catalog"}', "why"),
        rate("Connections closed", 'firn_http_connections_closed_total{job="firn-catalog"}', "why"),
    ),
)

SEARCH = Page(
    "search",
    "Firn: search",
    (
        quantiles("Searches and SQL, 95th percentile, by kind", "firn_query_search_seconds", by="kind"),
        quantiles("Searches and SQL, 95th percentile, by engine", "firn_query_search_seconds", by="engine"),
        rate("Searches and SQL", "firn_query_search_seconds_count", "kind", "reqps"),
        Panel("Behind now: what a search cannot see yet", ((BEHIND, "complete until"),), "s"),
        rate("Files whose filter a search asked", "firn_query_token_filtered_files_total", "outcome"),
        rate("Token filters read", "firn_query_token_filters_read_total", "outcome"),
        rate("Bytes of token filters read", "firn_query_token_filter_bytes_read_total", unit="Bps"),
        Panel("Token filters kept", (("sum(firn_query_token_filter_pack_bytes)", "bytes"),), "bytes"),
        rate("Readers of SQL that were ended", "firn_query_sql_readers_ended_total", "why"),
        Panel("Live tails", (("sum(firn_ingest_live_tails)", "tails"),)),
        rate("Records that live tails passed over", "firn_ingest_live_tail_dropped_total"),
        Panel(
            "Erasures that wait for the optimizer",
            (("max(firn_query_erasures_waiting_for_optimizer)", "erasures"),),
        ),
        now("Servers that evaluate rules of alerts", "sum(firn_query_alert_evaluator)"),
        Panel(
            "Rules of alerts",
            (
                ("max(firn_catalog_alert_rules)", "all"),
                ("max(firn_query_alert_rules)", "evaluated"),
                ("max by (cause) (firn_query_alert_rules_failing)", "with a problem ({{cause}})"),
                ("max(firn_query_alerts_firing)", "alerts that fire"),
            ),
        ),
        Panel("Rules behind what is in", (("max(firn_query_alert_seconds_behind)", "furthest"),), "s"),
        now("Since the last round of rules", SINCE_RULES, "s"),
        quantiles("Rounds of rules", "firn_query_alert_round_seconds"),
        Panel(
            "Messages of alerts that are sent again",
            (("max by (receiver) (firn_query_alert_messages_waiting)", "{{receiver}}"),),
        ),
        rate("Messages of alerts", "firn_query_alert_messages_total", "outcome"),
        rate("Windows passed over", "firn_query_alert_windows_skipped_total"),
        rate("Requests over a limit of a day", "firn_query_requests_over_limit_total", "limit"),
        rate("Requests refused at the door", 'firn_http_requests_refused_total{job="firn-query"}', "why"),
    ),
)

PAGES = (LINE, INGEST, MAINTENANCE, CATALOG, SEARCH)
