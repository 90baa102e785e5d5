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
    both.

    Of the losers so many are `ended` by a later message that emptied the table, `replaced` by a later one of
    their key, and `older`, by their own order, than one before them.
    """

    winners: NDArray[np.int64]
    losers: NDArray[np.int64]
    ended: int = 0
    replaced: int = 0
    older: int = 0


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
    return ChosenSteps(standing[last.last], losers, len(ended), len(last.replaced), len(last.passed_over))
