"""An alert as the evaluator leaves it, of a rule that somebody has written."""

from dataclasses import replace

from lake.catalog_client import CatalogClient
from lake.tenant import TenantId
from query.alerts.rule import Rule
from query.alerts.rule_state import Health, RuleState
from query.alerts.rule_store import RuleStore, StoredRule, StoredState
from query.alerts.transitions import RuleName, after_window

UNTIL = 1_788_256_800  # 2026-09-01T10:00:00Z


def keep_alert(
    catalog: CatalogClient,
    tenant: TenantId,
    text: str,
    problem: str | None = None,
    *,
    name: str = "kept-rule",
    query: str = '"refused"',
) -> StoredRule:
    """Keeps a rule that says a text wherever it may, and an alert that fires for a group of that value."""
    written = {
        "name": name,
        "query": query,
        "condition": {"mode": "count", "over": 3},
        "group_by": ["service"],
        "labels": {"says": text},
        "annotations": {"summary": text},
    }
    kept = StoredRule(tenant, Rule.model_validate(written), text, "2026-09-01T09:00:00Z")
    link = "https://firn.example.org/?tenant=x&q=refused&from=2026-09-01&to=2026-09-02"
    state = after_window(
        RuleState(kept.revision),
        RuleName(tenant.name, name),
        kept.rule,
        UNTIL,
        {(text,): 7.0},
        (),
        lambda *_: link,
    )
    told = StoredState(kept.id, tenant, replace(state, health=Health(UNTIL + 31.0, 0.004, problem)))
    store = RuleStore(catalog)
    store.keep([kept])
    assert store.save([told], None) == [1]
    return kept
