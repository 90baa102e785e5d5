"""Rules through the API and from the command line: kept, limited, tried on the past, seen by their tenant
alone."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from lake.limits import Limit
from query.alerts.rule_store import RuleStore
from tests.query.support.guarded import START, Guarded
from tests.query.support.processes import run
from tests.ui.support.kept_alerts import keep_alert

pytestmark = pytest.mark.stack
PATH = "/v1/alerts/rules"
RULE: dict[str, Any] = {
    "name": "many",
    "query": '"of Mine"',
    "condition": {"mode": "count", "over": 5},
    "every": "1m",
    "window": "1m",
}


def kept(guarded: Guarded, key: str = "mine", **body: Any) -> httpx.Response:
    return guarded.ask("POST", PATH, key, json={"tenant": "Mine", "rules": [RULE], **body})


@pytest.fixture(autouse=True)
def without_rules(guarded: Guarded) -> Iterator[None]:
    """Each test begins and ends without rules."""
    yield
    for whose, key in (("Mine", "mine"), ("Theirs", "theirs")):
        guarded.ask(
            "POST", PATH, key, json={"tenant": whose, "rules": [], "replace": True}
        ).raise_for_status()


def test_rules_are_kept_changed_and_deleted(guarded: Guarded) -> None:
    """A dry run changes nothing; what is the same stays as it is."""
    would = kept(guarded, dry_run=True).raise_for_status().json()
    assert would == {"made": ["many"], "changed": [], "unchanged": [], "deleted": []}
    assert guarded.ask("GET", PATH, "mine", params={"tenant": "Mine"}).json()["rules"] == []
    assert kept(guarded).json() == would
    assert kept(guarded).json()["unchanged"] == ["many"]
    assert kept(guarded, rules=[{**RULE, "every": "2m", "window": "2m"}]).json()["changed"] == ["many"]
    (rule,) = guarded.ask("GET", PATH, "reader", params={"tenant": "Mine"}).json()["rules"]
    assert rule["rule"]["every"] == "2m"
    assert rule["by"]
    assert rule["health"]["looked_until"] is None
    other = kept(guarded, rules=[{**RULE, "name": "other"}], replace=True).json()
    assert (other["made"], other["deleted"]) == (["other"], ["many"])
    assert guarded.ask("DELETE", f"{PATH}/other", "mine", params={"tenant": "Mine"}).status_code == 204
    assert guarded.ask("DELETE", f"{PATH}/other", "mine", params={"tenant": "Mine"}).status_code == 404


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"condition": {"mode": "count"}}, "rules[many].condition.count: write either"),
        ({"every": "10s"}, "alerts.every_min_s allows"),
        ({"notify": ["http://169.254.169.254/x"]}, "webhooks may not go to 169.254.169.254:80"),
    ],
)
def test_a_rule_that_this_server_does_not_take_is_refused_with_a_sentence(
    guarded: Guarded, changes: dict[str, Any], sentence: str
) -> None:
    """And none of the others is kept either."""
    answer = kept(guarded, rules=[{**RULE, "name": "sound"}, {**RULE, **changes}])
    assert answer.status_code == 400
    assert sentence in answer.json()["error"]["message"]
    assert guarded.ask("GET", PATH, "mine", params={"tenant": "Mine"}).json()["rules"] == []


def test_a_tenant_has_as_many_rules_as_it_may(guarded: Guarded) -> None:
    """Its own limit counts, which nobody but an operator raises."""
    limits = {"tenant": "Mine", "limits": {Limit.ALERT_RULES.value: 1}}
    guarded.ask("POST", "/v1/tenants/limits", "admin", json=limits).raise_for_status()
    try:
        kept(guarded).raise_for_status()
        answer = kept(guarded, rules=[{**RULE, "name": "second"}])
        assert answer.status_code == 400
        assert "would have 2 rules, and the tenant allows 1" in answer.json()["error"]["message"]
    finally:
        limits = {"tenant": "Mine", "limits": {Limit.ALERT_RULES.value: None}}
        guarded.ask("POST", "/v1/tenants/limits", "admin", json=limits).raise_for_status()


def test_a_tenants_rules_and_alerts_are_its_own(guarded: Guarded) -> None:
    """Of the same name too: each sees its own, and searches its own tables whatever the rule says."""
    keep_alert(guarded.mine.catalog, guarded.theirs.id.tenant, "secret of theirs")
    kept(guarded, rules=[{**RULE, "name": "kept-rule"}]).raise_for_status()
    mine = guarded.ask("GET", "/v1/alerts", "mine", params={"tenant": "Mine"}).json()
    assert mine == {"alerts": [], "history": []}
    theirs = guarded.ask("GET", "/v1/alerts", "theirs", params={"tenant": "Theirs"}).json()
    assert [alert["annotations"] for alert in theirs["alerts"]] == [{"summary": "secret of theirs"}]
    assert [event["kind"] for event in theirs["history"]] == ["firing"]
    assert guarded.ask("GET", "/v1/alerts", "mine", params={"tenant": "Theirs"}).status_code == 403
    assert guarded.ask("GET", PATH, "mine", params={"tenant": "Theirs"}).status_code == 403
    refused = guarded.ask("POST", PATH, "mine", json={"tenant": "Theirs", "rules": [RULE]})
    assert refused.status_code == 403
    assert guarded.ask("POST", PATH, "reader", json={"tenant": "Mine", "rules": [RULE]}).status_code == 403
    own = {guarded.mine.id.tenant, guarded.theirs.id.tenant}  # other tests have rules in this catalog, too
    tables = {str(each.table) for each in RuleStore(guarded.mine.catalog).rules() if each.tenant in own}
    assert tables == {str(guarded.mine.id), str(guarded.theirs.id)}
    for state in RuleStore(guarded.mine.catalog).states():
        RuleStore(guarded.mine.catalog).forget(state)


def test_a_dry_run_tells_what_would_have_been_told(guarded: Guarded) -> None:
    """By the rows that there are, with the caller's own key, and it counts as a search."""
    body = {
        "tenant": "Mine",
        "rule": RULE,
        "from": START.isoformat(),
        "to": START.replace(minute=10).isoformat(),
    }
    answer = guarded.ask("POST", "/v1/alerts/dry-run", "reader", json=body).raise_for_status().json()
    assert answer["windows"] == 11
    assert [(event["kind"], event["window"]) for event in reversed(answer["events"])] == [
        ("firing", "2026-09-01T10:01:00Z"),
        ("resolved", "2026-09-01T10:01:00Z"),
    ]
    assert answer["events"][1]["value"] == 30
    assert guarded.ask("POST", "/v1/alerts/dry-run", "theirs", json=body).status_code == 403
    wide = guarded.ask("POST", "/v1/alerts/dry-run", "reader", json={**body, "from": "2020-01-01"})
    assert wide.status_code == 400
    assert "windows" in wide.json()["error"]["message"]


def test_rules_are_applied_from_files(guarded: Guarded, tmp_path: Path) -> None:
    """Checked and tested without a service, then kept, listed, tried and deleted by the API."""
    file = tmp_path / "rules.yml"
    rule = orjson.dumps(RULE).decode()
    file.write_text(
        f"version: 1\ntenant: Mine\nrules: [{rule}]\ntests: [{{name: t, rule: many, "
        "rows: [{at: 10s, repeat: 6, message: of Mine}], expect: [{at: 1m, firing: [{}]}]}]"
    )
    environment = {
        **guarded.environment,
        "FIRN_QUERY_CLIENT__URI": guarded.api.address,
        "FIRN_QUERY_CLIENT__KEY": guarded.keys["mine"],
    }

    def said(*arguments: str) -> list[dict[str, Any]]:
        done = run("query", environment, "rules", *arguments)
        assert done.returncode == 0, done.stderr
        return [orjson.loads(line) for line in done.stdout.splitlines()]

    assert said("check", str(file)) == [{"file": str(file), "rules": 1, "tests": 1}]
    assert [each["passed"] for each in said("test", str(file))] == [True]
    assert said("apply", str(file))[0]["made"] == ["many"]
    assert [each["rule"]["name"] for each in said("list", "Mine")] == ["many"]
    (tried,) = said(
        "dry-run", str(file), "--from", START.isoformat(), "--to", START.replace(minute=2).isoformat()
    )
    assert len(tried["events"]) == 2
    assert said("alerts", "Mine") == []
    assert said("delete", "Mine", "many") == []
