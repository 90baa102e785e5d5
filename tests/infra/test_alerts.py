"""The rules of infra/prometheus: promtool runs each, their metrics exist, and each has its page."""

import re
from typing import Any

import pytest
import yaml

from infra.local.jvm_parts import REPOSITORY
from tests.infra.support.metric_names import told_wrongly
from tests.infra.support.promtool import FOLDER, promtool

TABLE = re.compile(r"^\| (`firn_.+?) \| (?:node|`serve`|catalog|API|API, catalog|all) \|", re.MULTILINE)
RULES: list[dict[str, Any]] = yaml.safe_load((FOLDER / "rules.yaml").read_text())["groups"][0]["rules"]


def test_prometheus_takes_the_files() -> None:
    """The configuration and the rules, by Prometheus' own reading; the file with the token is not here."""
    assert "SUCCESS" in promtool("check", "config", "--syntax-only", "prometheus.yaml")
    assert f"SUCCESS: {len(RULES)} rules found" in promtool("check", "rules", "rules.yaml")


@pytest.mark.long
def test_every_rule_fires_when_it_should_and_not_before() -> None:
    """On made-up series; each has a moment at which it is silent and one at which it fires."""
    promtool("test", "rules", "rules.test.yaml")
    silent: set[str] = set()
    fires: set[str] = set()
    for test in yaml.safe_load((FOLDER / "rules.test.yaml").read_text())["tests"]:
        for case in test["alert_rule_test"]:
            (fires if case["exp_alerts"] else silent).add(case["alertname"])
    assert silent == fires == {rule["alert"] for rule in RULES}


def test_rules_name_metrics_and_labels_that_exist() -> None:
    """As the rooms define them."""
    assert [wrong for rule in RULES for wrong in told_wrongly(rule["expr"])] == []


def test_every_row_of_what_to_alert_on_has_a_rule() -> None:
    """Each metric of the table is in one, with the label that the row names."""
    rows = TABLE.findall((REPOSITORY / "docs/ingest.md").read_text())
    named = [name for row in rows for name in re.findall(r"`([^`]+)`", row)]
    assert len(rows) == 24
    every = " ".join(rule["expr"] for rule in RULES)
    assert [name for name in named if name not in every] == []


def test_every_rule_has_its_page() -> None:
    """A heading of its name, and no heading for a rule that is not there."""
    headings = re.findall(r"^## (\w+)$", (REPOSITORY / "docs/alerts.md").read_text(), re.MULTILINE)
    assert headings == [rule["alert"] for rule in RULES]
    for rule in RULES:
        assert rule["annotations"]["runbook"] == f"docs/alerts.md#{rule['alert'].lower()}"
        assert rule["labels"]["severity"] in ("critical", "warning")
