"""Pages, drills and alerts name each other, without any service."""

import ast
import importlib.util
import re
from pathlib import Path

import pytest

from infra.local.jvm_parts import REPOSITORY
from tests.drills.__main__ import module_of
from tests.drills.support import alerts
from tests.drills.support.runbook import FOLDER, Runbook, filled_in, pages

PAGES = {page.name: page for page in pages()}
SECTIONS = ["What you see", "What it means", "What to do", "How to know that it is over", "What is lost"]
every_page = pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)


def literals(page: Runbook, *methods: str) -> set[str]:
    """The first arguments of a drill's calls of these methods of its scene."""
    found = importlib.util.find_spec(module_of(page))
    assert found is not None, f"the page {page.name} has no drill"
    assert found.origin is not None
    calls = [
        node for node in ast.walk(ast.parse(Path(found.origin).read_text())) if isinstance(node, ast.Call)
    ]
    called = [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr in methods]
    return {
        str(argument.value) for call in called for argument in call.args if isinstance(argument, ast.Constant)
    }


@every_page
def test_a_drill_runs_each_command_of_its_page_and_no_other(page: Runbook) -> None:
    """Word for word."""
    assert literals(page, "run", "run_once_free", "json") == set(page.commands)
    assert page.commands


@every_page
def test_a_drill_looks_for_each_alert_of_its_page(page: Runbook) -> None:
    """Each is a rule, and the page about that alert leads to the runbook."""
    seen = literals(page, "sees")
    assert seen <= alerts.NAMES
    assert {alert.lower() for alert in seen} == page.alerts
    sections = re.split(r"^## ", (REPOSITORY / "docs/alerts.md").read_text(), flags=re.MULTILINE)
    leading = {text.split("\n")[0] for text in sections if f"(runbooks/{page.name}.md)" in text}
    assert seen <= leading


@every_page
def test_a_page_has_its_sections_and_its_line_in_the_index(page: Runbook) -> None:
    """In this order, so that nobody has to look for them."""
    text = (FOLDER / f"{page.name}.md").read_text()
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == SECTIONS
    assert f"({page.name}.md)" in (FOLDER / "README.md").read_text()


def test_words_in_capitals_are_filled_in() -> None:
    """Each needs a value."""
    assert filled_in("show ID --to TO_TENANT", {"ID": "0:1", "TO_TENANT": "a"}) == "show 0:1 --to a"
    with pytest.raises(KeyError):
        filled_in("show ID", {})


@pytest.mark.long
def test_an_alert_fires_by_what_the_services_show() -> None:
    """As Prometheus would have it: a gauge that stays, a counter that was not there, a service that is
    gone."""
    well = alerts.series("firn-ingest", "firn_ingest_tables_failing 0.0\nfirn_ingest_lag_records 1.0\n")
    ill = alerts.series("firn-ingest", "firn_ingest_tables_failing 2.0\n")
    assert not alerts.fires("FirnTablesFailing", well, well)
    assert alerts.fires("FirnTablesFailing", well, ill)
    assert alerts.fires("FirnNoActiveNode", well, ill)
    assert not alerts.fires("FirnServiceDown", well, ill)
    assert alerts.fires("FirnServiceDown", well, alerts.up("firn-ingest", 0))
    letters = alerts.series("firn-ingest", 'firn_ingest_records_dead_lettered_total{reason="empty"} 300.0\n')
    assert alerts.fires("FirnDeadLettersRise", well, {**well, **letters})
    assert not alerts.fires("FirnDeadLettersRise", letters, letters)
    lost = 'firn_ingest_records_expired_total{topic="a"} 3.0\n'
    assert alerts.fires("FirnRecordsExpired", well, {**well, **alerts.series("firn-ingest", lost)})
