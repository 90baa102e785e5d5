"""Changes that come late, because they were dead letters: whether the row that a table has of their key is of
a change behind them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ingest.keys.column_reader import ColumnReader
from ingest.keys.key_lookup import KeyRows
from ingest.keys.row_values import values_at
from lake.log_schema import OFFSET, TOPIC_ID, TOPIC_PARTITION, LogSchema
from lake.marks import TopicPartition


@dataclass(frozen=True, slots=True, eq=False)
class Coming:
    """Where changes were first read: one for each row that is looked at."""

    partitions: Sequence[TopicPartition]
    offsets: NDArray[np.int64]


def came_later(
    reader: ColumnReader, schema: LogSchema, found: KeyRows, uris: Sequence[str], coming: Coming
) -> NDArray[np.bool_]:
    """For each found row of the files, whether its change stands behind the one that comes, in the same
    partition. Raises NotFoundError, UnavailableError, ProtocolError."""
    kinds = {TOPIC_ID: pa.string(), TOPIC_PARTITION: pa.int32(), OFFSET: pa.int64()}
    topic_id, partition, offset = values_at(
        reader, found, uris, {schema.by_name[name].id: kind for name, kind in kinds.items()}
    )
    same = pc.and_(
        pc.equal(topic_id, pa.array([each.topic_id for each in coming.partitions], pa.string())),
        pc.equal(partition, pa.array([each.partition for each in coming.partitions], pa.int32())),
    )
    return np.asarray(pc.and_(same, pc.greater(offset, pa.array(coming.offsets))))
