"""Of the changes of one flush, the last one of each key. Pure.

Changes are ordered by (partition, offset), those of one message as they came. Without further word the last
one wins. Where changes say their own order (a source's position or time), one that is older than another
before it is passed over, so that the greatest wins, and of equal ones the last. A key belongs in one
partition; where it stands in several, the winner depends on the numbers of the partitions, unless changes say
their order.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ingest.keys.key_hash import KeyHashes


@dataclass(frozen=True, slots=True, eq=False)
class LastChanges:
    """Places of changes in the arrays that were given, each array ascending. Every change is in exactly one
    of the first three."""

    last: NDArray[np.int64]  # of each key the change that wins
    replaced: NDArray[np.int64]  # a later change of the key wins
    passed_over: NDArray[np.int64]  # older, by its own order, than a change of the key before it
    in_partitions: NDArray[np.int64]  # the winners of keys that stand in more than one partition


def last_changes(
    keys: KeyHashes,
    partitions: NDArray[np.integer],
    offsets: NDArray[np.integer],
    order_by: pa.Array | pa.ChunkedArray | None = None,
) -> LastChanges:
    """Finds the winner among the changes of each key. All arrays have one value per change.

    `partitions` number the topic-partitions that the flush read. `order_by` is of any type that sorts; NULL
    is older than everything.
    """
    count = len(keys)
    if not count:
        none = np.empty(0, np.int64)
        return LastChanges(none, none, none, none)
    order = np.lexsort((offsets, partitions, keys.low, keys.high))
    begins = _begins_key(keys.taken(order))
    group = np.cumsum(begins) - 1
    older = _older(group, order, order_by, count)
    wins = np.zeros(count, np.bool_)
    wins[_last_of_each(group, ~older)] = True
    split = _split(group, partitions[order], begins)
    return LastChanges(
        last=np.sort(order[wins]),
        replaced=np.sort(order[~wins & ~older]),
        passed_over=np.sort(order[older]),
        in_partitions=np.sort(order[wins & split[group]]),
    )


def _begins_key(ordered: KeyHashes) -> NDArray[np.bool_]:
    """Which changes, ordered by key, are the first of theirs."""
    begins = np.ones(len(ordered), np.bool_)
    begins[1:] = (ordered.high[1:] != ordered.high[:-1]) | (ordered.low[1:] != ordered.low[:-1])
    return begins


def _older(
    group: NDArray[np.int64],
    order: NDArray[np.int64],
    order_by: pa.Array | pa.ChunkedArray | None,
    count: int,
) -> NDArray[np.bool_]:
    """Which changes are older than one of their key before them. One running maximum does for all keys, since
    each key's numbers are above those of the key before it."""
    if order_by is None:
        return np.zeros(count, np.bool_)
    ranks = np.asarray(pc.rank(order_by, tiebreaker="dense")).astype(np.int64)
    ranks[np.asarray(order_by.is_null())] = 0
    numbers = group * (count + 1) + ranks[order]
    older: NDArray[np.bool_] = numbers < np.maximum.accumulate(numbers)
    return older


def _last_of_each(group: NDArray[np.int64], candidates: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The place of the last candidate of each group; each group has one, and they stand one after another."""
    places = np.flatnonzero(candidates)
    ends = np.append(np.flatnonzero(np.diff(group[places])), len(places) - 1)
    last: NDArray[np.int64] = places[ends]
    return last


def _split(
    group: NDArray[np.int64], partitions: NDArray[np.integer], begins: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Which groups stand in more than one partition."""
    changes = np.zeros(len(group), np.bool_)
    changes[1:] = partitions[1:] != partitions[:-1]
    split = np.zeros(int(group[-1]) + 1, np.bool_)
    split[group[changes & ~begins]] = True
    return split
