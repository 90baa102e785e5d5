"""A keyed table at one state, and by what its rows are found."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ingest.commit.live_rows import LiveRows
from ingest.keys.key_index_store import KeyIndexStore
from lake.commit import TableState
from lake.log_schema import LogSchema
from lake.storage import Storage


@dataclass(frozen=True, slots=True)
class KeyedTable:
    """`schema`: the one that it has after the commit."""

    state: TableState
    schema: LogSchema
    live: LiveRows
    store: KeyIndexStore
    storage: Storage


def deleted_arrays(live: LiveRows) -> dict[str, NDArray[np.integer]]:
    """The deleted positions of data files, as look-ups of keys take them."""
    return {
        uri: np.frombuffer(positions.to_array(), np.uint64).astype(np.int64)
        for uri, positions in live.deleted.items()
    }
