"""Which offsets the tasks of one Spark job read. Pure: from what waits to one list of ranges per task.

    much waits        every partition gives the same share of what waits, so that those that lag most catch up
                      most
    little waits      few tasks: a table gets a file from every task that meets it, so ten thousand quiet
                      tables must not be spread over all
    a hot partition   is split when it would keep one task busy for much longer than the others, and then only
    small parts       what tasks have little of, of tables that others have some of as well, is handed on, by
                      table, to tasks that write it: when the files that this saves cost more than sending the
                      records does, as the last batch has shown

The ranges of a partition are in one task otherwise, so that what one partition holds of a table ends in one
file per hour."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil, floor

# So many records are worth another task.
TASK_RECORDS_MIN = 20_000
# A partition is split where it is so many times what a task should have, into pieces of so many records at
# least.
SPLIT_FACTOR = 1.5
PIECE_RECORDS_MIN = 50_000
# A flush of a few records, its file and its share of the commit, against a byte of records that is packed,
# sent and unpacked (CPU seconds); only their ratio counts, and it is the same on slow and on fast machines.
# Beyond it a second stage takes about so long, whatever it does.
FLUSH_COST_S, BYTE_COST_S, STAGE_COST_S = 0.007, 16e-9, 0.5
# Of more than this a part is worth a file of its own.
SMALL_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Lag:
    """What waits in one topic-partition, by the number of its source: offsets `[start, end)`. `record_bytes`:
    of a record, as known so far.

    `measured`: whether they are known from records that were read. Where not, a range may end before its end,
    for it might hold anything.
    """

    source: int
    start: int
    end: int
    record_bytes: float
    measured: bool = True

    @property
    def records(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Capacity:
    """What there is to do it: tasks that run at the same time, and what one of them takes at most."""

    slots: int
    records_max: int
    bytes_max: int


@dataclass(frozen=True, slots=True)
class Spread:
    """What the tasks of a batch had little of: so many parts of so many tables, and the bytes of their
    records."""

    parts: int = 0
    tables: int = 0
    size_bytes: int = 0

    @property
    def pays_to_hand_on(self) -> bool:
        """Whether one flush per table costs less than one per part, the way of the records included."""
        return (self.parts - self.tables) * FLUSH_COST_S > self.size_bytes * BYTE_COST_S + STAGE_COST_S


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets `[start, end)` of a source. `whole`: it has to be read to its end, for other tasks build on
    that."""

    source: int
    start: int
    end: int
    whole: bool = False


def waiting(lags: Iterable[Lag], capacity: Capacity) -> float:
    """How many tasks what waits would fill."""
    return sum(_weight(lag, capacity) for lag in lags)


def plan(lags: Iterable[Lag], capacity: Capacity) -> list[list[OffsetRange]]:
    """The ranges of each task, at most one task per slot and none empty; a source's ranges begin where its
    lag begins and leave no gap."""
    taken = _share([lag for lag in lags if lag.records > 0], capacity)
    if not taken:
        return []
    tasks = max(
        1,
        min(capacity.slots, ceil(sum(lag.records for lag in taken) / TASK_RECORDS_MIN)),
        ceil(waiting(taken, capacity) - 1e-9),
    )
    return _packed(taken, min(tasks, capacity.slots), capacity)


def _weight(lag: Lag, capacity: Capacity) -> float:
    return max(lag.records / capacity.records_max, lag.records * lag.record_bytes / capacity.bytes_max)


def _share(lags: Sequence[Lag], capacity: Capacity) -> list[Lag]:
    """Where more waits than fits, the same share of each, and of each one record at least."""
    total = waiting(lags, capacity)
    if total <= capacity.slots:
        return list(lags)
    share = capacity.slots / total
    return [replace(lag, end=lag.start + max(1, floor(lag.records * share))) for lag in lags]


def _packed(lags: Sequence[Lag], tasks: int, capacity: Capacity) -> list[list[OffsetRange]]:
    """The heaviest first, each to the task that has least; pieces of one source to different tasks."""
    fair = waiting(lags, capacity) / tasks
    pieces = [
        (_weight(lag, capacity) / len(ranges), each)
        for lag in lags
        for ranges in [_pieces(lag, tasks, fair, capacity)]
        for each in ranges
    ]
    loads: list[tuple[float, list[OffsetRange]]] = [(0.0, []) for _ in range(tasks)]
    for weight, each in sorted(pieces, key=lambda piece: -piece[0]):
        at = min(
            (at for at, (_, ranges) in enumerate(loads) if each.source not in {r.source for r in ranges}),
            key=lambda at: loads[at][0],
        )
        loads[at] = loads[at][0] + weight, [*loads[at][1], each]
    return [ranges for _, ranges in loads if ranges]


def _pieces(lag: Lag, tasks: int, fair: float, capacity: Capacity) -> list[OffsetRange]:
    number = 1
    if lag.measured and _weight(lag, capacity) > SPLIT_FACTOR * fair:
        number = max(1, min(tasks, ceil(_weight(lag, capacity) / fair), lag.records // PIECE_RECORDS_MIN))
    bounds = [lag.start + lag.records * at // number for at in range(number + 1)]
    return [OffsetRange(lag.source, start, end, whole=number > 1) for start, end in pairwise(bounds)]
