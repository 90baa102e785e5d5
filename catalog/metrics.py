"""What the catalog counts, in Prometheus' terms. No label holds a tenant's name: there may be a hundred thousand."""

from prometheus_client import Counter, Gauge, Histogram

requests = Counter("firn_catalog_requests_total", "Requests answered", ["operation", "status"])
request_seconds = Histogram("firn_catalog_request_seconds", "Time from the first byte of a request to its answer", ["operation"])
commits = Counter("firn_catalog_table_commits_total", "Table changes by their result", ["result"])
round_tables = Histogram("firn_catalog_round_tables", "Tables that shared one SQL transaction", buckets=(1, 2, 5, 10, 50, 100, 500, 1_000, 5_000))
metadata_cache_bytes = Gauge("firn_catalog_metadata_cache_bytes", "Bytes of metadata files held in memory")
