"""Of the steps of one commit, those whose rows stay and those whose rows are of no use. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ingest.keys.keyed_steps import KeyedSteps
from ingest.keys.last_change import last_changes
from ingest.model.link import TableKey


@dataclass(frozen=True, slots=True, eq=False)
class ChosenSteps:
    """Places of steps: of each key the one that wins (`winners`), those before it (`replaced`), those that
    are older than it although they came later (`older`), and those that were followed by a truncation
    (`truncated`). Every step is in one of them. `in_partitions`: the winners whose keys stand in several."""

    winners: NDArray[np.int64]
    replaced: NDArray[np.int64]
    older: NDArray[np.int64]
    truncated: NDArray[np.int64]
    in_partitions: NDArray[np.int64]

    @property
    def losers(self) -> NDArray[np.int64]:
        """Those that leave nothing."""
        return np.concatenate([self.truncated, self.replaced, self.older])

    def counts(self, key: TableKey) -> Mapping[str, int]:
        """Changes that leave nothing, by what became of them."""
        if key.mode == "first_wins":
            passed_over, replaced = len(self.replaced), len(self.truncated)
        else:
            passed_over, replaced = 0, len(self.truncated) + len(self.replaced)
        return {"replaced": replaced, "passed_over": passed_over, "older": len(self.older)}


def choose_steps(steps: KeyedSteps, key: TableKey) -> ChosenSteps:
    """Chooses by the table's mode and order; what a later message has emptied the table of never wins."""
    standing = np.flatnonzero(~steps.truncated)
    ended = np.flatnonzero(steps.truncated)
    partitions, offsets = steps.source[standing], steps.offset[standing]
    if key.mode == "first_wins":
        partitions, offsets = -partitions, -offsets
    order = None if key.order_by == "offset" else steps.order.take(pa.array(standing))
    last = last_changes(steps.hashes.taken(standing), partitions, offsets, order)
    return ChosenSteps(
        standing[last.last],
        standing[last.replaced],
        standing[last.passed_over],
        ended,
        standing[last.in_partitions],
    )
