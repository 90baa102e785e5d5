"""Rules of alerts: kept, tried on the past, and what they have found."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from lake.errors import NotFoundError
from lake.limits import UNBOUND, Bound, Limit
from lake.metrics import QUERY_LIMITED
from lake.tenant import TableId, TenantId
from query.access.access import Caller, no_stream
from query.alerts.counting import Counter
from query.alerts.round import Item, Round
from query.alerts.rule import Rule
from query.alerts.rule_state import RuleState
from query.alerts.rule_store import StoredRule, rules_of
from query.alerts.rule_tests import of_past
from query.alerts.tables import LoadedTables
from query.alerts.transitions import RuleName, firing_of, labels_of, pending_of
from query.alerts.windows import moment, time_text
from query.api.services import CallerOf, Services, ServicesOf
from query.api.turns import run
from query.model.cancellation import Run
from query.model.instant import parse_instant, rfc3339
from query.model.problem import refuse
from query.model.search_usage import Used
from query.model.table_view import table_id

router = APIRouter(prefix="/v1/alerts", tags=["alerts"])
Tenant = Annotated[str, Query(max_length=400)]
RuleText = Annotated[
    dict[str, Any],
    Field(
        description="a rule as a file of rules writes it",
        examples=[
            {
                "name": "payment-errors",
                "query": "service:payment AND severity:error",
                "condition": {"mode": "count", "over": 10},
                "every": "1m",
                "window": "5m",
            }
        ],
    ),
]
RULES_AT_ONCE = 1_000


class RulesBody(BaseModel):
    """Rules of a tenant, each in place of the one of its name."""

    model_config = ConfigDict(extra="forbid")

    tenant: Annotated[str, Field(max_length=400)]
    rules: Annotated[list[RuleText], Field(max_length=RULES_AT_ONCE)]
    replace: Annotated[bool, Field(description="delete those of the tenant that are not among them")] = False
    dry_run: Annotated[bool, Field(description="say what would change, and change nothing")] = False


class RulesKept(BaseModel):
    """Names of rules."""

    made: list[str]
    changed: list[str]
    unchanged: list[str]
    deleted: list[str]


class HealthAnswer(BaseModel):
    """How the evaluator fares with a rule."""

    looked_until: Annotated[str | None, Field(description="end of the last window; null: none yet")]
    looked_at: Annotated[str | None, Field(description="when that was")]
    took_s: Annotated[float, Field(description="seconds, the rule's share of what was counted together")]
    problem: Annotated[str | None, Field(description="why the last look failed; it is tried again")]
    waits_for: Annotated[str | None, Field(description="why nothing is due; null: all is well")]
    messages_waiting: int
    windows_skipped: int


class RuleAnswer(BaseModel):
    rule: dict[str, Any]
    by: Annotated[str, Field(description="the key or person that wrote it")]
    at: str
    health: HealthAnswer


class RulesAnswer(BaseModel):
    rules: list[RuleAnswer]
    rules_max: Annotated[int | None, Field(description="that the tenant may have; null: any number")]


class AlertAnswer(BaseModel):
    """An alert that goes on, or one whose condition has not held for long enough."""

    rule: str
    stream: str
    state: Literal["firing", "pending"]
    labels: dict[str, str]
    annotations: dict[str, str]
    value: float
    since: Annotated[str, Field(description="end of the first window at which the condition held")]
    link: str


class EventAnswer(BaseModel):
    """Something that became of a rule."""

    rule: str
    window: Annotated[str, Field(description="end of the window it is about")]
    kind: Annotated[str, Field(description="firing, resolved, skipped or undelivered")]
    group: Annotated[dict[str, str | None], Field(description="the values that tell the alert apart")]
    value: float | None = None
    why: str = ""
    link: str = ""


class AlertsAnswer(BaseModel):
    alerts: list[AlertAnswer]
    history: Annotated[list[EventAnswer], Field(description="the last ones of each rule, newest first")]


class DryRunBody(BaseModel):
    """A rule, and the past that it is tried on."""

    model_config = ConfigDict(populate_by_name=True, extra="forbid")

    tenant: Annotated[str, Field(max_length=400)]
    rule: RuleText
    from_: Annotated[str, Field(alias="from", max_length=60)] = "now-6h"
    to: Annotated[str, Field(max_length=60)] = "now"


class DryRunAnswer(BaseModel):
    windows: Annotated[int, Field(description="that were looked at")]
    events: Annotated[list[EventAnswer], Field(description="the last 100, newest first")]


@router.get("")
async def list_alerts(
    request: Request, services: ServicesOf, caller: CallerOf, tenant: Tenant
) -> AlertsAnswer:
    """What fires, what may soon, and what was, of a tenant's rules."""
    whose = table_id(tenant, "logs").tenant

    def ask(_: Run) -> AlertsAnswer:
        services.access.check_tenant(caller, whose)
        alerts, history = list[AlertAnswer](), list[EventAnswer]()
        for stored, state in _known(services, caller, whose):
            alerts += _alerts_of(stored, state)
            history += _events_of(stored.rule, state)
        history.sort(key=lambda event: event.window, reverse=True)
        return AlertsAnswer(alerts=alerts, history=history)

    return await run(request, ask, timeout_s=services.settings.search.timeout_s, tenant=whose)


@router.get("/rules")
async def list_rules(request: Request, services: ServicesOf, caller: CallerOf, tenant: Tenant) -> RulesAnswer:
    """A tenant's rules, and how the evaluator fares with them."""
    whose = table_id(tenant, "logs").tenant

    def ask(_: Run) -> RulesAnswer:
        services.access.check_tenant(caller, whose)
        return RulesAnswer(
            rules=[
                RuleAnswer(rule=stored.rule.to_json(), by=stored.by, at=stored.at, health=_health_of(state))
                for stored, state in _known(services, caller, whose)
            ],
            rules_max=_bound(services, whose).most,
        )

    return await run(request, ask, timeout_s=services.settings.search.timeout_s, tenant=whose)


@router.post("/rules")
async def keep_rules(request: Request, body: RulesBody, services: ServicesOf, caller: CallerOf) -> RulesKept:
    """Keeps rules, each in place of the one of its name. Needs a key that may write."""
    whose = table_id(body.tenant, "logs").tenant
    rules = rules_of(body.rules)

    def ask(_: Run) -> RulesKept:
        services.access.check_writer(caller, whose)
        for rule in rules:
            services.access.check_stream(caller, table_id(whose.name, rule.stream))
            services.alerts.check(rule)
        return _keep(services, caller, whose, rules, body)

    return await run(request, ask, timeout_s=services.settings.search.timeout_s, tenant=whose)


@router.delete("/rules/{name}", status_code=204)
async def delete_rule(
    request: Request,
    name: Annotated[str, Path(max_length=100)],
    services: ServicesOf,
    caller: CallerOf,
    tenant: Tenant,
) -> None:
    """Deletes a rule; what it has told is told to be over. Needs a key that may write."""
    whose = table_id(tenant, "logs").tenant

    def ask(_: Run) -> None:
        services.access.check_writer(caller, whose)
        known = [each for each in services.alerts.rules(whose) if caller.who.knows(each.rule.stream)]
        if name not in {each.rule.name for each in known}:
            raise NotFoundError(f"tenant {whose.name!r} has no rule {name!r}; its rules are listed")
        services.alerts.store.drop(whose, name)
        services.alerts.changed()

    await run(request, ask, timeout_s=services.settings.search.timeout_s, tenant=whose)


@router.post("/dry-run")
async def dry_run(request: Request, body: DryRunBody, services: ServicesOf, caller: CallerOf) -> DryRunAnswer:
    """What a rule would have told of the past, by the rows that there are now. Nobody is told."""
    (rule,) = rules_of([body.rule])
    table, now = table_id(body.tenant, rule.stream), services.clock.now()
    first, last = parse_instant(body.from_, now, what="from"), parse_instant(body.to, now, what="to")
    if last <= first:
        raise refuse(
            "the time range is empty: its end must lie after its start",
            suggestion="swap the two, or choose a longer range",
        )

    def ask(current: Run) -> DryRunAnswer:
        services.access.check_stream(caller, table)
        state, windows = of_past(
            Item(table, rule, RuleState("dry run"), ("nobody",)),
            first,
            last,
            lambda: _round(services, caller, table, current),
            current.check,
        )
        return DryRunAnswer(windows=windows, events=_events_of(rule, state))

    return await run(
        request,
        ask,
        timeout_s=services.settings.search.timeout_s,
        tenant=table.tenant,
        counted_as=table.stream,
    )


def _round(services: Services, caller: Caller, table: TableId, current: Run) -> Round:
    """A round with the caller's own key, which counts as one search."""
    tables = LoadedTables(caller.catalog, [table])

    def use(_: TableId, used: Used) -> None:
        current.read_bytes += used.size_bytes

    searcher = services.searcher(caller, tables)
    counter = Counter(searcher, services.settings.search.timeout_s, services.clock, use)
    return Round(services.alerts.around, tables, counter)


def _keep(
    services: Services, caller: Caller, whose: TenantId, rules: Sequence[Rule], body: RulesBody
) -> RulesKept:
    known = {each.rule.name: each for each in services.alerts.rules(whose)}
    for rule in rules:
        if rule.name in known and not caller.who.knows(known[rule.name].rule.stream):
            raise no_stream(known[rule.name].table)
    same = {rule.name for rule in rules if rule.name in known and known[rule.name].rule == rule}
    names = {rule.name for rule in rules}
    gone = [
        each.rule.name
        for each in known.values()
        if body.replace and each.rule.name not in names and caller.who.knows(each.rule.stream)
    ]
    _check_number(services, whose, len(known.keys() | names) - len(gone))
    if not body.dry_run:
        now, who = rfc3339(services.clock.now()), caller.who.key_id
        services.alerts.store.keep(
            [
                StoredRule(whose, rule, who, now, known[rule.name].version if rule.name in known else 0)
                for rule in rules
                if rule.name not in same
            ]
        )
        for name in gone:
            services.alerts.store.drop(whose, name)
        services.alerts.changed()
    return RulesKept(
        made=sorted(names - known.keys()),
        changed=sorted(names & known.keys() - same),
        unchanged=sorted(same),
        deleted=sorted(gone),
    )


def _bound(services: Services, whose: TenantId) -> Bound:
    said = services.limits.of(whose.namespace).get(Limit.ALERT_RULES, UNBOUND)
    return said if said.level is not None else Bound(services.settings.alerts.rules_per_tenant)


def _check_number(services: Services, whose: TenantId, wanted: int) -> None:
    bound = _bound(services, whose)
    if bound.most is not None and wanted > bound.most:
        QUERY_LIMITED.labels(Limit.ALERT_RULES.value).inc()
        said = "alerts.rules_per_tenant" if bound.level is None else f"the {bound.level}"
        raise refuse(
            f"tenant {whose.name!r} would have {wanted:,} rules, and {said} allows {bound.most:,}; "
            f"delete some, or have {Limit.ALERT_RULES.value} raised"
        )


def _known(services: Services, caller: Caller, whose: TenantId) -> Iterator[tuple[StoredRule, RuleState]]:
    """The rules that a caller may see, each with what is known of it."""
    states = {each.id: each.state for each in services.alerts.store.states(whose)}
    for stored in services.alerts.rules(whose):
        if caller.who.knows(stored.rule.stream):
            state = states.get(stored.id, RuleState(""))
            is_of_it = state.revision == stored.revision
            yield stored, state if is_of_it else replace(RuleState(""), history=state.history)


def _health_of(state: RuleState) -> HealthAnswer:
    health = state.health
    return HealthAnswer(
        looked_until=None if state.until is None else time_text(state.until),
        looked_at=None if not health.at_s else rfc3339(moment(round(health.at_s, 3))),
        took_s=round(health.took_s, 6),
        problem=health.problem,
        waits_for=health.waits,
        messages_waiting=len(state.outbox),
        windows_skipped=state.skipped,
    )


def _alerts_of(stored: StoredRule, state: RuleState) -> Iterator[AlertAnswer]:
    rule = stored.rule
    for _, episode in firing_of(state):
        yield AlertAnswer(
            rule=rule.name,
            stream=rule.stream,
            state="firing",
            labels=dict(episode.labels),
            annotations=dict(episode.annotations),
            value=episode.value,
            since=time_text(episode.began),
            link=episode.link,
        )
    for group, since in pending_of(state, rule):
        yield AlertAnswer(
            rule=rule.name,
            stream=rule.stream,
            state="pending",
            labels=labels_of(RuleName(stored.tenant.name, rule.name), rule, group.values),
            annotations={},
            value=group.value,
            since=time_text(since),
            link="",
        )


def _events_of(rule: Rule, state: RuleState) -> list[EventAnswer]:
    return [
        EventAnswer(
            rule=rule.name,
            window=time_text(event["window"]),
            kind=event["kind"],
            group=dict(zip(rule.groups, event["values"], strict=False)),
            value=event.get("value"),
            why=event.get("why", ""),
            link=event.get("link", ""),
        )
        for event in state.history
    ]
