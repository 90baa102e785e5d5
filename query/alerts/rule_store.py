"""Rules and what is known of them, in the catalog's work list: a document for each rule that people write,
and one for its state that the evaluator alone writes. Both survive whoever wrote them, and change by
compare-and-set."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import orjson
import structlog
from pydantic import ValidationError

from lake.catalog_client import CatalogClient
from lake.errors import ConflictError, NotFoundError
from lake.extras_client import ExtrasClient, Task
from lake.tenant import TableId, TenantId
from query.alerts.rule import Rule
from query.alerts.rule_file import faults_of
from query.alerts.rule_state import RuleState, rule_state_of
from query.model.problem import refuse

RULE_KIND, STATE_KIND = "query.alert-rule", "query.alert-state"
BYTES_AT_ONCE = 4 * 1024 * 1024
# What a rule may say anew without its alerts ending.
_TOLD_ONLY = ("annotations", "notify")
log = structlog.get_logger()


@dataclass(frozen=True)
class StoredRule:
    """A rule as it is kept. `id`: of its document without the kind; `by`, `at`: who wrote it, and when."""

    tenant: TenantId
    rule: Rule
    by: str = ""
    at: str = ""
    version: int = field(default=0, compare=False)

    @property
    def id(self) -> str:
        return id_of(self.tenant, self.rule.name)

    @property
    def table(self) -> TableId:
        """What it searches: a stream of its own tenant, whatever its text says."""
        return TableId(self.tenant, self.rule.stream)

    @cached_property
    def revision(self) -> str:
        """Another one where alerts of before are no alerts of this rule any more."""
        told = {name: value for name, value in self.rule.to_json().items() if name not in _TOLD_ONLY}
        return orjson.dumps(told, option=orjson.OPT_SORT_KEYS).decode()

    def to_task(self) -> Task:
        record = {"tenant": self.tenant.name, "rule": self.rule.to_json(), "by": self.by, "at": self.at}
        return Task(f"{RULE_KIND}:{self.id}", RULE_KIND, self.tenant.namespace, self.version, record)


@dataclass(frozen=True, slots=True)
class StoredState:
    """A rule's state as it is kept. `version` 0: it is not."""

    id: str
    tenant: TenantId
    state: RuleState
    version: int = 0

    def to_task(self) -> Task:
        record = {"tenant": self.tenant.name, **self.state.to_json()}
        return Task(f"{STATE_KIND}:{self.id}", STATE_KIND, self.tenant.namespace, self.version, record)


def id_of(tenant: TenantId, name: str) -> str:
    """A rule's id: the same for a rule that is deleted and made again."""
    return f"{tenant.namespace}:{name}"


class RuleStore:
    """One work list's. All methods raise what `ExtrasClient` raises. Thread-safe."""

    def __init__(self, work_list: CatalogClient) -> None:
        self._extras = ExtrasClient(work_list)

    # ---- rules

    def rules(self, tenant: TenantId | None = None) -> Iterator[StoredRule]:
        """All rules, or those of one tenant, by their ids."""
        namespace = None if tenant is None else tenant.namespace
        for task in self._extras.tasks(RULE_KIND, state=namespace):
            if (rule := stored_rule_of(task)) is not None:
                yield rule

    def rule_tasks(self) -> Iterator[Task]:
        """All rules as they are kept, for who has read most of them already."""
        return self._extras.tasks(RULE_KIND)

    def keep(self, rules: Sequence[StoredRule]) -> None:
        """Writes rules over the versions last read. Raises ConflictError where somebody else has written one
        meanwhile; the others are written."""
        for rule, version in zip(
            rules, self._extras.save_tasks([each.to_task() for each in rules]), strict=True
        ):
            if version is None:
                raise ConflictError(
                    f"somebody else has just changed the rule {rule.rule.name!r}; send it again"
                )

    def drop(self, tenant: TenantId, name: str) -> None:
        """Forgets a rule; the evaluator resolves what it had told. Raises NotFoundError."""
        if not any(each.rule.name == name for each in self.rules(tenant)):
            raise NotFoundError(f"tenant {tenant.name!r} has no rule {name!r}")
        self._extras.remove_task(f"{RULE_KIND}:{id_of(tenant, name)}")

    # ---- states

    def states(self, tenant: TenantId | None = None) -> Iterator[StoredState]:
        """What is known of all rules, or of one tenant's."""
        namespace = None if tenant is None else tenant.namespace
        for task in self._extras.tasks(STATE_KIND, state=namespace):
            yield stored_state_of(task)

    def state(self, state_id: str, tenant: TenantId) -> StoredState | None:
        """What is known of one rule."""
        return next((each for each in self.states(tenant) if each.id == state_id), None)

    def save(self, states: Sequence[StoredState], lease: str | None) -> list[int | None]:
        """Writes states over the versions last read, in as few requests as they fit in; the new version of
        each, None where it is another one by now. Raises RefusedError where the lease is not in force."""
        versions: list[int | None] = []
        tasks, size = list[Task](), 0
        for state in states:
            task = state.to_task()
            length = len(orjson.dumps(task.record))
            if tasks and size + length > BYTES_AT_ONCE:
                versions += self._extras.save_tasks(tasks, lease=lease)
                tasks, size = [], 0
            tasks.append(task)
            size += length
        return versions + (self._extras.save_tasks(tasks, lease=lease) if tasks else [])

    def forget(self, state: StoredState) -> None:
        """Removes a state: its rule is gone and everybody knows."""
        self._extras.remove_task(f"{STATE_KIND}:{state.id}")


def stored_rule_of(task: Task) -> StoredRule | None:
    """The rule that a document holds; None, and a line in the log, where this version cannot read it."""
    try:
        return StoredRule(
            TenantId(str(task.record["tenant"])),
            Rule.model_validate(task.record["rule"]),
            str(task.record["by"]),
            str(task.record["at"]),
            task.version,
        )
    except (KeyError, TypeError, ValidationError) as error:
        faults = faults_of(error) if isinstance(error, ValidationError) else [type(error).__name__]
        log.warning("alerts.rule_not_read", rule=task.id, faults=faults[:3])
        return None


def stored_state_of(task: Task) -> StoredState:
    """The state that a document holds; that of a rule nobody has looked at where this version cannot read
    it."""
    state_id, tenant = task.id.removeprefix(f"{STATE_KIND}:"), TenantId(str(task.record.get("tenant", "")))
    try:
        return StoredState(state_id, tenant, rule_state_of(task.record), task.version)
    except (KeyError, TypeError, ValueError) as error:
        log.warning("alerts.state_not_read", rule=state_id, fault=type(error).__name__)
        return StoredState(state_id, tenant, RuleState(""), task.version)


def rules_of(given: Sequence[Mapping[str, Any]]) -> list[Rule]:
    """Rules as somebody sends them. Raises BadRequestError with every fault."""
    rules, faults = [], list[str]()
    for at, each in enumerate(given):
        try:
            rules.append(Rule.model_validate(each))
        except ValidationError as error:
            name = each.get("name", at)
            faults += [f"rules[{name}].{line}" for line in faults_of(error)]
    names = [rule.name for rule in rules]
    if twice := {name for name in names if names.count(name) > 1}:
        faults.append(f"two rules are called {sorted(twice)[0]!r}")
    if faults:
        raise refuse("\n".join(faults[:20]))
    return rules
