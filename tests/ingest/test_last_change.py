"""The last change of each key in a flush."""

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from ingest.keys.key_hash import KeyHashes
from ingest.keys.last_change import LastChanges, last_changes

# Key (two halves, few of each), partition, offset, order: so small that everything happens often.
CHANGES = st.lists(
    st.tuples(
        st.tuples(st.integers(0, 2), st.integers(0, 2)),
        st.integers(0, 2),
        st.integers(0, 5),
        st.one_of(st.none(), st.integers(-2, 2)),
    ),
    max_size=30,
)
Change = tuple[tuple[int, int], int, int, int | None]


def found(changes: list[Change], *, ordered: bool) -> LastChanges:
    halves = [np.array([change[0][at] for change in changes], np.uint64) for at in (0, 1)]
    order_by = pa.array([change[3] for change in changes], pa.int64()) if ordered else None
    partitions, offsets = (np.array([change[at] for change in changes], np.int64) for at in (1, 2))
    return last_changes(KeyHashes(halves[0], halves[1]), partitions, offsets, order_by)


@dataclass
class Model:
    """A dict of the winners, to which one change after the other is applied."""

    ordered: bool
    winners: dict[tuple[int, int], int] = field(default_factory=dict)
    partitions: dict[tuple[int, int], set[int]] = field(default_factory=dict)
    replaced: set[int] = field(default_factory=set)
    passed_over: set[int] = field(default_factory=set)

    def apply(self, changes: list[Change]) -> None:
        for at in sorted(range(len(changes)), key=lambda at: changes[at][1:3]):
            self._one(at, changes)

    def _one(self, at: int, changes: list[Change]) -> None:
        key, partition, _, _ = changes[at]
        self.partitions.setdefault(key, set()).add(partition)
        if key not in self.winners:
            self.winners[key] = at
        elif self.ordered and order_of(changes[at]) < order_of(changes[self.winners[key]]):
            self.passed_over.add(at)
        else:
            self.replaced.add(self.winners[key])
            self.winners[key] = at


def order_of(change: Change) -> float:
    return -np.inf if change[3] is None else change[3]


@given(CHANGES, st.booleans())
def test_the_winners_are_those_of_a_dict_to_which_changes_are_applied_in_order(
    changes: list[Change], ordered: bool
) -> None:
    model = Model(ordered)
    model.apply(changes)
    last = found(changes, ordered=ordered)
    assert last.last.tolist() == sorted(model.winners.values())
    assert last.replaced.tolist() == sorted(model.replaced)
    assert last.passed_over.tolist() == sorted(model.passed_over)
    in_two = [at for key, at in model.winners.items() if len(model.partitions[key]) > 1]
    assert last.in_partitions.tolist() == sorted(in_two)


@given(CHANGES)
def test_changes_that_are_sent_again_change_nothing_where_they_say_their_order(changes: list[Change]) -> None:
    again = [*changes, *((key, partition, offset + 10, order) for key, partition, offset, order in changes)]
    values = {(changes[at][0], changes[at][3]) for at in found(changes, ordered=True).last}
    assert {(again[at][0], again[at][3]) for at in found(again, ordered=True).last} == values


def test_the_order_may_be_of_any_type_that_sorts() -> None:
    keys = KeyHashes(np.zeros(3, np.uint64), np.zeros(3, np.uint64))
    nothing = np.zeros(3, np.int64)
    for order_by in (
        pa.array(["binlog.2:7", "binlog.3:1", "binlog.1:9"]),
        pa.chunked_array([pa.array([2, 3], pa.timestamp("us")), pa.array([None], pa.timestamp("us"))]),
    ):
        last = last_changes(keys, nothing, np.arange(3), order_by)
        assert (last.last.tolist(), last.passed_over.tolist()) == ([1], [2])


def test_the_same_key_three_times_in_one_flush_is_one_row() -> None:
    last = found([((7, 7), 0, offset, None) for offset in (4, 5, 6)], ordered=False)
    assert (last.last.tolist(), last.replaced.tolist()) == ([2], [0, 1])


def test_changes_of_one_message_keep_the_order_in_which_they_came() -> None:
    last = found([((7, 7), 0, 4, None), ((7, 7), 0, 4, None), ((7, 7), 0, 3, None)], ordered=False)
    assert last.last.tolist() == [1]
