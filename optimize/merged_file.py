"""Names of data files: a merged one carries when its partition was merged, so that the cool-down survives
restarts and needs no other memory; one of ingestion is known by its own, so that it is written anew once and
never again."""

import re
import uuid

from lake.span import Partition

_NAME = re.compile(r"/merged-(\d+)-[0-9a-f]{32}\.parquet$")

_INGESTED = re.compile(r"/data/-?\d+/[0-9a-f]{32}\.parquet$")


def merged_file_uri(location: str, partition: Partition, now_ms: int) -> str:
    """A fresh URI for a merged file of a partition."""
    return f"{location}/data/{partition}/merged-{now_ms}-{uuid.uuid4().hex}.parquet"


def merged_at_ms(uri: str) -> int | None:
    """When a file was merged; None where it is no merged file of ours."""
    match = _NAME.search(uri)
    return int(match[1]) if match else None


def is_as_ingested(uri: str) -> bool:
    """Whether a file still is as ingestion wrote it: quickly compressed, without dictionaries
    (`lake.table_layout.data_file_uri` names such files)."""
    return _INGESTED.search(uri) is not None
