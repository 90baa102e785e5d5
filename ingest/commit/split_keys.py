"""Keys whose changes come in more than one partition of a topic: nothing but an order of their own tells
which of the changes is the last."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ingest.changes.change import Cells
from ingest.commit.keyed_table import KeyedTable
from ingest.convert.key_text import key_text
from ingest.keys.key_index_store import KeyedFile
from ingest.keys.key_lookup import KeyRows
from ingest.keys.keyed_steps import KeyedSteps
from ingest.keys.row_values import values_at
from ingest.model.link import NAMED_MAX, TableKey
from lake.log_schema import TOPIC_ID, TOPIC_PARTITION
from lake.marks import TopicPartition


def rows_of_other_partitions(
    table: KeyedTable,
    steps: KeyedSteps,
    places: NDArray[np.int64],
    found: KeyRows,
    files: Sequence[KeyedFile],
    partitions: Sequence[TopicPartition],
) -> NDArray[np.int64]:
    """Places of the steps whose key the table has from another partition of the same topic. `places`: of the
    steps that were looked for, `found`: what the table has of them.

    Reads nothing of a table whose topics have shown one partition each so far.
    """
    known = {*table.state.marks.offsets, *partitions}
    if not len(found) or len(known) == len({partition.topic_id for partition in known}):
        return np.empty(0, np.int64)
    schema, uris = table.state.schema.by_name, [file.uri for file in files]
    of = [partitions[source] for source in steps.source[places[found.key]].tolist()]
    kinds = {schema[TOPIC_ID].id: pa.string(), schema[TOPIC_PARTITION].id: pa.int32()}
    topic, number = values_at(table.reader, found, uris, kinds)
    same = pc.equal(topic, pa.array([partition.topic_id for partition in of], pa.string()))
    other = pc.not_equal(number, pa.array([partition.partition for partition in of], pa.int32()))
    split = np.asarray(pc.fill_null(pc.and_(same, other), fill_value=False))
    return np.unique(places[found.key[split]])


def names_of(steps: KeyedSteps, places: NDArray[np.int64], key: TableKey) -> list[str]:
    """Some of the keys of these steps, each as a JSON object."""
    named = list(zip(key.columns, steps.keys, strict=True))
    return [
        str(key_text(Cells({name: column[at].as_py() for name, column in named}, {}, {})))
        for at in places[:NAMED_MAX].tolist()
    ]
