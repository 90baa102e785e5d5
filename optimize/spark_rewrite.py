"""The second executor: Spark's `rewrite_data_files`, for large partitions and for those with position deletes."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog

from lake.catalog_client import LEASE_HEADER, NAMESPACE_SEPARATOR, TableName
from lake.errors import UnavailableError
from lake.settings import OptimizeSettings, StorageSettings
from optimize.planner import Merge

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
log = structlog.get_logger()


def catalog_options(catalog: str, settings: OptimizeSettings, storage: StorageSettings, lease: str | None) -> dict[str, str]:
    """Spark settings for our catalog under a name of Spark's; the leader's lease goes into the header of every commit."""
    prefix = f"spark.sql.catalog.{catalog}"
    options = {
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        f"{prefix}.type": "rest",
        f"{prefix}.uri": settings.catalog_uri,
        f"{prefix}.cache-enabled": "false",
    }
    if settings.catalog_token is not None:
        options[f"{prefix}.token"] = settings.catalog_token.get_secret_value()
    if lease is not None:
        options[f"{prefix}.header.{LEASE_HEADER}"] = lease
    if storage.s3_endpoint or storage.s3_access_key_id:
        options |= _s3_options(prefix, storage)
    return options


def _s3_options(prefix: str, storage: StorageSettings) -> dict[str, str]:
    secret = storage.s3_secret_access_key.get_secret_value() if storage.s3_secret_access_key else None
    wanted = {
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "s3.endpoint": storage.s3_endpoint,
        "s3.path-style-access": str(storage.s3_path_style).lower(),
        "s3.access-key-id": storage.s3_access_key_id,
        "s3.secret-access-key": secret,
        "client.region": storage.s3_region,
    }
    return {f"{prefix}.{name}": value for name, value in wanted.items() if value}


def rewrite_hour(session: Any, catalog: str, table: TableName, merge: Merge, target_bytes: int) -> Mapping[str, Any]:
    """Rewrites one hour of a table, its position deletes applied; returns the procedure's counts. Raises UnavailableError where Spark fails."""
    from pyspark.errors import PySparkException

    start = f"{_EPOCH + timedelta(hours=merge.hour):%Y-%m-%d %H:%M:%S} UTC"
    end = f"{_EPOCH + timedelta(hours=merge.hour + 1):%Y-%m-%d %H:%M:%S} UTC"
    wanted = {"target-file-size-bytes": str(target_bytes), "min-input-files": "2", "partial-progress.enabled": "false"}
    if merge.has_deletes:
        wanted |= {"delete-file-threshold": "1", "remove-dangling-deletes": "true", "rewrite-all": "true"}
    pairs = ", ".join(f"'{name}', '{value}'" for name, value in wanted.items())
    quoted = ".".join(f"`{part}`" for part in (*table.namespace.split(NAMESPACE_SEPARATOR), table.name))
    statement = (
        f"CALL {catalog}.system.rewrite_data_files(table => '{quoted}', strategy => 'sort', sort_order => 'timestamp ASC NULLS FIRST', "
        f"where => 'timestamp >= TIMESTAMP ''{start}'' AND timestamp < TIMESTAMP ''{end}''', "
        f"options => map({pairs}))"
    )
    try:
        (row,) = session.sql(statement).collect()
    except PySparkException as error:
        raise UnavailableError(f"rewrite_data_files of {table} failed: {str(error)[:500]}") from error
    counts = dict(row.asDict())
    log.info("optimize.rewritten", table=str(table), hour=merge.hour, **counts)
    return counts
