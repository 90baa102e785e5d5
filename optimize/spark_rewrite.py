"""The second executor: Spark's `rewrite_data_files`, for hours with position deletes and for those that would
become one very large file."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog

from lake.catalog_client import LEASE_HEADER, NAMESPACE_SEPARATOR, TableName
from lake.errors import UnavailableError
from lake.settings import OptimizeSettings, StorageSettings

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
log = structlog.get_logger()


def catalog_options(
    catalog: str, settings: OptimizeSettings, storage: StorageSettings, lease: str | None
) -> dict[str, str]:
    """Spark settings for our catalog under a name of Spark's; the leader's lease goes into the header of
    every commit."""
    prefix = f"spark.sql.catalog.{catalog}"
    options = {
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        f"{prefix}.type": "rest",
        f"{prefix}.uri": settings.catalog.uri,
        f"{prefix}.cache-enabled": "false",
    }
    if settings.catalog.token is not None:
        options[f"{prefix}.token"] = settings.catalog.token.get_secret_value()
    if lease is not None:
        options[f"{prefix}.header.{LEASE_HEADER}"] = lease
    if storage.s3.endpoint or storage.s3.access_key_id:
        options |= _s3_options(prefix, storage)
    return options


def _s3_options(prefix: str, storage: StorageSettings) -> dict[str, str]:
    secret = storage.s3.secret_access_key.get_secret_value() if storage.s3.secret_access_key else None
    wanted = {
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "s3.endpoint": storage.s3.endpoint,
        "s3.path-style-access": str(storage.s3.path_style).lower(),
        "s3.access-key-id": storage.s3.access_key_id,
        "s3.secret-access-key": secret,
        "client.region": storage.s3.region,
    }
    return {f"{prefix}.{name}": value for name, value in wanted.items() if value}


def rewrite_statement(
    catalog: str,
    table: TableName,
    hours: Sequence[int],
    *,
    branch: str,
    sort_by: Sequence[str],
    target_bytes: int,
) -> str:
    """The CALL that rewrites hours of a table on a branch, position deletes applied."""
    wanted = {
        "target-file-size-bytes": str(target_bytes),
        "min-input-files": "2",
        "delete-file-threshold": "1",
        "partial-progress.enabled": "false",
    }
    pairs = ", ".join(f"'{name}', '{value}'" for name, value in wanted.items())
    order = ", ".join(f"{_quoted(name)} ASC NULLS LAST" for name in sort_by)
    return (
        f"CALL {catalog}.system.rewrite_data_files(table => {_literal(_name(table))}, branch => '{branch}', "
        "strategy => 'sort', "
        f"sort_order => {_literal(order)}, where => {_literal(_within(hours))}, options => map({pairs}))"
    )


def contents_statement(
    catalog: str, table: TableName, hours: Sequence[int], *, branch: str, columns: Sequence[str]
) -> str:
    """The SELECT that tells what rows of a branch hold in these hours, whatever files they are in: their
    number, and the sum of their hashes."""
    hashed = f"xxhash64({', '.join(_quoted(name) for name in columns)})"
    # As decimals, because a sum of 64-bit numbers is none.
    wanted = f"count(*) AS row_count, coalesce(sum(CAST({hashed} AS DECIMAL(20, 0))), 0) AS hash_sum"
    return f"SELECT {wanted} FROM {catalog}.{_name(table)} VERSION AS OF '{branch}' WHERE {_within(hours)}"  # noqa: S608 - names are quoted


def _name(table: TableName) -> str:
    return ".".join(_quoted(part) for part in (*table.namespace.split(NAMESPACE_SEPARATOR), table.name))


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def _within(hours: Sequence[int]) -> str:
    return " OR ".join(
        f"(timestamp >= TIMESTAMP '{_moment(hour)}' AND timestamp < TIMESTAMP '{_moment(hour + 1)}')"
        for hour in hours
    )


def _moment(hour: int) -> str:
    return f"{_EPOCH + timedelta(hours=hour):%Y-%m-%d %H:%M:%S} UTC"


def call(session: Any, statement: str) -> Mapping[str, Any]:
    """Runs a statement and returns the one row it answers with. Raises UnavailableError where Spark fails."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        (row,) = session.sql(statement).collect()
    except (PySparkException, Py4JError) as error:
        raise UnavailableError(f"Spark refused or failed: {str(error)[:500]}") from error
    return dict(row.asDict())
