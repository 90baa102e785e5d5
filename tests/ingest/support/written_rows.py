"""Rows as a writer gets them."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa


def rows_at(times: Sequence[datetime], **columns: Any) -> pa.Table:
    """Rows of one partition with ascending offsets, at these times; `columns`: their fields."""
    count = len(times)
    return pa.table(
        {
            "timestamp": pa.array(times, pa.timestamp("us", "UTC")),
            "observed_timestamp": pa.array(times, pa.timestamp("us", "UTC")),
            "_topic": ["t"] * count,
            "_topic_id": ["id"] * count,
            "_topic_partition": pa.array([0] * count, pa.int32()),
            "_offset": pa.array(range(count), pa.int64()),
            "_index": pa.array([0] * count, pa.int32()),
            **columns,
        }
    )
