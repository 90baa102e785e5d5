"""A rule's tests, and what it would have done in the past: windows looked at in order, over the rows of a
test or those of the lake, with all that the evaluator does but writing and telling."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lake.clock import SystemClock
from lake.settings import QuerySettings
from lake.storage import open_storage
from lake.tenant import TableId
from query.alerts.counting import Counter
from query.alerts.local_table import LocalTables
from query.alerts.round import Item, Round, Surroundings
from query.alerts.rule import Rule
from query.alerts.rule_file import ROWS_MAX, Expected, RuleFile, RuleTest, TestRows
from query.alerts.rule_state import RuleState
from query.alerts.transitions import firing_of, key_of, pending_of
from query.alerts.windows import Due, due, due_again
from query.executors.embedded import EmbeddedExecutor
from query.files.file_cache import FileCache
from query.files.file_index import FileIndex
from query.model.problem import refuse
from query.model.table_view import TableSource, table_id
from query.search.lag import UnknownLag
from query.search.search import Searcher

WINDOWS_MAX = 2_000
GROUPS_MAX = 1_000
MEMORY_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Fault:
    """What a test expected and did not find."""

    test: str
    at_s: int
    message: str


def run_tests(rules: RuleFile, settings: QuerySettings) -> Iterator[tuple[RuleTest, list[Fault]]]:
    """Carries out the tests of a file; needs no service. Raises BadRequestError, FirnError."""
    by_name = {rule.name: rule for rule in rules.rules}
    for test in rules.tests:
        yield test, run_test(rules.tenant, by_name[test.rule], test, settings)


def run_test(tenant: str, rule: Rule, test: RuleTest, settings: QuerySettings) -> list[Fault]:
    """Carries out one test."""
    table = table_id(tenant, rule.stream)
    waiting = sorted(_arrivals(test), key=lambda each: each[0])
    faults = list[Fault]()
    with local_world(settings) as (tables, round_of):
        # A table with one row long ago, so that there is one before the first row comes.
        tables.append(table, [{"timestamp": test.start - timedelta(days=400)}], test.start)
        item = Item(table, rule, RuleState("test"), ("test",))
        start_s = int(test.start.timestamp())
        for expected in sorted(test.expect, key=lambda each: each.at):
            until_s = start_s + expected.at
            for due_s in _moments(item, until_s, waiting, start_s):
                arrived = [rows for at_s, rows in waiting if at_s <= due_s]
                waiting = waiting[len(arrived) :]
                if arrived:
                    tables.append(table, [row for rows in arrived for row in rows], test.start)
                item = _caught_up(item, due_s, start_s, round_of)
            faults += _compared(test, expected, rule, item.state)
    return faults


def _moments(item: Item, until_s: int, waiting: Sequence[tuple[int, Any]], start_s: int) -> list[int]:
    """When something is looked at: at the end of each window, and last with what came late."""
    rule = item.rule
    first = item.state.until or start_s // rule.every * rule.every
    ends = range(first + rule.every, until_s + 1, rule.every)
    if len(ends) > WINDOWS_MAX:
        raise refuse(f"a test of {len(ends):,} windows; at most {WINDOWS_MAX:,} are looked at")
    late = [at_s for at_s, _ in waiting if at_s <= until_s]
    return sorted({*ends, *late, until_s})


def _caught_up(item: Item, now_s: int, start_s: int, round_of: Callable[[Sequence[TableId]], Round]) -> Item:
    """The rule after everything that is due. A test has no delay: its rows come when they say."""
    instant = item.rule.model_copy(update={"delay": 0})
    if item.state.until is None:
        first = start_s // instant.every * instant.every
        item = replace(item, state=replace(item.state, until=first, checked=first))
    item = replace(item, rule=instant)
    while True:
        window = due(instant, item.state, now_s, catch_up_s=10**9) or due_again(instant, item.state, now_s)
        if window is None:
            return item
        (state,) = round_of([item.table]).after([(item, [window])])
        if state.health.problem is not None:
            raise refuse(state.health.problem)
        item = replace(item, state=state)


def _arrivals(test: RuleTest) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    start_s, total = int(test.start.timestamp()), 0
    for rows in test.rows:
        total += rows.repeat
        if total > ROWS_MAX:
            raise refuse(f"the test {test.name!r} has more than {ROWS_MAX:,} rows")
        by_moment: dict[int, list[dict[str, Any]]] = {}
        for at_s in (rows.at + number * rows.each for number in range(rows.repeat)):
            arrives = rows.arrives if rows.arrives is not None else at_s
            by_moment.setdefault(start_s + max(arrives, at_s), []).append(_record(test, rows, at_s))
        yield from by_moment.items()


def _record(test: RuleTest, rows: TestRows, at_s: int) -> dict[str, Any]:
    return {**rows.fields, "timestamp": test.start + timedelta(seconds=at_s)}


def _compared(test: RuleTest, expected: Expected, rule: Rule, state: RuleState) -> list[Fault]:
    found = [
        ("firing", expected.firing, [key_of(key) for key, _ in firing_of(state)]),
        ("pending", expected.pending, [group.values for group, _ in pending_of(state, rule)]),
    ]
    faults = []
    for what, wanted, groups in found:
        named = [dict(zip(rule.groups, values, strict=True)) for values in groups]
        if wanted is not None and _sorted(named) != _sorted(wanted):
            faults.append(f"{what} are {_told(named)}, and it expects {_told(wanted)}")
    told = sum(event["kind"] == "firing" for event in state.history)
    if expected.told is not None and told != expected.told:
        faults.append(f"{told} alerts were told, and it expects {expected.told}")
    return [Fault(test.name, expected.at, each) for each in faults]


def _sorted(groups: Sequence[Mapping[str, str | None]]) -> list[list[tuple[str, str | None]]]:
    return sorted((sorted(group.items()) for group in groups), key=str)


def _told(groups: Sequence[Mapping[str, str | None]]) -> str:
    return ", ".join(str(dict(group)) for group in groups) or "none"


@contextmanager
def local_world(
    settings: QuerySettings,
) -> Iterator[tuple[LocalTables, Callable[[Sequence[TableId]], Round]]]:
    """Tables in a folder that goes afterwards, and rounds over them."""
    clock, storage = SystemClock(), open_storage()
    with TemporaryDirectory(prefix="firn-rules-") as folder:
        place = Path(folder)
        embedded = settings.embedded.model_copy(update={"memory_bytes": MEMORY_BYTES, "threads": 1})
        own = settings.model_copy(update={"state": folder, "embedded": embedded})
        tables, index = LocalTables(storage, place / "warehouse"), FileIndex(storage)
        cache = FileCache(storage, place / "files", 0)
        engine = EmbeddedExecutor(own, cache.local_paths, lambda: [place])
        around = Surroundings(index, clock, GROUPS_MAX)

        def round_of(_: Sequence[TableId]) -> Round:
            return round_over(tables, around, own, engine)

        yield tables, round_of


def round_over(
    tables: TableSource, around: Surroundings, settings: QuerySettings, engine: EmbeddedExecutor
) -> Round:
    """A round over tables in which nobody is behind."""
    searcher = Searcher(tables, around.index, (engine,), settings, UnknownLag(), around.clock)
    counter = Counter(searcher, settings.search.timeout_s, around.clock, lambda *_: None)
    return Round(around, tables, counter)


def of_past(
    item: Item, first: datetime, last: datetime, round_of: Callable[[], Round], check: Callable[[], None]
) -> tuple[RuleState, int]:
    """What a rule would have told of the windows that end from one time to another, and how many there were.
    `check` is called before each. Raises BadRequestError, FirnError."""
    rule = item.rule.model_copy(update={"late": 0})
    begin = -(-int(first.timestamp()) // rule.every) * rule.every
    ends = range(begin, int(last.timestamp()) + 1, rule.every)
    if len(ends) > WINDOWS_MAX:
        raise refuse(
            f"these are {len(ends):,} windows; a dry run looks at {WINDOWS_MAX:,} at most",
            suggestion="choose a shorter time range",
        )
    item = replace(item, rule=rule)
    this_round = round_of()
    for end in ends:
        check()
        (state,) = this_round.after([(item, [Due(end)])])
        if state.health.problem is not None:
            raise refuse(state.health.problem)
        item = replace(item, state=state)
    return item.state, len(ends)
