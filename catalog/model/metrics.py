"""What the catalog counts, in Prometheus' terms. No label holds a tenant's name: there may be a hundred
thousand."""

import os

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

# The library counts in files of this folder where the variable is set when it is imported; several processes
# then add up.
SHARED_FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"

requests = Counter("firn_catalog_requests_total", "Requests answered", ["operation", "status"])
request_seconds = Histogram(
    "firn_catalog_request_seconds", "Time from the first byte of a request to its answer", ["operation"]
)
commits = Counter(
    "firn_catalog_commits_total",
    "Commits by their result: committed, repeated, or the type of the refusal",
    ["result"],
)
issuer_fetches = Counter(
    "firn_catalog_issuer_fetches_total", "Fetches of the issuer's keys by how they ended", ["result"]
)
background_task_failures = Counter(
    "firn_catalog_background_task_failures_total",
    "Turns of a background task that failed, each in the log with its trace",
    ["task"],
)
transaction_tables = Histogram(
    "firn_catalog_transaction_tables",
    "Tables that shared one SQL transaction",
    buckets=(1, 2, 5, 10, 50, 100, 500, 1_000, 5_000),
)
database_log_bytes = Gauge(
    "firn_catalog_database_log_bytes",
    "Bytes of the file of SQLite's log after its last checkpoint",
    multiprocess_mode="livemax",
)
maintenance_round = Gauge(
    "firn_catalog_maintenance_last_round_timestamp_seconds",
    "When the last round of maintenance ended (epoch); 0: none yet",
    multiprocess_mode="livemax",
)
keys_expiring = Gauge(
    "firn_catalog_keys_expiring",
    "API keys in force that expire within 14 days",
    multiprocess_mode="livemax",
)
alert_rules = Gauge(
    "firn_catalog_alert_rules",
    "Rules of alerts on what is logged that the work list holds, whether or not somebody evaluates them",
    multiprocess_mode="livemax",
)
foreign_files = Counter(
    "firn_catalog_foreign_files_total",
    "Files that a request named and that are not the table's, by what names them",
    ["what"],
)
metadata_cache_bytes = Gauge(
    "firn_catalog_metadata_cache_bytes",
    "Compressed bytes of metadata files held in memory",
    multiprocess_mode="livesum",
)


def exposition() -> bytes:
    """Everything counted, of all workers where there are several, in the text format."""
    if SHARED_FOLDER_VARIABLE not in os.environ:
        return generate_latest()
    registry = CollectorRegistry()
    MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return generate_latest(registry)
