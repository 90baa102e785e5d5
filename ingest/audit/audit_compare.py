"""One stretch of offsets of one partition: what the input holds against where its records were found. Pure;
arrays in, a verdict out."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ingest.audit.audit_spool import BUCKET_OFFSETS, INDEX_BITS, WHOLE, FoundIn, IdentitySpool, offsets_in
from lake.marks import TopicPartition

# More identities than this are compared in several steps.
KEYS_MAX = 8_000_000
EXAMPLES_MAX = 5
COUNTS = (
    "consumed",
    "written",
    "replaced",
    "deleted",
    "passed_over",
    "dead_lettered",
    "parked",
    "dropped",
    "missing",
    "doubled",
    "in_two_places",
    "astray",
)
_EMPTY = pa.nulls(0, pa.int64())


@dataclass(frozen=True, slots=True)
class Example:
    """One wrong identity: what is wrong with it, its offset and index (None: all records of the message)."""

    what: str
    offset: int
    index: int | None


@dataclass(slots=True)
class Verdict:
    """Counts over distinct identities. `dropped`: rows of dropped tables that may still come back; `doubled`
    counts the rows too many; `astray` rows of which the input knows nothing.

    Of changes of a keyed table `written` are those whose rows are there, `replaced` those of which a later
    change of their key, or a truncate, took the place, `deleted` the deletes and truncates that stand,
    `passed_over` those that changed nothing.
    """

    consumed: int = 0
    written: int = 0
    replaced: int = 0
    deleted: int = 0
    passed_over: int = 0
    dead_lettered: int = 0
    parked: int = 0
    dropped: int = 0
    missing: int = 0
    doubled: int = 0
    in_two_places: int = 0
    astray: int = 0
    examples: list[Example] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        return not (self.missing or self.doubled or self.in_two_places or self.astray)

    def keep_missing(self) -> None:
        """Counts what is no row as dead-lettered: of the dead-letter topic itself, which has it."""
        self.dead_lettered, self.missing = self.dead_lettered + self.missing, 0
        self.examples = [example for example in self.examples if example.what != "missing"]

    def add(self, other: "Verdict") -> None:
        """Sums up; examples of each kind up to a few."""
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for example in other.examples:
            if sum(known.what == example.what for known in self.examples) < EXAMPLES_MAX:
                self.examples.append(example)


@dataclass(frozen=True, slots=True)
class Expected:
    """Messages of one bucket that the group has consumed: relative offsets (int64 array, ascending), and the
    records in each (int64 array).

    Only `[start, end)`, relative too, was looked at.
    """

    offsets: Any
    records: Any
    start: int
    end: int


def compare(
    spool: IdentitySpool,
    partition: TopicPartition,
    bucket: int,
    expected: Expected | None,
    *,
    of_changes: bool = False,
    has_history: bool = False,
) -> Verdict:
    """Compares one bucket, in as many steps as its size asks for. `expected` None: the input is not there any
    more, only doubles are looked for. `of_changes`: what was applied to a key has no identity of its own;
    `has_history`: what one table refuses may be a row of the history beside it."""
    verdict = Verdict()
    records = 0 if expected is None else (pc.sum(expected.records).as_py() or 0)
    steps = 1 + max(spool.size(FoundIn.ROWS, partition, bucket), records) // KEYS_MAX
    width = -(-BUCKET_OFFSETS // steps)
    for first in range(0, BUCKET_OFFSETS, width):
        found = _Found(
            *(spool.load(found_in, partition, bucket, first, first + width) for found_in in FoundIn)
        )
        verdict.add(
            _compare(
                found, _part(expected, first, first + width), bucket * BUCKET_OFFSETS, of_changes, has_history
            )
        )
    return verdict


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Offsets of one bucket at which messages were found otherwise than by the rows of a keyed table.

    `dead`: dead letters. `kept`: parked messages, rows of tables without a key. `replayed`: dead letters that
    were sent again since.
    """

    dead: frozenset[int]
    kept: frozenset[int]
    replayed: frozenset[int]


def found_elsewhere(spool: IdentitySpool, partition: TopicPartition, bucket: int) -> Elsewhere:
    """What was found of a bucket."""
    found = _Found(*(spool.load(found_in, partition, bucket) for found_in in FoundIn))
    base = bucket * BUCKET_OFFSETS
    dead = {base + at for at in offsets_in(_still_dead(found)).to_pylist()}
    others = (found.rows, found.parked, found.dropped)
    replayed = {base + at for at in offsets_in(found.dead[0]).to_pylist()} - dead
    kept = {base + at for keys, _ in others for at in offsets_in(keys).to_pylist()}
    return Elsewhere(frozenset(dead), frozenset(kept), frozenset(replayed))


def _part(expected: Expected | None, first: int, end: int) -> Expected | None:
    if expected is None or (first, end) == (0, BUCKET_OFFSETS):
        return expected
    inside = pc.and_(pc.greater_equal(expected.offsets, first), pc.less(expected.offsets, end))
    return Expected(
        expected.offsets.filter(inside),
        expected.records.filter(inside),
        max(first, expected.start),
        min(end, expected.end),
    )


@dataclass(frozen=True, slots=True)
class _Found:
    """Keys and notes by where they were found, in the order of `FoundIn`."""

    rows: tuple[Any, Any]
    dead: tuple[Any, Any]
    parked: tuple[Any, Any]
    replayed: tuple[Any, Any]
    dropped: tuple[Any, Any]


def _compare(
    found: _Found, expected: Expected | None, base: int, of_changes: bool, has_history: bool
) -> Verdict:
    verdict = Verdict()
    counted = pc.value_counts(found.rows[0])
    rows, times = counted.field("values"), counted.field("counts")
    verdict.doubled = len(found.rows[0]) - len(rows)
    _show(verdict, "doubled", rows.filter(pc.greater(times, 1)), base)
    replayed = found.replayed[0]
    covered = _is_covered(rows, _EMPTY if has_history else found.dead[0])
    twice = pc.and_(covered, pc.invert(_is_covered(rows, replayed)))
    verdict.in_two_places = pc.sum(twice).as_py() or 0
    _show(verdict, "in two places", rows.filter(twice), base)
    dead = _still_dead(found)
    there = pa.concat_arrays([rows, found.dropped[0]])
    lost = _EMPTY if of_changes else _lost_replays(there, dead, found.replayed)
    if expected is not None:
        _compare_input(verdict, rows, (dead, found.parked[0], found.dropped[0]), expected, base)
        offsets = offsets_in(lost)
        lost = lost.filter(pc.or_(pc.less(offsets, expected.start), pc.greater_equal(offsets, expected.end)))
    verdict.missing += len(lost)
    _show(verdict, "missing", lost, base)
    return verdict


def _compare_input(
    verdict: Verdict, rows: Any, elsewhere: tuple[Any, Any, Any], expected: Expected, base: int
) -> None:
    """`elsewhere`: keys of dead letters, parked records, rows of dropped tables. Each record counts where it
    is found first."""
    keys = _expand(expected)
    verdict.consumed = len(keys)
    written = pc.is_in(keys, value_set=rows)
    verdict.written = pc.sum(written).as_py() or 0
    left = keys.filter(pc.invert(written))
    for name, found_in in zip(("dead_lettered", "parked", "dropped"), elsewhere, strict=True):
        there = _is_covered(left, found_in)
        setattr(verdict, name, pc.sum(there).as_py() or 0)
        left = left.filter(pc.invert(there))
    verdict.missing = len(left)
    _show(verdict, "missing", left, base)
    offsets = offsets_in(rows)
    looked_at = pc.and_(pc.greater_equal(offsets, expected.start), pc.less(offsets, expected.end))
    astray = rows.filter(pc.and_(looked_at, pc.invert(pc.is_in(rows, value_set=keys))))
    verdict.astray = len(astray)
    _show(verdict, "not in the input", astray, base)


def _expand(expected: Expected) -> Any:
    """The keys of all records of the messages."""
    first = pc.shift_left(expected.offsets, INDEX_BITS)
    several = pc.greater(expected.records, 1)
    offsets, records = (
        expected.offsets.filter(several).to_pylist(),
        expected.records.filter(several).to_pylist(),
    )
    others = [
        offset << INDEX_BITS | index
        for offset, many in zip(offsets, records, strict=True)
        for index in range(1, many)
    ]
    return pa.concat_arrays([first, pa.array(others, pa.int64())])


def _is_covered(keys: Any, by: Any) -> Any:
    """Which keys are among others, alone or with their whole message; a key that is a whole message also by
    any record of it."""
    if not len(by):
        return pa.repeat(pa.scalar(False), len(keys))
    whole = _is_whole(by)
    covered = pc.or_(
        pc.is_in(keys, value_set=by), pc.is_in(offsets_in(keys), value_set=offsets_in(by.filter(whole)))
    )
    return pc.or_(covered, pc.and_(_is_whole(keys), pc.is_in(offsets_in(keys), value_set=offsets_in(by))))


def _is_whole(keys: Any) -> Any:
    return pc.equal(pc.bit_wise_and(keys, WHOLE), WHOLE)


def _newest(keys: Any, notes: Any) -> pa.Table:
    """Each key with its greatest note."""
    return pa.table({"key": keys, "note": notes}).group_by("key").aggregate([("note", "max")])


def _attempts(replayed: tuple[Any, Any]) -> pa.Table:
    """The newest attempt of each identity that the ingesters have read, `key` and `note_max`."""
    read = pc.equal(pc.bit_wise_and(replayed[1], 1), 1)
    return _newest(replayed[0].filter(read), pc.shift_right(replayed[1].filter(read), 1))


def _still_dead(found: _Found) -> Any:
    """Keys of dead letters that no later replay has taken up."""
    keys, attempts = found.dead
    if not len(keys) or not len(found.replayed[0]):
        return keys
    joined = _newest(keys, attempts).join(
        _attempts(found.replayed).rename_columns(["key", "replayed"]), "key", join_type="left outer"
    )
    stands = pc.greater_equal(joined["note_max"], pc.fill_null(joined["replayed"], 0))
    return joined.filter(stands)["key"].combine_chunks()


def _lost_replays(rows: Any, dead: Any, replayed: tuple[Any, Any]) -> Any:
    """Keys of replays that were read and are neither rows nor dead letters again."""
    if not len(replayed[0]):
        return _EMPTY
    keys = _attempts(replayed)["key"].combine_chunks()
    return (
        keys.filter(pc.invert(pc.or_(_is_covered(keys, rows), pc.is_in(keys, value_set=dead))))
        if len(keys)
        else _EMPTY
    )


def _show(verdict: Verdict, what: str, keys: Any, base: int) -> None:
    verdict.examples += [
        Example(what, base + (key >> INDEX_BITS), None if key & WHOLE == WHOLE else key & WHOLE)
        for key in _few(keys)
    ]


def _few(keys: Any) -> Iterator[int]:
    yield from sorted(keys.slice(0, 1_000).to_pylist())[:EXAMPLES_MAX]
