"""One look at the windows that are due of many rules: their tables loaded once, their counts planned
together, each rule's state after it. Nothing is written and nobody is told here; what goes wrong for one
rule is a problem of its state."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from lake.clock import Clock
from lake.errors import FirnError, NotFoundError
from lake.tenant import TableId
from query.alerts.conditions import (
    Counts,
    TooManyGroupsError,
    Wanted,
    met_by,
    remembers,
    seen_after,
    wanted_before,
    wanted_in,
)
from query.alerts.counting import Counted, Counter, Question
from query.alerts.links import address_of, link_to
from query.alerts.rule import Rule
from query.alerts.rule_state import Health, Looked, RuleState
from query.alerts.tables import TableLook, look_at
from query.alerts.transitions import Key, RuleName, after_window, settled
from query.alerts.windows import Due
from query.files.file_index import FileIndex
from query.model.problem import BadRequestError
from query.model.table_view import TableSource

Problem = FirnError | BadRequestError | TooManyGroupsError


@dataclass(frozen=True, slots=True)
class Item:
    """A rule with its state. `receivers`: whom its messages go to."""

    table: TableId
    rule: Rule
    state: RuleState
    receivers: tuple[str, ...] = ()

    @property
    def name(self) -> RuleName:
        return RuleName(self.table.tenant.name, self.rule.name)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What rounds go by. `groups_max`: groups of one rule that alert at once; `pages_uri`: the front end that
    links lead to."""

    index: FileIndex
    clock: Clock
    groups_max: int
    pages_uri: str = ""


@dataclass(slots=True)
class Round:
    """One round. `counter_of` gives what counts over tables as the round has loaded them."""

    around: Surroundings
    tables: TableSource
    counter: Counter
    _looks: dict[TableId, TableLook | Problem] = field(default_factory=dict)
    counted: int = 0  # windows of which rows were counted

    def after(self, dues: Sequence[tuple[Item, Sequence[Due]]]) -> list[RuleState]:
        """The state of each rule after its windows, in order."""
        asked = [(item, self._to_count(item, windows)) for item, windows in dues]
        questions = [
            Question(item.table, wanted)
            for item, windows in asked
            for due in windows
            for wanted in _wanted(item, due)
        ]
        answers = self.counter.answers(list(dict.fromkeys(questions))) if questions else {}
        return [
            self._after(item, windows, {due.end for due in to_count}, answers)
            for (item, windows), (_, to_count) in zip(dues, asked, strict=True)
        ]

    def _to_count(self, item: Item, windows: Sequence[Due]) -> list[Due]:
        """The windows of which rows have to be counted: not those that nothing came for since they were
        looked at."""
        look = self._look(item.table)
        if not isinstance(look, TableLook):
            return []
        return [due for due in windows if due.again is None or _came(look, item.rule, due.again)]

    def _look(self, table: TableId) -> TableLook | Problem:
        if table not in self._looks:
            try:
                self._looks[table] = look_at(self.tables, self.around.index, table)
            except (FirnError, BadRequestError) as error:
                self._looks[table] = error
        return self._looks[table]

    def _after(
        self, item: Item, windows: Sequence[Due], to_count: set[int], answers: Mapping[Question, Counted]
    ) -> RuleState:
        state, took_s, look = item.state, 0.0, self._look(item.table)
        at_s = self.around.clock.now().timestamp()
        try:
            if not isinstance(look, TableLook):
                raise look
            for due in windows:
                if due.end in to_count:
                    self.counted += 1
                    counts = [_counts(answers, Question(item.table, each)) for each in _wanted(item, due)]
                    took_s += sum(
                        self.counter.seconds.get(Question(item.table, each), 0.0)
                        for each in _wanted(item, due)
                    )
                    state = self._looked_at(replace(item, state=state), due, counts)
                state = self._passed(replace(item, state=state), due, look)
        except (FirnError, BadRequestError, TooManyGroupsError) as error:
            return replace(
                item.state, health=Health(at_s, took_s, _sentence(error), by_rule=_is_by_rule(error, look))
            )
        return replace(state, health=Health(at_s, took_s))

    def _looked_at(self, item: Item, due: Due, counts: list[Counts]) -> RuleState:
        rule, state = item.rule, item.state
        seen = dict(state.seen or {})
        if remembers(rule):
            if state.seen is None:
                seen = seen_after(rule, seen, counts.pop(0), due.end - rule.window)
            seen = seen_after(rule, seen, counts[0], due.end)
        met = met_by(rule, due.end, counts, seen)
        if len(met) > self.around.groups_max:
            raise TooManyGroupsError(
                f"it alerts for {len(met):,} groups at once, and a rule may for {self.around.groups_max:,}; "
                "narrow its query, or group by another field"
            )
        if due.skipped:
            state = replace(state, skipped=state.skipped + due.skipped).noted(
                window=due.end, kind="skipped", values=[], windows=due.skipped
            )
        state = replace(state, seen=seen if remembers(rule) else None)
        return after_window(
            state,
            item.name,
            rule,
            due.end,
            met,
            item.receivers,
            lambda values, end: self._link(item, values, end),
        )

    def _passed(self, item: Item, due: Due, look: TableLook) -> RuleState:
        """The state once a window was looked at, or nothing came for it: it waits for its second look, or had
        it."""
        state, rule = item.state, item.rule
        if due.again is None and rule.late:
            looked = Looked(due.end, look.snapshot_id, look.sequence)
            return replace(state, looked=(*state.looked, looked))
        left = tuple(each for each in state.looked if each.end > due.end)
        state = replace(state, looked=left, checked=due.end)
        link = lambda values, end: self._link(item, values, end)  # noqa: E731
        return settled(state, item.name, rule, item.receivers, link)

    def _link(self, item: Item, values: Key, end: int) -> str:
        look = self._look(item.table)
        pin = look.pin if isinstance(look, TableLook) else ""
        return link_to(self.around.pages_uri, address_of(item.table, item.rule, values, end, pin))


def _wanted(item: Item, due: Due) -> tuple[Wanted, ...]:
    before: tuple[Wanted, ...] = ()
    if remembers(item.rule) and item.state.seen is None:
        before = (wanted_before(item.rule, due.end),)
    return (*before, *wanted_in(item.rule, due.end))


def _came(look: TableLook, rule: Rule, looked: Looked) -> bool:
    if look.snapshot_id == looked.snapshot_id:
        return False
    return look.has_rows_since(looked.sequence, looked.end - rule.window, looked.end)


def _counts(answers: Mapping[Question, Counted], question: Question) -> Counts:
    found = answers[question]
    if not isinstance(found, dict):
        raise found
    return found


def _is_by_rule(error: Problem, look: TableLook | Problem) -> bool:
    """Whether it is whoever wrote the rule who can mend it. A stream may well not be there; a file that is
    not is a fault of the lake."""
    if isinstance(error, NotFoundError):
        return error is look
    return isinstance(error, BadRequestError | TooManyGroupsError)


def _sentence(error: Problem) -> str:
    if isinstance(error, BadRequestError):
        return error.problem.message
    return str(error)
