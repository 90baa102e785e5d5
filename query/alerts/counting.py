"""Counts for many rules at once. Those of a table that want the same window and the same groups become one
statement, with a measure for each query; its files are those in which one of the queries can have a match."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from lake.clock import Clock
from lake.errors import FirnError, NotFoundError
from lake.tenant import TableId
from query.alerts.conditions import TooManyGroupsError, Wanted
from query.alerts.transitions import Key
from query.alerts.windows import moment
from query.language.search_language import parse_search
from query.model.cancellation import Run
from query.model.problem import BadRequestError
from query.model.search_usage import Used
from query.search.search import Progress, Searcher, SearchRequest
from query.stats.groups import ByValue
from query.stats.measures import Measure
from query.stats.stats import StatsAnswer, StatsRequest, stats

QUERIES_MAX = 100  # of one statement
GROUPS_MAX = 5_000  # of one count
VALUE_CHARACTERS_MAX = 300
Counts = dict[Key, int]
# What was counted, or why it was not.
Counted = Counts | FirnError | BadRequestError | TooManyGroupsError
# Is told what a statement over a table has used.
Use = Callable[[TableId, Used], None]


class UnfinishedError(FirnError):
    """A count was not finished, so it says nothing."""


@dataclass(frozen=True, slots=True)
class Question:
    """A count of a table's rows."""

    table: TableId
    wanted: Wanted


@dataclass(frozen=True, slots=True)
class Plan:
    """What one statement counts: rows of one window in one set of groups, by query."""

    table: TableId
    start: int
    end: int
    groups: tuple[str, ...]
    queries: tuple[str, ...]


def plans_of(questions: Iterable[Question]) -> Iterator[Plan]:
    """The fewest statements that answer the questions."""
    together = defaultdict[tuple[TableId, int, int, tuple[str, ...]], dict[str, None]](dict)
    for each in questions:
        wanted = each.wanted
        together[each.table, wanted.start, wanted.end, wanted.groups][wanted.query] = None
    for (table, start, end, groups), queries in together.items():
        listed = list(queries)
        for at in range(0, len(listed), QUERIES_MAX):
            yield Plan(table, start, end, groups, tuple(listed[at : at + QUERIES_MAX]))


class Counter:
    """Counts with one searcher. `timeout_s`: of a statement."""

    def __init__(self, searcher: Searcher, timeout_s: float, clock: Clock, use: Use) -> None:
        self._searcher = searcher
        self._timeout_s = timeout_s
        self._clock = clock
        self._use = use
        self.seconds: dict[Question, float] = {}  # that the last answers took, each its share

    def answers(self, questions: Sequence[Question]) -> Mapping[Question, Counted]:
        """What each question's answer is; what is wrong with one of them leaves the others alone."""
        found = dict[Question, Counted]()
        self.seconds = {}
        for plan in plans_of(questions):
            began_s = self._clock.monotonic_s()
            for query, counted in self._carried_out(plan).items():
                wanted = Wanted(plan.start, plan.end, query, plan.groups)
                found[question := Question(plan.table, wanted)] = counted
                self.seconds[question] = (self._clock.monotonic_s() - began_s) / len(plan.queries)
        return found

    def _carried_out(self, plan: Plan) -> dict[str, Counted]:
        try:
            return dict(self._counted(plan))
        except NotFoundError as error:
            return dict.fromkeys(plan.queries, error)
        except (FirnError, BadRequestError, TooManyGroupsError) as error:
            if len(plan.queries) == 1:
                return {plan.queries[0]: error}
        alone = dict[str, Counted]()  # one of them is at fault, and the others are not to suffer by it
        for query in plan.queries:
            alone |= self._carried_out(Plan(plan.table, plan.start, plan.end, plan.groups, (query,)))
        return alone

    def _counted(self, plan: Plan) -> Mapping[str, Counts]:
        search = SearchRequest(plan.table, moment(plan.start), moment(plan.end), any_of(plan.queries))
        measures = tuple(Measure("count", where=query) for query in plan.queries)
        asked = StatsRequest(
            search, tuple(ByValue(field) for field in plan.groups), measures, groups_max=GROUPS_MAX
        )
        run, progress = Run(self._timeout_s, self._clock), Progress()
        try:
            answer = stats(self._searcher, asked, run, progress)
        finally:
            self._use(plan.table, Used(1, run.worked_s, run.read_bytes))
        if progress.stopped is not None:
            raise UnfinishedError(f"not all rows were counted: {progress.stopped}")
        if answer.is_cut:
            raise TooManyGroupsError(
                f"{', '.join(plan.groups)} have more than {GROUPS_MAX:,} values among the rows of a window; "
                "narrow its query, or group by another field"
            )
        return _by_query(plan, answer)


def _by_query(plan: Plan, answer: StatsAnswer) -> dict[str, Counts]:
    found: dict[str, Counts] = {query: {} for query in plan.queries}
    width = len(plan.groups)
    for row in answer.rows:
        key = tuple(map(_text, row[:width]))
        for query, count in zip(plan.queries, row[width:], strict=True):
            if count:
                found[query][key] = found[query].get(key, 0) + int(count)
    return found


def any_of(queries: Sequence[str]) -> str:
    """A query for the rows that one of several finds, so that files are passed over by it; the empty one, for
    all rows, where that would be longer than a query may be."""
    if len(queries) == 1:
        return queries[0]
    if not all(query.strip() for query in queries):
        return ""
    joined = " OR ".join(f"({query})" for query in queries)
    try:
        parse_search(joined)
    except BadRequestError:
        return ""
    return joined


def _text(value: Any) -> str | None:
    if value is None:
        return None
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if len(text) <= VALUE_CHARACTERS_MAX:
        return text
    return (
        f"{text[:VALUE_CHARACTERS_MAX]}… ({sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:12]})"
    )
