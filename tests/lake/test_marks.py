"""Marks: what they say about a flush, and how they move."""

from collections.abc import Mapping

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lake.errors import ProtocolError
from lake.marks import NO_MARKS, Marks, Range, TopicPartition, Verdict, parse_marks

P0, P1 = TopicPartition("id-a", 0), TopicPartition("id-a", 1)
OTHER = TopicPartition("id-b", 0)

CASES = [
    ("an empty table takes what starts at 0", {}, {P0: (0, 5)}, Verdict.COMMIT),
    ("a flush that starts later than an empty table's mark", {}, {P0: (3, 5)}, Verdict.BEHIND),
    ("every mark at its start", {P0: 5, P1: 7}, {P0: (5, 9), P1: (7, 8)}, Verdict.COMMIT),
    ("every mark at its end", {P0: 9, P1: 8}, {P0: (5, 9), P1: (7, 8)}, Verdict.COMMITTED),
    ("every mark beyond its end", {P0: 10, P1: 80}, {P0: (5, 9), P1: (7, 8)}, Verdict.COMMITTED),
    ("one at its end, one at its start", {P0: 9, P1: 7}, {P0: (5, 9), P1: (7, 8)}, Verdict.AHEAD),
    ("one inside", {P0: 6}, {P0: (5, 9)}, Verdict.AHEAD),
    ("one inside, one at its start", {P0: 6, P1: 7}, {P0: (5, 9), P1: (7, 8)}, Verdict.AHEAD),
    ("one behind", {P0: 4}, {P0: (5, 9)}, Verdict.BEHIND),
    ("one behind, one at its end", {P0: 4, P1: 8}, {P0: (5, 9), P1: (7, 8)}, Verdict.BEHIND),
    ("one behind, one ahead", {P0: 4, P1: 9}, {P0: (5, 9), P1: (7, 10)}, Verdict.BEHIND),
    ("marks of other partitions do not count", {OTHER: 99, P0: 5}, {P0: (5, 9)}, Verdict.COMMIT),
    ("a range without offsets where the mark stands", {P0: 5}, {P0: (5, 5)}, Verdict.COMMITTED),
    ("a re-created topic has another id, so it starts anew", {P0: 500}, {OTHER: (0, 3)}, Verdict.COMMIT),
]
PARTITIONS = st.builds(TopicPartition, st.sampled_from(["id-a", "id-b"]), st.integers(0, 2))
OFFSETS = st.integers(0, 12)
RANGES = st.dictionaries(
    PARTITIONS,
    st.tuples(OFFSETS, OFFSETS).map(lambda pair: Range(min(pair), max(pair))),
    min_size=1,
    max_size=4,
)
MARKS = st.builds(
    Marks, st.dictionaries(PARTITIONS, OFFSETS, max_size=4), st.dictionaries(PARTITIONS, OFFSETS, max_size=2)
)


@pytest.mark.parametrize(("why", "offsets", "ranges", "verdict"), CASES, ids=[case[0] for case in CASES])
def test_comparing_says_what_to_do(
    why: str,
    offsets: Mapping[TopicPartition, int],
    ranges: Mapping[TopicPartition, tuple[int, int]],
    verdict: Verdict,
) -> None:
    """Marks at the start: commit; at or beyond the end: there already; in between: ahead; before the start:
    moved back."""
    assert Marks(offsets).compare({p: Range(*r) for p, r in ranges.items()}) is verdict


@given(MARKS, RANGES)
def test_comparing_agrees_with_sets_of_offsets(marks: Marks, ranges: Mapping[TopicPartition, Range]) -> None:
    """The verdict follows from which offsets the table has and which the flush covers."""
    had = {(p, offset) for p in ranges for offset in range(marks.of(p))}
    covers = {(p, offset) for p, r in ranges.items() for offset in range(*r)}
    before = {(p, offset) for p, r in ranges.items() for offset in range(r.start)}
    verdict = marks.compare(ranges)
    if before - had:
        assert verdict is Verdict.BEHIND
    elif covers <= had:
        assert verdict is Verdict.COMMITTED
    else:
        assert verdict is (
            Verdict.AHEAD if any(marks.of(p) > r.start for p, r in ranges.items()) else Verdict.COMMIT
        )


@given(MARKS, RANGES)
def test_advancing_never_goes_back_and_holds_the_flush(
    marks: Marks, ranges: Mapping[TopicPartition, Range]
) -> None:
    """After a commit its ranges count as committed, no mark is lower than before, the old marks are as they
    were."""
    kept = dict(marks.offsets)
    after = marks.advanced(ranges)
    assert after.compare(ranges) is Verdict.COMMITTED
    for partition in {*marks.offsets, *ranges}:
        assert after.of(partition) == max(
            marks.of(partition), ranges[partition].end if partition in ranges else 0
        )
    assert marks.offsets == kept


@given(MARKS)
def test_property_leads_back_to_the_marks(marks: Marks) -> None:
    """The table property holds all of the marks."""
    assert parse_marks(marks.to_property()) == marks


def test_mark_covers_what_lies_from_where_ingestion_began() -> None:
    """The first commit says where that is and no later one changes it; where nobody said, everything below
    the mark is covered."""
    began = NO_MARKS.advanced({P0: Range(0, 9), P1: Range(0, 4)}, {P0: 5, P1: 0, OTHER: 3})
    assert began == Marks({P0: 9, P1: 4}, {P0: 5})
    later = began.advanced({P0: Range(9, 12), OTHER: Range(0, 7)}, {P0: 8, OTHER: 3})
    assert [later.covered(topic_partition) for topic_partition in (P0, P1, OTHER)] == [
        Range(5, 12),
        Range(0, 4),
        Range(3, 7),
    ]
    assert NO_MARKS.covered(P0) is None
    assert later.joined(Marks({P0: 20}, {P0: 1})) == Marks({P0: 20, P1: 4, OTHER: 7}, {P0: 5, OTHER: 3})
    assert began.to_property() == '{"v":1,"offsets":{"id-a":{"0":9,"1":4}},"firsts":{"id-a":{"0":5}}}'


def test_property_has_a_version_and_is_sorted() -> None:
    """The property is versioned JSON by topic id and partition, the same text for the same marks."""
    assert (
        Marks({P1: 2, OTHER: 1, P0: 3}).to_property()
        == '{"v":1,"offsets":{"id-a":{"0":3,"1":2},"id-b":{"0":1}}}'
    )
    assert parse_marks(None) == NO_MARKS


@pytest.mark.parametrize(
    "value",
    [
        "",
        "x",
        "[]",
        "{}",
        '{"v":2,"offsets":{}}',
        '{"v":1}',
        '{"v":1,"offsets":[]}',
        '{"v":1,"offsets":{"a":{"x":1}}}',
        '{"v":1,"offsets":{},"firsts":7}',
    ],
)
def test_unreadable_property_is_an_error_and_never_no_marks(value: str) -> None:
    """Marks that cannot be read stop the table: taken for none they would double every row."""
    with pytest.raises(ProtocolError):
        parse_marks(value)


def test_newer_version_names_what_to_do() -> None:
    """A property of a newer Firn says so."""
    with pytest.raises(ProtocolError, match="newer Firn"):
        parse_marks(orjson.dumps({"v": 9, "offsets": {}}).decode())
