"""Every metric Firn exposes, in one typed catalogue. Labels are bounded: never a tenant's name without a limit."""

from prometheus_client import Counter, Gauge, Histogram

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

# ---- ingest
RECORDS_DELIVERED = Counter("firn_ingest_records_delivered_total", "Messages taken from Kafka", ["topic"])
RECORDS_WRITTEN = Counter("firn_ingest_records_written_total", "Rows committed to tables")
RECORDS_ABSORBED = Counter("firn_ingest_records_absorbed_total", "Messages skipped because their table had absorbed them before a restart")
RECORDS_DEAD = Counter("firn_ingest_records_dead_lettered_total", "Messages sent to the dead-letter topic", ["reason"])
RECORDS_EXPIRED = Counter("firn_ingest_records_expired_total", "Offsets that Kafka's retention removed before they were read", ["topic"])
ROWS_WITH_ERRORS = Counter("firn_ingest_rows_with_errors_total", "Rows with an entry in _errors")
COMMITS = Counter("firn_ingest_table_commits_total", "Table commits by outcome", ["status"])
ROUND_SECONDS = Histogram("firn_ingest_commit_round_seconds", "Wall seconds of one round of commits", buckets=_SECONDS)
BUFFERED_BYTES = Gauge("firn_ingest_buffered_bytes", "Bytes of raw messages waiting")
BUFFERED_TABLES = Gauge("firn_ingest_buffered_tables", "Tables with waiting messages")
LAG_RECORDS = Gauge("firn_ingest_lag_records", "Offsets between the group offset and the end of the partition", ["topic", "partition"])

# ---- optimize
OPTIMIZE_FILES_MERGED = Counter("firn_optimize_files_merged_total", "Small files that went into merged ones")
OPTIMIZE_SNAPSHOTS_EXPIRED = Counter("firn_optimize_snapshots_expired_total", "Snapshots expired")
OPTIMIZE_FILES_DELETED = Counter("firn_optimize_files_deleted_total", "Files deleted after the readers' grace")
OPTIMIZE_FAILURES = Counter("firn_optimize_table_failures_total", "Rounds in which a table failed")
OPTIMIZE_WAITING = Gauge("firn_optimize_tables_waiting", "Tables that did not get their turn in the last round")
