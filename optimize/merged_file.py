"""Names of merged files: they carry when the hour was merged, so that the cool-down survives restarts and needs no other memory."""

import re
import uuid

_NAME = re.compile(r"/merged-(\d+)-[0-9a-f]{32}\.parquet$")


def merged_file_uri(location: str, hour: int, now_ms: int) -> str:
    """A fresh URI for a merged file of the partition `hour`."""
    return f"{location}/data/{hour}/merged-{now_ms}-{uuid.uuid4().hex}.parquet"


def merged_at_ms(uri: str) -> int | None:
    """When a file was merged; None where it is no merged file of ours."""
    match = _NAME.search(uri)
    return int(match[1]) if match else None
