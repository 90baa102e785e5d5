"""Keys of keyed tables: what the input says of each against the rows that tables have. Pure; entries of a
spool in, counts out.

Of a key whose changes are in one partition, exactly one change is the last, and only its row may be there.
Where changes have no order among themselves, each that may have come last is accepted: one of each partition
that a key stands in, what a truncate in another partition may have met, a dead letter that was replayed.
Where changes are ordered by position or time, what is older than a row is passed over; a deleted row leaves
no trace of that, so that an older change behind its delete may be a row or not.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ingest.audit.audit_key_spool import BESIDE, DELETE, NOWHERE, PUT, REPLAYED, ROW, WHAT, columns_of

EXAMPLES_MAX = 5
Bools = NDArray[np.bool_]
Numbers = NDArray[np.int64]


class Rule(IntEnum):
    """Which change of a key wins."""

    LAST = 0
    FIRST = 1
    GREATEST = 2  # by position or time, of equal ones the last


class Fate(IntEnum):
    """What became of a change, by the name of its count."""

    WRITTEN = 0  # its row is there
    REPLACED = 1  # by a later change of its key, or a truncate
    DELETED = 2  # it is the delete, or the truncate, that stands
    PASSED_OVER = 3  # it had no effect
    MISSING = 4  # its row should be there


@dataclass(frozen=True, slots=True)
class KeyedRules:
    """What is known of tables and sources, by their numbers. `lenient`: tables with rows that others write.

    `starts`: the first offset of each source that is looked at. `is_compacted`: sources whose messages may be
    gone since. `truncated_at`: by table and source, the last message that emptied the table.
    """

    rules: Sequence[Rule]
    ordered: Sequence[bool]
    lenient: Sequence[bool]
    starts: Sequence[int]
    is_compacted: Sequence[bool]
    truncated_at: Mapping[tuple[int, int], int]


class KeyExample(NamedTuple):
    """A key that is not as the input says: what is wrong, and the coordinates of the row (with its file and
    the place in it), or of the change whose row is missing."""

    what: str
    table: int
    source: int
    offset: int
    file: int = NOWHERE
    position: int = NOWHERE


@dataclass(slots=True)
class KeyCounts:
    """Of one table. `alive`: keys that have a row by the input; `keys`, `rows`: what the table has.

    `stale`: rows that a later change should have replaced or deleted; `astray`: rows that no change of the
    input made; `doubled`: rows too many of their keys. `not_proven`: rows of which the input does not tell
    any more. `in_several_partitions`: keys.
    """

    alive: int = 0
    keys: int = 0
    rows: int = 0
    missing: int = 0
    doubled: int = 0
    stale: int = 0
    astray: int = 0
    not_proven: int = 0
    in_several_partitions: int = 0

    @property
    def is_clean(self) -> bool:
        return not (self.missing or self.doubled or self.stale or self.astray)


@dataclass(slots=True)
class KeyVerdict:
    """`fates`: how many messages of each source, by what became of them. `tables`: counts by number."""

    fates: Counter[tuple[int, Fate]] = field(default_factory=Counter)
    tables: dict[int, KeyCounts] = field(default_factory=dict)
    examples: list[KeyExample] = field(default_factory=list)

    def show(self, found: Iterator[KeyExample]) -> None:
        """Keeps examples of each kind and table up to a few."""
        for example in found:
            like = sum((one.what, one.table) == (example.what, example.table) for one in self.examples)
            if like < EXAMPLES_MAX:
                self.examples.append(example)


class _Part:
    """Entries in the order of their keys, of each the steps by source and offset, a row behind its step."""

    def __init__(self, some: pa.Table, known: KeyedRules) -> None:
        columns = columns_of(some)
        order = _in_order(columns)
        self.known = known
        self.count = len(order)
        self.ranks = _ranks(some)[order]
        self.at = {name: values[order] for name, values in columns.items()}
        self.table = self.at["table"].astype(np.int64)
        self.source, self.offset = self.at["source"].astype(np.int64), self.at["offset"]
        kind = self.at["kind"]
        self.is_row, self.is_put = (kind & WHAT) == ROW, (kind & WHAT) == PUT
        self.is_delete = (kind & WHAT) == DELETE
        self.is_counted = ~self.is_row & ((kind & BESIDE) == 0)
        self.is_replayed = (kind & REPLAYED) != 0
        begins = _begins(self.at, "table", "high", "low")
        self.group = np.cumsum(begins) - 1
        self.groups = int(self.group[-1]) + 1 if self.count else 0
        self.run = np.cumsum(begins | _begins(self.at, "source")) - 1
        self.rule = np.asarray(known.rules, np.int64)[self.table]
        self.truncated, self.loose = self._truncates()
        self.stands = ~self.is_row & ~self.truncated

    def _truncates(self) -> tuple[Bools, Bools]:
        """Entries whose rows a truncate took away; the keys of which another partition's may have."""
        truncated, loose = np.zeros(self.count, np.bool_), np.zeros(self.count, np.bool_)
        here = set(np.unique(self.table).tolist())
        for (table, source), offset in self.known.truncated_at.items():
            if table in here:
                of_table, same = self.table == table, self.source == source
                truncated |= of_table & same & (self.offset < offset)
                loose |= of_table & ~same & ~self.is_row
        return truncated, self.any_of(loose)

    def any_of(self, which: Bools) -> Bools:
        """By key, whether any of its entries is one of these."""
        found: Bools = np.bincount(self.group[which], minlength=self.groups) > 0
        return found

    def last_of_runs(self, which: Bools) -> Bools:
        """Of these, the last one of each key and source."""
        return _edges(which, self.run, 1)

    def first_of_groups(self, which: Bools) -> Bools:
        """Of these, the first one of each key."""
        return _edges(which, self.group, 0)

    def last_of_groups(self, which: Bools) -> Bools:
        """Of these, the last one of each key."""
        return _edges(which, self.group, 1)

    def first_of_runs(self, which: Bools) -> Bools:
        """Of these, the first one of each key and source."""
        return _edges(which, self.run, 0)

    def in_several(self) -> Bools:
        """The entries of keys whose changes stand in more than one source."""
        first = self.first_of_runs(self.stands)
        several: Bools = (np.bincount(self.group[first], minlength=self.groups) > 1)[self.group]
        return several


def _edges(which: Bools, numbers: Numbers, at_end: int) -> Bools:
    """Of these, the first (0) or the last (1) one of each number; equal numbers follow each other."""
    places = np.flatnonzero(which)
    edge = np.ones(len(places), np.bool_)
    differs = np.diff(numbers[places]) != 0
    edge[slice(0, -1) if at_end else slice(1, None)] = differs
    return _marked(len(which), places[edge])


def _in_order(columns: Mapping[str, NDArray[Any]]) -> Numbers:
    # Of one message what it deletes comes first, and the row that it made last.
    what = np.asarray([2, 1, 0], np.int8)[columns["kind"] & WHAT]
    names = ("offset", "source", "low", "high", "table")
    order: Numbers = np.lexsort((what, *(columns[name] for name in names)))
    return order


def _marked(count: int, places: NDArray[np.integer]) -> Bools:
    marked = np.zeros(count, np.bool_)
    marked[places] = True
    return marked


def _begins(at: Mapping[str, NDArray[Any]], *names: str) -> Bools:
    """Where one of these columns changes."""
    count = len(at["table"])
    begins = np.zeros(count, np.bool_)
    begins[:1] = True
    for name in names:
        begins[1:] |= at[name][1:] != at[name][:-1]
    return begins


def _ranks(some: pa.Table) -> Numbers:
    """Each entry's place by what orders changes, from 1; 0 where it says nothing."""
    order = some.column("order").combine_chunks()
    if order.null_count == len(order):
        return np.zeros(len(order), np.int64)
    ranks = np.asarray(pc.rank(order, tiebreaker="dense")).astype(np.int64)
    ranks[np.asarray(order.is_null())] = 0
    return ranks


@dataclass(frozen=True, slots=True)
class _Accepted:
    """`may_stand`: steps that may have been the last of their keys. `may_be_gone`: keys that may have no
    row."""

    may_stand: Bools
    may_be_gone: Bools


def compare_keys(some: pa.Table, known: KeyedRules, verdict: KeyVerdict) -> None:
    """Adds what is found about the keys of one part of a spool."""
    part = _Part(some, known)
    if not part.count:
        return
    accepted = _accepted(part)
    step_of = _step_of_rows(part)
    hits = part.is_row & (step_of >= 0)
    hits &= (accepted.may_stand & part.is_put)[step_of]
    stale, astray, not_proven = _unexplained(part, accepted, step_of, part.is_row & ~hits)
    is_hit = _marked(part.count, step_of[hits])
    has_hit, has_unproven = part.any_of(hits), part.any_of(not_proven)
    lacks = part.any_of(accepted.may_stand & part.is_put) & ~accepted.may_be_gone & ~has_hit & ~has_unproven
    missing = part.last_of_groups(accepted.may_stand & part.is_put & lacks[part.group])
    doubled = part.is_row & ~part.first_of_groups(part.is_row)
    _count_fates(part, accepted, is_hit, missing, has_hit, verdict)
    wrong = {"missing": missing, "doubled": doubled, "stale": stale, "not in the input": astray}
    several = part.first_of_groups(part.in_several())
    counted = {
        "alive": part.first_of_groups((has_hit | lacks)[part.group]),
        "keys": part.first_of_groups(part.is_row),
        "rows": part.is_row,
        "missing": missing,
        "doubled": doubled,
        "stale": stale,
        "astray": astray,
        "not_proven": not_proven,
        "in_several_partitions": several,
    }
    for name, which in counted.items():
        for table, count in zip(*np.unique(part.table[which], return_counts=True), strict=True):
            counts = verdict.tables.setdefault(int(table), KeyCounts())
            setattr(counts, name, getattr(counts, name) + int(count))
    for what, which in wrong.items():
        verdict.show(_examples(part, what, which))


# ---- which changes may be the last


def _accepted(part: _Part) -> _Accepted:
    replayed = part.stands & part.is_replayed
    last, first, greatest = (part.stands & (part.rule == rule) for rule in Rule)
    stand = part.last_of_runs(last)
    gone = part.any_of(stand & part.is_delete)
    stand |= last & replayed & part.is_put & gone[part.group]
    unsure = part.loose | part.any_of(replayed)
    in_any_order = np.asarray(part.known.ordered, np.bool_)[part.table]
    stand |= part.first_of_runs(first) | (first & (unsure[part.group] | in_any_order))
    stand |= _greatest(part, greatest, replayed)
    return _Accepted(stand, part.any_of(stand & part.is_delete) | part.loose)


def _greatest(part: _Part, which: Bools, replayed: Bools) -> Bools:
    """The greatest of each key; where that may have left no row, also what is greater than all behind it."""
    best = np.zeros(part.groups, np.int64)
    np.maximum.at(best, part.group[which], part.ranks[which])
    tops = _tops(part, which)
    stand = (tops | (which & replayed)) & (part.ranks == best[part.group])
    unsure = part.loose | part.any_of(stand & part.is_delete)
    found: Bools = stand | ((tops | (which & replayed)) & unsure[part.group])
    return found


def _tops(part: _Part, which: Bools) -> Bools:
    """Of these, those that are greater than all later ones of their key and source."""
    places = np.flatnonzero(which)[::-1]
    if not len(places):
        return which
    numbers = (part.run[places[0]] - part.run[places]) * (part.count + 2) + part.ranks[places]
    greatest = np.maximum.accumulate(numbers)
    is_top = np.ones(len(places), np.bool_)
    is_top[1:] = numbers[1:] > greatest[:-1]
    return _marked(part.count, places[is_top])


def _older(part: _Part, which: Bools) -> Bools:
    """Of these, those that are less than one before them."""
    places = np.flatnonzero(which)
    numbers = part.run[places] * (part.count + 2) + part.ranks[places]
    return _marked(part.count, places[numbers < np.maximum.accumulate(numbers)])


# ---- rows


def _step_of_rows(part: _Part) -> Numbers:
    """For each row the place of the change that it says it is of; -1 where the input has none."""
    places = np.arange(part.count)
    before = np.maximum.accumulate(np.where(part.is_row, -1, places))
    same = (part.run[before] == part.run) & (part.offset[before] == part.offset) & (before >= 0)
    found: Numbers = np.where(part.is_row & same, before, -1)
    return found


def _unexplained(
    part: _Part, accepted: _Accepted, step_of: Numbers, rows: Bools
) -> tuple[Bools, Bools, Bools]:
    """Rows that are stale, those that no change made, and those of which the input does not tell any more."""
    known = part.known
    # What has no source has the last place of these.
    starts = np.asarray([*known.starts, 0], np.int64)[part.source]
    compacted = np.asarray([*known.is_compacted, False], np.bool_)[part.source]
    outside = (part.source == NOWHERE) | (part.offset < starts) | compacted
    lenient = np.asarray(known.lenient, np.bool_)[part.table]
    last = np.full(int(part.run[-1]) + 1, -1, np.int64)
    by_offset = accepted.may_stand & (part.rule == Rule.LAST)
    last[part.run[by_offset]] = np.flatnonzero(by_offset)
    is_later = (last[part.run] > np.arange(part.count)) | part.truncated
    stale = rows & ~lenient & ((step_of >= 0) | is_later)
    not_proven = rows & ~stale & (lenient | outside)
    return stale, rows & ~stale & ~not_proven, not_proven


# ---- counts


def _count_fates(
    part: _Part, accepted: _Accepted, is_hit: Bools, missing: Bools, has_hit: Bools, verdict: KeyVerdict
) -> None:
    stand = accepted.may_stand
    fate = np.full(part.count, Fate.REPLACED, np.int64)
    is_first, is_greatest = (part.stands & (part.rule == rule) for rule in (Rule.FIRST, Rule.GREATEST))
    fate[is_first | _older(part, is_greatest)] = Fate.PASSED_OVER
    fate[stand & part.is_delete & ~has_hit[part.group]] = Fate.DELETED
    fate[missing] = Fate.MISSING
    fate[is_hit] = Fate.WRITTEN
    numbers = part.source[part.is_counted] * len(Fate) + fate[part.is_counted]
    for number, count in zip(*np.unique(numbers, return_counts=True), strict=True):
        source, what = divmod(int(number), len(Fate))
        verdict.fates[source, Fate(what)] += int(count)


def _examples(part: _Part, what: str, which: Bools) -> Iterator[KeyExample]:
    for at in np.flatnonzero(which)[: 64 * EXAMPLES_MAX].tolist():
        names = ("table", "source", "offset", "file", "position")
        yield KeyExample(what, *(int(part.at[name][at]) for name in names))


def without_replaced(some: pa.Table, rules: Sequence[Rule]) -> tuple[pa.Table, Counter[int]]:
    """Entries without the changes that a later one of the same key and source replaces anyway, and how many
    of these are counted, by source: a key that changes all the time takes no room."""
    columns = columns_of(some)
    order = _in_order(columns)
    kind = columns["kind"][order]
    is_last = np.asarray(rules, np.int64)[columns["table"][order]] == Rule.LAST
    which = is_last & ((kind & WHAT) != ROW) & ((kind & REPLAYED) == 0)
    at = {name: columns[name][order] for name in ("table", "high", "low", "source")}
    gone = which & ~_edges(which, np.cumsum(_begins(at, *at)), 1)
    counted = columns["source"][order][gone & ((kind & BESIDE) == 0)]
    replaced = Counter(
        dict(zip(*(each.tolist() for each in np.unique(counted, return_counts=True)), strict=True))
    )
    return some.take(pa.array(np.sort(order[~gone]))), replaced
