"""The evaluator: one thread of one server at a time, by a lease. It looks at the windows that are due, writes
each rule's state with the messages that follow from it under the lease's token, and sends what is written.

What it has not written has not happened: a server that dies before is as if it had not looked, and one that
dies after has its messages sent by the next. So a window is looked at once by whoever wrote it, and a message
is sent until its receiver has acknowledged it, under the same id each time.
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import structlog

from lake.clock import Clock
from lake.errors import FirnError
from lake.isolation import isolate
from lake.lease import Lease
from lake.limits import Bound, Limit
from lake.metrics import (
    ALERT_BEHIND,
    ALERT_LAST_ROUND,
    ALERT_LEADER,
    ALERT_MESSAGES,
    ALERT_ROUND_SECONDS,
    ALERT_RULES,
    ALERT_RULES_FAILING,
    ALERT_WAITING,
    ALERT_WINDOWS_SKIPPED,
    ALERTS_FIRING,
)
from lake.tenant import TableId
from query.alerts.counting import Counter
from query.alerts.delivery import Delivery, Sending
from query.alerts.outbox import acknowledged, failed, given_up, over_full, ready
from query.alerts.round import Item, Round, Surroundings
from query.alerts.rule import ALERTMANAGER
from query.alerts.rule_state import Health, Message, RuleState
from query.alerts.rule_store import RULE_KIND, RuleStore, StoredRule, StoredState, stored_rule_of
from query.alerts.transitions import ended, firing_of
from query.alerts.windows import Due, due, due_again, latest_end
from query.model.search_usage import DailyLimitError, SearchUsage
from query.model.table_view import TableSource
from query.search.lag import LagSource
from query.search.search import Searcher

LOOK_EVERY_S = 1.0
RULES_READ_EVERY_S = 10.0
RETRY_S = 60.0  # a rule with a problem is looked at again
RECEIVERS = ("alertmanager", "webhook")
CAUSES = {"rule": True, "service": False}  # of what keeps a rule from being evaluated
NOT_TOLD = "ingestion does not say until when everything is in; `python -m ingest serve` has to answer"
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class EvaluatorTimes:
    """Seconds. `catch_up_s`: windows older than this are passed over after an outage; `resend_s`: how often
    Alertmanager is told of an alert that goes on; `shown_s`: the least time between an alert and its end,
    where both are told late."""

    catch_up_s: float
    resend_s: float
    shown_s: float


@dataclass(frozen=True)
class EvaluatorParts:
    """What the evaluator works with. `tables_of` loads tables, each once; `searcher_of` searches in them;
    `limits_of` tells what a namespace may use."""

    store: RuleStore
    around: Surroundings
    tables_of: Callable[[Iterable[TableId]], TableSource]
    searcher_of: Callable[[TableSource], Searcher]
    lag: LagSource
    delivery: Delivery
    alertmanagers: Sequence[str]
    usage: SearchUsage
    limits_of: Callable[[str], Mapping[Limit, Bound]]
    timeout_s: float
    times: EvaluatorTimes
    clock: Clock


@dataclass
class Evaluator:
    """One process's. `lease_of` makes a lease to wait for, each time anew."""

    parts: EvaluatorParts
    lease_of: Callable[[], Lease]
    rounds: int = 0
    _rules: dict[str, StoredRule] = field(default_factory=dict)
    _states: dict[str, StoredState] = field(default_factory=dict)
    _changed: set[str] = field(default_factory=set)
    _retry_s: dict[str, float] = field(default_factory=dict)
    _resent_s: dict[tuple[str, str], float] = field(default_factory=dict)
    _on_way: set[str] = field(default_factory=set)
    _read_s: float = float("-inf")
    _ended: threading.Event = field(default_factory=threading.Event)
    _hurry: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    # ---- the thread

    def start(self) -> None:
        """Begins to work, as soon as the lease is to be had."""
        self._thread = threading.Thread(target=self._work, name="alert-rules", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends it; another one goes on where it stands."""
        self._ended.set()
        self._hurry.set()
        if self._thread is not None:
            self._thread.join(timeout=self.parts.timeout_s)
        self.parts.delivery.close()

    def wake(self) -> None:
        """Has the rules read again: one was changed here."""
        self._read_s = float("-inf")
        self._hurry.set()

    def _work(self) -> None:
        while not self._ended.is_set():
            with isolate("alerts.unforeseen"):
                try:
                    self._lead()
                except FirnError as error:
                    log.warning("alerts.interrupted", reason=str(error))
            ALERT_LEADER.set(0)
            _tell((), ())  # whoever evaluates from now on does
            self._ended.wait(LOOK_EVERY_S)

    def _lead(self) -> None:
        with self.lease_of() as lease:
            if not lease.acquire(self._ended):
                return
            ALERT_LEADER.set(1)
            self.load()
            while not self._ended.is_set():
                lease.check()
                self.step(lease.fencing_token)
                self._hurry.wait(LOOK_EVERY_S)
                self._hurry.clear()

    # ---- one step

    def load(self) -> None:
        """Takes over from whoever had the lease before. Raises FirnError."""
        self._states = {each.id: each for each in self.parts.store.states()}
        self._changed.clear()
        self._retry_s.clear()
        self._resent_s.clear()
        self._read_rules()

    def step(self, lease: str | None) -> int:
        """Does what is to be done now: how many windows were looked at. Raises FirnError where nothing is
        known to be written; then everything is loaded again."""
        if self.parts.clock.monotonic_s() - self._read_s >= RULES_READ_EVERY_S:
            self._read_rules()
        looked = 0
        while found := self._look():
            looked += found
            self._save(lease)
            ALERT_LAST_ROUND.set(self.parts.clock.now().timestamp())
            if self._ended.is_set():
                break
        self._note_outcomes()
        self._save(lease)
        ALERT_LAST_ROUND.set(self.parts.clock.now().timestamp())
        self._send()
        return looked

    def _read_rules(self) -> None:
        known = {f"{RULE_KIND}:{each.id}": each for each in self._rules.values()}
        found = dict[str, StoredRule]()
        for task in self.parts.store.rule_tasks():
            before = known.get(task.id)
            rule = before if before and before.version == task.version else stored_rule_of(task)
            if rule is not None:
                found[rule.id] = rule
        self._rules, self._read_s = found, self.parts.clock.monotonic_s()
        for rule_id, rule in found.items():
            self._take(rule_id, rule)
        for state_id in self._states.keys() - found.keys():
            self._let_go(state_id, "the rule was deleted")
        ALERT_RULES.set(len(found))
        self._measure()

    def _take(self, rule_id: str, rule: StoredRule) -> None:
        kept = self._states.get(rule_id)
        if kept is None:
            self._states[rule_id] = StoredState(rule_id, rule.tenant, RuleState(rule.revision))
        elif kept.state.revision != rule.revision:
            self._let_go(rule_id, "the rule was changed")
            self._put(rule_id, replace(self._states[rule_id].state, revision=rule.revision))

    def _let_go(self, state_id: str, why: str) -> None:
        kept = self._states[state_id].state
        if kept.groups or kept.until is not None:
            # The rule is gone, so its last messages go to whoever was told before.
            receivers = tuple(self._told_before(state_id))
            self._put(state_id, ended(kept, receivers, why))

    def _told_before(self, state_id: str) -> Sequence[str]:
        rule = self._rules.get(state_id)
        known = self._states[state_id].state.receivers
        return self._receivers(rule) if rule is not None and not known else known

    def _put(self, state_id: str, state: RuleState) -> None:
        self._states[state_id] = replace(self._states[state_id], state=state)
        self._changed.add(state_id)

    def _receivers(self, rule: StoredRule) -> tuple[str, ...]:
        managers = tuple(self.parts.alertmanagers) if ALERTMANAGER in rule.rule.notify else ()
        return (*managers, *rule.rule.webhooks)

    # ---- looking

    def _look(self) -> int:
        """Looks at the oldest window that is due of each rule, and at one that is due for its second look."""
        dues = self._dues()
        if not dues:
            return 0
        began_s = self.parts.clock.monotonic_s()
        tables = self.parts.tables_of(item.table for item, _ in dues)
        counter = Counter(
            self.parts.searcher_of(tables),
            self.parts.timeout_s,
            self.parts.clock,
            lambda table, used: self.parts.usage.add(table.tenant.namespace, table.stream, used),
        )
        this_round = Round(self.parts.around, tables, counter)
        for (item, windows), state in zip(dues, this_round.after(dues), strict=True):
            rule_id = StoredRule(item.table.tenant, item.rule).id
            ALERT_WINDOWS_SKIPPED.inc(
                sum(each.skipped for each in windows) if not state.health.problem else 0
            )
            self._put(rule_id, self._bounded(replace(state, receivers=item.receivers)))
            if state.health.problem is not None:
                self._retry_s[rule_id] = self.parts.clock.monotonic_s() + min(RETRY_S, item.rule.every)
        self.rounds += 1
        ALERT_ROUND_SECONDS.observe(self.parts.clock.monotonic_s() - began_s)
        self._measure()
        return sum(len(windows) for _, windows in dues)

    def _dues(self) -> list[tuple[Item, list[Due]]]:
        # Asked before the tables are loaded: what is said to be in then is in them.
        found, now_s, complete = [], self.parts.clock.monotonic_s(), dict[TableId, float | str]()
        behind_s = 0.0
        for rule_id, rule in self._rules.items():
            if self._retry_s.get(rule_id, 0.0) > now_s:
                continue
            until = complete.get(rule.table)
            if until is None:
                until = complete[rule.table] = self._complete(rule.table)
            if isinstance(until, str):
                self._wait(rule_id, until)
                continue
            state = self._states[rule_id].state
            windows = self._windows(rule, state, until)
            if state.until is not None:
                behind_s = max(behind_s, latest_end(rule.rule, until) - state.until)
            if windows and not self._is_over_limit(rule_id, rule):
                item = Item(rule.table, rule.rule, state, self._receivers(rule))
                found.append((item, windows))
        ALERT_BEHIND.set(behind_s)
        return found

    def _windows(self, rule: StoredRule, state: RuleState, until_s: float) -> list[Due]:
        first = due(rule.rule, state, until_s, self.parts.times.catch_up_s)
        again = due_again(rule.rule, state, until_s)
        return [each for each in (first, again) if each is not None]

    def _complete(self, table: TableId) -> float | str:
        """Until when everything is in a table, or why that is not known."""
        lag = self.parts.lag.of(table)
        if lag is None or lag.complete_until is None:
            return NOT_TOLD
        if lag.parked_reason is not None:
            return f"its stream is parked ({lag.parked_reason}), and its newer rows wait outside of the table"
        return lag.complete_until.timestamp()

    def _wait(self, rule_id: str, why: str) -> None:
        state = self._states[rule_id].state
        if state.health.waits != why:
            self._put(rule_id, replace(state, health=replace(state.health, waits=why)))

    def _is_over_limit(self, rule_id: str, rule: StoredRule) -> bool:
        namespace = rule.tenant.namespace
        try:
            self.parts.usage.check(namespace, self.parts.limits_of(namespace))
        except DailyLimitError as error:
            state = self._states[rule_id].state
            at_s = self.parts.clock.now().timestamp()
            if state.health.problem != str(error):
                self._put(rule_id, replace(state, health=Health(at_s, 0.0, str(error), by_rule=True)))
            self._retry_s[rule_id] = self.parts.clock.monotonic_s() + RETRY_S
            return True
        return False

    def _bounded(self, state: RuleState) -> RuleState:
        for message in over_full(state):
            ALERT_MESSAGES.labels(self._kind(message.to), "dropped").inc()
            state = given_up(state, message.id, "too many messages of this rule wait")
        return state

    def _measure(self) -> None:
        waiting = (each for kept in self._states.values() for each in kept.state.outbox if each.failures)
        _tell(
            [self._states[rule_id].state for rule_id in self._rules],
            [self._kind(each.to) for each in waiting],
        )

    # ---- writing

    def _save(self, lease: str | None) -> None:
        changed = [self._states[each] for each in sorted(self._changed)]
        if not changed:
            return
        for state, version in zip(changed, self.parts.store.save(changed, lease), strict=True):
            if version is None:
                raise StaleStateError(
                    f"somebody else has written the state of {state.id}; everything is loaded again"
                )
            self._states[state.id] = replace(state, version=version)
            self._changed.discard(state.id)
        self._forget_the_gone()

    def _forget_the_gone(self) -> None:
        for state_id in self._states.keys() - self._rules.keys():
            state = self._states[state_id]
            if not state.state.outbox and state_id not in self._changed:
                if state.version:
                    self.parts.store.forget(state)
                del self._states[state_id]

    # ---- telling

    def _note_outcomes(self) -> None:
        now_s = self.parts.clock.now().timestamp()
        for outcome in self.parts.delivery.outcomes():
            sending = outcome.sending
            self._on_way.discard(sending.message.id)
            kept = self._states.get(sending.state_id)
            if kept is None or not sending.message.id:
                continue
            if outcome.problem is None:
                state = acknowledged(kept.state, sending.message.id, now_s, self._shown_s(sending.message.to))
            elif outcome.for_good:
                state = given_up(kept.state, sending.message.id, outcome.problem)
            else:
                state = failed(kept.state, sending.message.id, now_s)
            if state != kept.state:
                self._put(sending.state_id, state)

    def _shown_s(self, to: str) -> float:
        return self.parts.times.shown_s if to in self.parts.alertmanagers else 0.0

    def _send(self) -> None:
        now_s = self.parts.clock.now().timestamp()
        waiting = defaultdict[str, list[Sending]](list)
        for state_id, kept in self._states.items():
            for message in ready(kept.state, now_s):
                if message.id not in self._on_way:
                    waiting[message.to].append(self._sending(state_id, message))
        for to in self.parts.alertmanagers:
            if to not in waiting:
                waiting[to] = self._to_resend(to)
        for to, sendings in waiting.items():
            if sendings and self.parts.delivery.takes(to):
                for sending in sendings[: self.parts.delivery.send(to, sendings)]:
                    if sending.message.id:
                        self._on_way.add(sending.message.id)

    def _sending(self, state_id: str, message: Message) -> Sending:
        return Sending(state_id, self._states[state_id].tenant, state_id.partition(":")[2], message)

    def _to_resend(self, to: str) -> list[Sending]:
        """Alerts that go on, of which Alertmanager has not heard for a while."""
        now_s, found = self.parts.clock.monotonic_s(), []
        if now_s - self._resent_s.get((to, ""), float("-inf")) < self.parts.times.resend_s:
            return []
        self._resent_s[to, ""] = now_s
        for state_id, kept in self._states.items():
            if to not in kept.state.receivers:
                continue
            untold = {each.key for each in kept.state.outbox if each.to == to}
            for key, episode in firing_of(kept.state):
                if key not in untold:
                    found.append(self._sending(state_id, Message("", to, "firing", key, episode)))
        return found

    def _kind(self, to: str) -> str:
        return RECEIVERS[0] if to in self.parts.alertmanagers else RECEIVERS[1]


def _tell(states: Sequence[RuleState], waiting: Sequence[str]) -> None:
    """Has the metrics say how rules are. `waiting`: the kinds of receivers that messages wait for."""
    failing = [each.health for each in states if each.health.problem is not None]
    for cause, by_rule in CAUSES.items():
        ALERT_RULES_FAILING.labels(cause).set(sum(each.by_rule is by_rule for each in failing))
    ALERTS_FIRING.set(sum(1 for each in states for _ in firing_of(each)))
    for kind in RECEIVERS:
        ALERT_WAITING.labels(kind).set(waiting.count(kind))
    if not states:
        ALERT_BEHIND.set(0.0)


class StaleStateError(FirnError):
    """A state is not what this evaluator believes."""
