"""Keys of keyed tables against what the input says of them: whatever order and portions changes were applied
in, what came of it is accepted, and what did not come of it is not."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.audit import audit_key_spool
from ingest.audit.audit_key_compare import (
    Fate,
    KeyCounts,
    KeyedRules,
    KeyVerdict,
    Rule,
    compare_keys,
    without_replaced,
)
from ingest.audit.audit_key_spool import DELETE, NOWHERE, PUT, ROW, KeySpool, entries, order_bytes
from ingest.keys.key_hash import hash_keys
from ingest.keys.last_change import last_changes

TABLE = 0


class Step(NamedTuple):
    """A change of key `key`, or a truncate (None)."""

    key: int | None
    source: int
    offset: int
    is_put: bool
    order: int | None


class Row(NamedTuple):
    """A row of the table: its key, and the change that made it."""

    key: int
    source: int
    offset: int
    order: int | None = None


class History(NamedTuple):
    """What the input holds, the rule, and the rows that came of it."""

    rule: Rule
    ordered: bool
    steps: list[Step]
    rows: list[Row]


@st.composite
def histories(draw: st.DrawFn, sources: int = 2) -> History:
    """Changes of a few keys, applied by the rules of ingestion in portions."""
    rule = draw(st.sampled_from(Rule))
    ordered = rule is Rule.GREATEST
    ends = [0] * sources
    steps, rows = list[Step](), dict[int, Row]()
    for _ in range(draw(st.integers(0, 5))):
        batch = []
        for _ in range(draw(st.integers(1, 5))):
            source = draw(st.integers(0, sources - 1))
            key = draw(st.one_of(st.integers(0, 2), st.integers(0, 2), st.integers(0, 2), st.none()))
            is_put = rule is Rule.FIRST or draw(st.booleans())
            order = draw(st.one_of(st.none(), st.integers(-2, 3))) if ordered else None
            batch.append(Step(key, source, ends[source], is_put, order))
            ends[source] += 1
        steps += batch
        _apply(batch, rule, rows)
    return History(rule, ordered, steps, list(rows.values()))


def _apply(batch: Sequence[Step], rule: Rule, rows: dict[int, Row]) -> None:
    """One commit."""
    truncates = {step.source: step.offset for step in batch if step.key is None}
    if truncates:
        rows.clear()
    left = [s for s in batch if s.key is not None and s.offset > truncates.get(s.source, -1)]
    sign = -1 if rule is Rule.FIRST else 1
    if not left:
        return
    order = pa.array([step.order for step in left], pa.int64()) if rule is Rule.GREATEST else None
    last = last_changes(
        hash_keys([pa.array([step.key for step in left], pa.int64())]),
        np.asarray([sign * step.source for step in left]),
        np.asarray([sign * step.offset for step in left]),
        order,
    )
    for step in (left[at] for at in last.last):
        assert step.key is not None
        there = rows.get(step.key)
        if there is not None and (rule is Rule.FIRST or (rule is Rule.GREATEST and _is_newer(there, step))):
            continue
        rows.pop(step.key, None)
        if step.is_put:
            rows[step.key] = Row(step.key, step.source, step.offset, step.order)


def _is_newer(row: Row, step: Step) -> bool:
    return row.order is not None and (step.order is None or row.order > step.order)


def _compared(
    history: History,
    rows: Sequence[Row],
    starts: Sequence[int] = (0, 0),
    *,
    compacted: bool = False,
    lenient: bool = False,
    waiting_max: int = 3,
) -> KeyVerdict:
    """What is found where the table has these rows; the spool is written in small portions."""
    verdict, truncated = KeyVerdict(), dict[tuple[int, int], int]()

    def reduced(some: pa.Table) -> pa.Table:
        left, replaced = without_replaced(some, [history.rule])
        for source, count in replaced.items():
            verdict.fates[source, Fate.REPLACED] += count
        return left

    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(audit_key_spool, "WAITING_MAX", waiting_max)
        patch.setattr(audit_key_spool, "ENTRIES_MAX", 2)
        spool = KeySpool(Path(folder), reduced)
        for row in rows:
            spool.add(_entry(row.key, row.source, row.offset, ROW, None))
        for step in sorted(history.steps, key=lambda each: each[1:3]):
            if step.offset < starts[step.source]:
                continue
            if step.key is None:
                truncated[TABLE, step.source] = step.offset
            else:
                kind = PUT if step.is_put else DELETE
                spool.add(_entry(step.key, step.source, step.offset, kind, step.order))
        known = KeyedRules(
            [history.rule], [history.ordered], [lenient], starts, [compacted] * len(starts), truncated
        )
        for part in spool.parts():
            compare_keys(part, known, verdict)
    return verdict


def _entry(key: int, source: int, offset: int, kind: int, order: int | None) -> pa.Table:
    hashes = hash_keys([pa.array([key], pa.int64())])
    ordered = order_bytes(pa.array([order], pa.int64()))
    return entries(TABLE, hashes, source=source, offset=offset, kind=kind, order=ordered)


def _counts(verdict: KeyVerdict) -> KeyCounts:
    return verdict.tables.get(TABLE, KeyCounts())


@settings(max_examples=80)
@given(histories())
@pytest.mark.long
def test_what_came_of_the_changes_is_accepted(history: History) -> None:
    """Each change has one fate, the keys that are alive are those of the table, and nothing is wrong."""
    verdict = _compared(history, history.rows)
    counts = _counts(verdict)
    assert counts.is_clean, verdict.examples
    assert (counts.alive, counts.keys, counts.rows) == (len(history.rows),) * 3
    assert verdict.fates.total() == sum(step.key is not None for step in history.steps)
    written = sum(count for (_, fate), count in verdict.fates.items() if fate is Fate.WRITTEN)
    assert written == len(history.rows)


@pytest.mark.long
@settings(max_examples=60)
@given(histories(sources=1), st.data())
def test_of_one_partition_no_other_rows_are_accepted(history: History, data: st.DataObject) -> None:
    """A row that is gone, one too many, one of an older change, one that no change made: each is noticed,
    where changes have one order."""
    if history.rule is Rule.GREATEST:
        return
    rows = [row._replace(order=None) for row in history.rows]
    made = {(step.key, step.offset) for step in history.steps if step.key is not None and step.is_put}
    kind = data.draw(st.sampled_from(["missing", "doubled", "stale", "astray"]))
    if kind in ("missing", "doubled") and rows:
        row = data.draw(st.sampled_from(rows))
        rows = [other for other in rows if other != row] if kind == "missing" else [*rows, row]
    elif kind == "stale" and (left := sorted(made - {(row.key, row.offset) for row in rows})):
        key, offset = data.draw(st.sampled_from(left))
        rows = [*(row for row in rows if row.key != key), Row(key, 0, offset)]
    elif kind == "astray":
        rows = [*(row for row in rows if row.key != 7), Row(7, 0, 9_999)]
    else:
        return
    counts = _counts(_compared(history, rows))
    assert getattr(counts, kind) == 1


@pytest.mark.long
@settings(max_examples=60)
@given(histories(sources=1))
def test_rows_from_before_what_kafka_has_are_not_proven(history: History) -> None:
    """What came before the first offset that is there may have left any row that no change behind it
    replaced."""
    start = max((step.offset for step in history.steps), default=0) // 2
    verdict = _compared(history, history.rows, (start, 0))
    counts = _counts(verdict)
    if history.rule is not Rule.GREATEST:
        assert counts.is_clean, verdict.examples
    assert counts.not_proven == sum(row.offset < start for row in history.rows)
    assert counts.keys == counts.alive + counts.not_proven


PUTS = [Step(1, 0, offset, True, None) for offset in range(4)]


def test_a_row_that_is_older_than_what_kafka_has_is_stale_where_a_later_change_is_there() -> None:
    history = History(Rule.LAST, False, PUTS, [])
    verdict = _compared(history, [Row(1, 0, 0)], (2, 0))
    assert (_counts(verdict).stale, _counts(verdict).missing) == (1, 1)
    assert {(one.what, one.offset) for one in verdict.examples} == {("stale", 0), ("missing", 3)}


def test_what_compaction_may_have_taken_away_is_not_proven() -> None:
    """Its change is not in the input, and may have been."""
    history = History(Rule.LAST, False, [], [])
    assert _counts(_compared(history, [Row(1, 0, 5)], compacted=True)).not_proven == 1
    assert _counts(_compared(history, [Row(1, 0, 5)])).astray == 1


def test_rows_of_other_writers_are_not_proven() -> None:
    """Of files, of another topic; and in a table whose rows others write."""
    deletes = [Step(1, 0, 0, False, None)]
    assert _counts(_compared(History(Rule.LAST, False, [], []), [Row(1, NOWHERE, 0)])).not_proven == 1
    verdict = _compared(History(Rule.LAST, False, deletes, []), [Row(1, 0, 9)], lenient=True)
    assert (_counts(verdict).not_proven, verdict.fates[0, Fate.DELETED]) == (1, 1)


def test_a_key_in_two_partitions_is_named_and_either_row_is_accepted() -> None:
    steps = [Step(1, 0, 0, True, None), Step(1, 1, 0, True, None)]
    for source in (0, 1):
        counts = _counts(_compared(History(Rule.LAST, False, steps, []), [Row(1, source, 0)]))
        assert (counts.is_clean, counts.in_several_partitions) == (True, 1)
    assert _counts(_compared(History(Rule.LAST, False, steps, []), [])).missing == 1


def test_a_key_that_changes_all_the_time_takes_no_room() -> None:
    """Of each portion one change is kept, the others are counted as replaced."""
    some = pa.concat_tables([_entry(1, 0, offset, PUT, None) for offset in range(100)])
    left, replaced = without_replaced(some, [Rule.LAST])
    assert (left.column("offset").to_pylist(), replaced) == ([99], {0: 99})
