"""Every metric Firn exposes, in one typed catalogue. Labels are bounded: never a tenant's name without a
limit."""

from prometheus_client import Counter, Gauge, Histogram

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

# ---- ingest
RECORDS_DELIVERED = Counter("firn_ingest_records_delivered_total", "Messages taken from Kafka", ["topic"])
RECORDS_WRITTEN = Counter("firn_ingest_records_written_total", "Rows committed to tables")
CHANGES = Counter(
    "firn_ingest_changes_total",
    "Changes of rows that keyed tables have committed, by what became of them",
    ["result"],
)
RECORDS_ALREADY_COMMITTED = Counter(
    "firn_ingest_records_already_committed_total",
    "Messages skipped because their table had committed them before a restart",
)
RECORDS_DEAD = Counter(
    "firn_ingest_records_dead_lettered_total", "Messages sent to the dead-letter topic", ["reason"]
)
LETTERS_NOT_STORED = Counter(
    "firn_ingest_dead_letters_not_stored_total",
    "Dead letters that are no rows of system.dead_letters; they stay in their topic",
    ["reason"],
)
MESSAGES_MASKED = Counter(
    "firn_ingest_messages_masked_total",
    "Messages of which something was masked before it was kept",
    ["topic"],
)
VALUES_MASKED = Counter(
    "firn_ingest_values_masked_total",
    "Values dropped, hashed or cut by the rules of their topic's masking",
    ["topic", "rule", "action"],
)
VALUES_WITHHELD = Counter(
    "firn_ingest_values_withheld_total",
    "Values that masking kept nowhere, since its rules could not be asked about them",
    ["topic"],
)
RANGES_UNREADABLE = Counter(
    "firn_ingest_ranges_unreadable_total",
    "Batches stepped over because Kafka's client cannot read them",
    ["topic"],
)
FOREIGN_MESSAGES = Counter(
    "firn_ingest_untrusted_messages_total",
    "Messages in Firn's own topics that somebody else wrote; not followed",
    ["topic"],
)
RECORDS_EXPIRED = Counter(
    "firn_ingest_records_expired_total",
    "Offsets that Kafka's retention removed before they were read",
    ["topic"],
)
RECORDS_PARKED = Counter("firn_ingest_records_parked_total", "Messages sent to the parking topic")
TENANT_RECORDS = Gauge(
    "firn_ingest_tenant_records",
    "Messages in the last ten minutes that ended, of the busiest tenants each (node.tenant_metrics_max), of "
    "all others under an empty name",
    ["tenant"],
)
TENANT_BYTES = Gauge("firn_ingest_tenant_bytes", "Bytes of these messages' values", ["tenant"])
TENANTS_CONFUSABLE = Counter(
    "firn_ingest_confusable_tenants_total",
    "New tables of tenants with a peculiar name, or that look like another tenant; each in the log",
    ["what"],
)
TABLES_PARKED = Gauge(
    "firn_ingest_tables_parked", "Tables that take no rows for now, by why; the active node's", ["reason"]
)
TABLES_FAILING = Gauge(
    "firn_ingest_tables_failing", "Tables whose last attempt failed and that are not parked"
)
TABLES_POSTPONED = Gauge(
    "firn_ingest_tables_postponed", "New tables that wait because of tables.new_per_minute"
)
SECOND_WRITERS = Gauge(
    "firn_ingest_concurrent_writers",
    "Other ingesters that were seen to write the same topics into the same tables",
)
ROWS_WITH_ERRORS = Counter("firn_ingest_rows_with_errors_total", "Rows with an entry in _errors")
UNFORESEEN = Counter(
    "firn_ingest_unexpected_errors_total",
    "Errors nobody foresaw, each in the log with its trace: the work went on another way",
    ["what"],
)
COMMITS = Counter("firn_ingest_table_commits_total", "Table commits by outcome", ["status"])
TABLE_RELIEFS = Counter(
    "firn_ingest_table_cleanups_total",
    "Tables whose snapshots and manifests ingestion took back itself, because maintenance is behind",
    ["outcome"],
)
RELIEF_SNAPSHOTS = Counter("firn_ingest_snapshots_expired_total", "Snapshots that ingestion expired itself")
ROUND_SECONDS = Histogram(
    "firn_ingest_commit_round_seconds",
    "Wall seconds from sending a round of commits to its answer",
    buckets=_SECONDS,
)
BUFFERED_BYTES = Gauge("firn_ingest_buffered_bytes", "Bytes of raw messages waiting")
FLUSHED_EARLY = Counter(
    "firn_ingest_tables_flushed_early_total",
    "Tables flushed for the bytes that waited: of their tenant (limit: memory_percent), or of all (full)",
    ["why"],
)
BUFFERED_TABLES = Gauge("firn_ingest_buffered_tables", "Tables with waiting messages")
LAG_RECORDS = Gauge(
    "firn_ingest_lag_records",
    "Offsets between the group offset and the end of the partition; the active node's",
    ["topic", "partition"],
)

# ---- ingest serve
GROUP_LAG_RECORDS = Gauge(
    "firn_ingest_group_lag_records",
    "Offsets between the group offset and the end of the partition, asked of Kafka",
    ["topic", "partition"],
)
GROUP_TABLES_PARKED = Gauge(
    "firn_ingest_group_tables_parked",
    "Tables that take no rows for now, by why, asked of the catalog",
    ["reason"],
)
COMPLETE_UNTIL = Gauge(
    "firn_ingest_complete_until_timestamp_seconds",
    "Time (epoch) before which every record of the input topics is durable",
)
STALEST_COMMIT = Gauge(
    "firn_ingest_oldest_commit_age_seconds",
    "Seconds since the last commit of the tenants that have waited longest",
    ["tenant"],
)
LETTERS_REPLAYED = Counter("firn_ingest_dead_letters_replayed_total", "Dead letters sent again")
TAILS = Gauge("firn_ingest_live_tails", "Live tails that run")
TAIL_DROPPED = Counter(
    "firn_ingest_live_tail_dropped_total", "Records a live tail passed over because its reader was too slow"
)

# ---- optimize
OPTIMIZE_FILES_MERGED = Counter("firn_optimize_files_merged_total", "Small files that went into merged ones")
OPTIMIZE_COLD_FILES = Counter(
    "firn_optimize_cold_files_total",
    "Files of hours and days that went into the file of a day or month",
    ["span"],
)
OPTIMIZE_SNAPSHOTS_EXPIRED = Counter("firn_optimize_snapshots_expired_total", "Snapshots expired")
OPTIMIZE_FILES_DELETED = Counter(
    "firn_optimize_files_deleted_total", "Files deleted after the readers' grace"
)
OPTIMIZE_FOREIGN_FILES = Counter(
    "firn_optimize_foreign_files_total",
    "Files that were to be deleted for a table and are not that table's; they stay",
)
OPTIMIZE_FAILURES = Counter("firn_optimize_table_failures_total", "Rounds in which a table failed")
OPTIMIZE_WAITING = Gauge(
    "firn_optimize_tables_waiting", "Tables that did not get their turn in the last round"
)
OPTIMIZE_ERASURES = Counter(
    "firn_optimize_erasures_total", "Requests for an erasure that were carried out", ["outcome"]
)
OPTIMIZE_ROUND_ENDED = Gauge(
    "firn_optimize_last_round_timestamp_seconds",
    "When the last round of maintenance ended (epoch); 0: none yet",
)

# ---- query
SEARCH_SECONDS = Histogram(
    "firn_query_search_seconds",
    "Wall seconds from a search's request to the end of its answer, by kind, as the audit trail calls it, "
    "and the engine that it asked (none: no file was left to be read)",
    ["kind", "engine"],
    buckets=(*_SECONDS, 120.0, 300.0),
)
QUERY_LIMITED = Counter(
    "firn_query_requests_over_limit_total",
    "Requests refused because their tenant has used what it may, by limit",
    ["limit"],
)
QUERY_ERASURES_WAITING = Gauge(
    "firn_query_erasures_waiting_for_optimizer",
    "Erasures whose rows no optimizer has begun to take away, long after it was asked to",
)
ALERT_LEADER = Gauge(
    "firn_query_alert_evaluator", "1 where this server evaluates the rules of alerts, else 0"
)
ALERT_RULES = Gauge("firn_query_alert_rules", "Rules of alerts that are kept; the evaluator's")
ALERT_RULES_FAILING = Gauge(
    "firn_query_alert_rules_failing",
    "Rules whose last look had a problem, by its cause: rule (for whoever wrote it) or service",
    ["cause"],
)
ALERT_LAST_ROUND = Gauge(
    "firn_query_alert_last_round_timestamp_seconds",
    "When the evaluator last had looked at all that was due, and written it (epoch); 0: never",
)
ALERT_WAITING = Gauge(
    "firn_query_alert_messages_waiting",
    "Messages that their receiver has not taken at the first attempt and that are sent again, by its kind",
    ["receiver"],
)
ALERTS_FIRING = Gauge("firn_query_alerts_firing", "Alerts that fire")
ALERT_BEHIND = Gauge(
    "firn_query_alert_seconds_behind",
    "Seconds of complete rows that the rule furthest behind has not looked at",
)
ALERT_ROUND_SECONDS = Histogram(
    "firn_query_alert_round_seconds",
    "Wall seconds in which the windows that were due of all rules were looked at",
    buckets=_SECONDS,
)
ALERT_WINDOWS_SKIPPED = Counter(
    "firn_query_alert_windows_skipped_total",
    "Windows passed over because an outage was longer than alerts.catch_up_s; in their rule's history",
)
ALERT_MESSAGES = Counter(
    "firn_query_alert_messages_total",
    "Attempts to tell a receiver, by its kind (alertmanager, webhook) and what became of it: taken, failed "
    "(sent again), refused or dropped (for good; each in its rule's history)",
    ["receiver", "outcome"],
)
FILTERS_READ = Counter(
    "firn_query_token_filters_read_total",
    "Token filters of data files that were read, by what came of it: usable, unusable, failed",
    ["outcome"],
)
FILTER_BYTES_READ = Counter(
    "firn_query_token_filter_bytes_read_total", "Bytes of token filters that were read"
)
FILTERED_FILES = Counter(
    "firn_query_token_filtered_files_total",
    "Data files whose filter a search asked, by whether it was opened: kept, passed_over",
    ["outcome"],
)
FILTER_PACK_BYTES = Gauge("firn_query_token_filter_pack_bytes", "Bytes of token filters kept on this machine")
