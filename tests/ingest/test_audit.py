"""The comparison behind the audit, against the same rules written plainly, on generated finds."""

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ingest.audit import audit_compare
from ingest.audit.audit_compare import Expected, Verdict, compare
from ingest.audit.audit_sources import records_in
from ingest.audit.audit_spool import BUCKET_OFFSETS, FoundIn, IdentitySpool
from lake.data_file import describe_parquet
from lake.live_files import may_hold
from lake.marks import TopicPartition
from lake.settings import FormatName

PARTITION = TopicPartition("id", 3)
BUCKET = 2
BASE = BUCKET * BUCKET_OFFSETS
Key = tuple[int, int | None]


class Finds(NamedTuple):
    """What lies where. Offsets are relative to the bucket's first; index None: the whole message."""

    messages: Mapping[int, int]  # offset -> records
    start: int
    end: int
    rows: list[tuple[int, int]]
    dead: list[tuple[int, int | None, int]]
    parked: list[int]
    replayed: list[tuple[int, int | None, int, bool]]
    dropped: Sequence[tuple[int, int]] = ()


OFFSETS = st.one_of(
    st.integers(0, 6),
    st.sampled_from([BUCKET_OFFSETS // 2 + at for at in range(-2, 3)]),
    st.just(BUCKET_OFFSETS - 1),
)
INDEXES = st.integers(0, 2)
PLACES = st.one_of(st.none(), INDEXES)
FINDS = st.builds(
    Finds,
    st.dictionaries(OFFSETS, st.integers(1, 3), max_size=8),
    st.integers(0, 3),
    st.sampled_from([5, BUCKET_OFFSETS // 2, BUCKET_OFFSETS]),
    st.lists(st.tuples(OFFSETS, INDEXES), max_size=14),
    st.lists(st.tuples(OFFSETS, PLACES, st.integers(0, 2)), max_size=6),
    st.lists(OFFSETS, max_size=3),
    st.lists(st.tuples(OFFSETS, PLACES, st.integers(1, 2), st.booleans()), max_size=5),
    st.lists(st.tuples(OFFSETS, INDEXES), max_size=5),
)


def _is_covered(key: Key, by: Iterable[Key]) -> bool:
    return any(
        key[0] == other[0] and (key[1] == other[1] or other[1] is None or key[1] is None) for other in by
    )


def _plainly(finds: Finds) -> dict[str, int]:
    """The audit's rules, one identity at a time."""
    rows = set(finds.rows)
    replays = {(offset, index) for offset, index, _, _ in finds.replayed}
    taken_up = {
        key: max(a for o, i, a, read in finds.replayed if read and (o, i) == key)
        for key in {(o, i) for o, i, _, read in finds.replayed if read}
    }
    deaths = {
        key: max(a for o, i, a in finds.dead if (o, i) == key) for key in {(o, i) for o, i, _ in finds.dead}
    }
    dead = {key for key, attempt in deaths.items() if attempt >= taken_up.get(key, 0)}
    looked_at = {offset: many for offset, many in finds.messages.items() if finds.start <= offset < finds.end}
    keys = {(offset, index) for offset, many in looked_at.items() for index in range(many)}
    left = keys - rows
    dead_lettered = {key for key in left if _is_covered(key, dead)}
    parked = {key for key in left - dead_lettered if key[0] in finds.parked}
    dropped = (left - dead_lettered - parked) & set(finds.dropped)
    lost = {
        key
        for key in taken_up
        if not _is_covered(key, rows | set(finds.dropped))
        and key not in dead
        and not finds.start <= key[0] < finds.end
    }
    return {
        "consumed": len(keys),
        "written": len(keys & rows),
        "dead_lettered": len(dead_lettered),
        "parked": len(parked),
        "dropped": len(dropped),
        "missing": len(left - dead_lettered - parked - dropped) + len(lost),
        "doubled": len(finds.rows) - len(rows),
        "in_two_places": sum(_is_covered(row, deaths) and not _is_covered(row, replays) for row in rows),
        "astray": sum(finds.start <= row[0] < finds.end and row not in keys for row in rows),
    }


def _compared(finds: Finds, folder: Path) -> Verdict:
    spool = IdentitySpool(folder, frozenset({"topic"}))
    if finds.rows:
        offsets, indexes = zip(*finds.rows, strict=True)
        spool.add(
            FoundIn.ROWS,
            PARTITION,
            pa.array([BASE + offset for offset in offsets], pa.int64()),
            pa.array(indexes, pa.int32()),
            7,
        )
    for offset, index, attempt in finds.dead:
        spool.add_one(FoundIn.DEAD, PARTITION, BASE + offset, index, attempt)
    for offset, index in finds.dropped:
        spool.add_one(FoundIn.DROPPED, PARTITION, BASE + offset, index)
    for offset in finds.parked:
        spool.add_one(FoundIn.PARKED, PARTITION, BASE + offset, None)
    for offset, index, attempt, read in finds.replayed:
        spool.add_one(FoundIn.REPLAYED, PARTITION, BASE + offset, index, 2 * attempt + read)
    messages = sorted(
        (offset, many) for offset, many in finds.messages.items() if finds.start <= offset < finds.end
    )
    found, records = (pa.array([part[at] for part in messages], pa.int64()) for at in range(2))
    return compare(spool, PARTITION, BUCKET, Expected(found, records, finds.start, finds.end))


@given(FINDS)
@example(Finds({0: 1, 1: 3}, 0, 5, [(0, 0), (1, 0)], [(1, 1, 0), (1, 2, 0)], [], []))
@example(Finds({0: 2}, 0, 5, [], [(0, None, 0)], [], []))
@example(Finds({0: 1}, 0, 5, [(0, 0)], [(0, None, 0)], [], [(0, None, 1, True)]))
@example(Finds({0: 1}, 0, 5, [], [(0, None, 0)], [], [(0, None, 1, True)]))
@example(Finds({0: 1}, 0, 5, [], [(0, None, 1)], [], [(0, None, 1, True)]))
def test_every_count_is_what_the_rules_say(finds: Finds) -> None:
    """Arrays, buckets and keys change nothing: each count is that of the rules taken one identity at a
    time."""
    with TemporaryDirectory() as folder:
        verdict = _compared(finds, Path(folder))
    assert {name: getattr(verdict, name) for name in _plainly(finds)} == _plainly(finds)
    shown = {example.what for example in verdict.examples}
    assert ("missing" in shown, "doubled" in shown) == (verdict.missing > 0, verdict.doubled > 0)
    assert all(BASE <= example.offset < BASE + BUCKET_OFFSETS for example in verdict.examples)


@pytest.mark.long
@given(FINDS)
def test_a_bucket_too_large_for_memory_is_compared_in_steps(finds: Finds) -> None:
    """With room for one identity only the counts are the same."""
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(audit_compare, "KEYS_MAX", 1)
        verdict = _compared(finds, Path(folder))
    assert {name: getattr(verdict, name) for name in _plainly(finds)} == _plainly(finds)


NAMES = st.lists(st.text("ab\uffff\U0010ffff", min_size=1, max_size=20), min_size=1, max_size=5)


@given(NAMES, NAMES)
@example(["b" * 20], ["b" * 20])
@example(["a"], ["b"])
def test_files_that_may_hold_rows_of_a_topic_are_known_by_their_bounds(
    topics: list[str], of: list[str]
) -> None:
    """None that has one is left out, however long the names are; one of a single other topic is."""
    written = io.BytesIO()
    pq.write_table(pa.table({"_topic": of}), written)
    size, metadata = written.tell(), pq.read_metadata(written)
    file = describe_parquet("file:///f", 0, size, metadata, [7])
    assert may_hold(file, 7, topics) or not set(topics) & set(of)
    assert may_hold(file, 8, topics)
    if len(set(of)) == 1 and len(of[0]) <= 16 and not set(topics) & set(of):
        assert not may_hold(file, 7, topics)


def test_identities_of_many_buckets_come_back_as_they_were(tmp_path: Path) -> None:
    """What is added in any order and portion is loaded by bucket, with its notes."""
    spool = IdentitySpool(tmp_path, frozenset({"topic"}))
    assert spool.partition("other", "x", 0) is None
    assert spool.partition("topic", *PARTITION) == PARTITION
    offsets = [5, BUCKET_OFFSETS - 1, BUCKET_OFFSETS, 3 * BUCKET_OFFSETS + 2, 6]
    for first in range(0, 5, 2):
        part = slice(first, first + 2)
        spool.add(
            FoundIn.ROWS,
            PARTITION,
            pa.array(offsets[part], pa.int64()),
            pa.array([first] * len(offsets[part]), pa.int32()),
            first,
        )
    for number in range(5_000):
        spool.add_one(FoundIn.DEAD, PARTITION, number, number % 3, number)
    assert spool.buckets(PARTITION) == [0, 1, 3]
    assert [spool.size(FoundIn.ROWS, PARTITION, bucket) for bucket in (0, 1, 2, 3)] == [3, 1, 0, 1]
    assert sorted(_loaded(spool, FoundIn.ROWS, 0)) == [(5, 0, 0), (6, 4, 4), (BUCKET_OFFSETS - 1, 0, 0)]
    assert list(_loaded(spool, FoundIn.DEAD, 0)) == [(number, number % 3, number) for number in range(5_000)]
    keys, _ = spool.load(FoundIn.DEAD, PARTITION, 0, 10, 12)
    assert [key >> 32 for key in keys.to_pylist()] == [10, 11]


def _loaded(spool: IdentitySpool, place: FoundIn, bucket: int) -> Iterator[tuple[int, int, int]]:
    keys, notes = spool.load(place, PARTITION, bucket)
    for key, note in zip(keys.to_pylist(), notes.to_pylist(), strict=True):
        yield key >> 32, key & 0xFFFFFFFF, note


@pytest.mark.parametrize(
    ("value", "form", "records"),
    [
        (None, "auto", 1),
        (b"", "json", 1),
        (b"a line", "auto", 1),
        (b'{"a":1}', "auto", 1),
        (b'{"a":1}\n{"b":2}\n', "auto", 2),
        (b'{"a":1}\nbroken\n{"b":2}', "json", 3),
        (b'{\n"a":1\n}', "auto", 1),
        (b'[{"a":1},{"b":2},3]', "auto", 3),
        (b'[{"a":1},{"b":2}]', "text", 1),
        (b"[1,2]", "auto", 1),
        (b"[{", "json", 1),
        (b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[{},{},{}]}]}]}', "auto", 3),
        (b'{"resourceLogs":5}', "auto", 1),
    ],
)
def test_records_of_a_message_are_counted_as_ingestion_takes_it_apart(
    value: bytes | None, form: FormatName, records: int
) -> None:
    """A batch counts its members, bad ones included; everything else is one."""
    assert records_in(value, form, 100) == records
