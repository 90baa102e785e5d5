"""Of the steps of one commit, those whose rows stay and those whose rows are of no use. Pure."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ingest.keys.keyed_steps import KeyedSteps
from ingest.keys.last_change import last_changes
from ingest.model.link import TableKey


@dataclass(frozen=True, slots=True, eq=False)
class ChosenSteps:
    """Places of steps: of each key the one that wins, and those that leave nothing. Every step is in one of
    both."""

    winners: NDArray[np.int64]
    losers: NDArray[np.int64]


def choose_steps(steps: KeyedSteps, key: TableKey) -> ChosenSteps:
    """Chooses by the table's mode and order; what a later message has emptied the table of never wins."""
    standing = np.flatnonzero(~steps.truncated)
    ended = np.flatnonzero(steps.truncated)
    partitions, offsets = steps.source[standing], steps.offset[standing]
    if key.mode == "first_wins":
        partitions, offsets = -partitions, -offsets
    order = None if key.order_by == "offset" else steps.order.take(pa.array(standing))
    last = last_changes(steps.hashes.taken(standing), partitions, offsets, order)
    losers = np.concatenate([ended, standing[last.replaced], standing[last.passed_over]])
    return ChosenSteps(standing[last.last], losers)
