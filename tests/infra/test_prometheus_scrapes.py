"""A real Prometheus asks the running services: what rules and dashboards name is there, no rule fires while
all is well, and faults fire theirs within their time."""

import re
import time
from collections.abc import Iterator

import pytest

from infra.grafana.panels import PAGES
from tests.infra.support.prometheus import EVERY_S
from tests.infra.support.scraped import RULES, SEEN_S, Scraped, scraped
from tests.stack.support.waiting import wait_for

pytestmark = [pytest.mark.stack, pytest.mark.prove, pytest.mark.timeout(1800)]

NAME = re.compile(r"\bfirn_\w+\b")
OF_HISTOGRAM = re.compile(r"_(bucket|sum|count)$")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    """All programs of Firn, a record through them, and a Prometheus that asks them."""
    with scraped(tmp_path_factory.mktemp("scraped")) as made:
        yield made


def test_what_rules_and_dashboards_name_is_told_by_the_services(running: Scraped) -> None:
    """Each metric of each expression, and rows that were written count."""
    asked = running.asked
    expressions = [rule["expr"] for rule in RULES.values()]
    expressions += [query for page in PAGES for panel in page.panels for query, _ in panel.expressions]
    named = {OF_HISTOGRAM.sub("", name) for expression in expressions for name in NAME.findall(expression)}
    assert len(named) > 40
    wait_for(lambda: asked.value("sum(firn_ingest_records_written_total)") == 1, SEEN_S, "a row")
    wait_for(lambda: named <= asked.families(), SEEN_S, f"{named - asked.families()}")


def test_a_fault_fires_its_alert_within_its_time_and_no_other(running: Scraped) -> None:
    """Nothing fires while all is well. A tenant whose name looks like another's is told at once; a node that
    is gone, and with it the one that was active, after the five minutes of their rules."""
    stack, asked = running.stack, running.asked
    wait_for(running.is_well, SEEN_S, "a round, and no alert")
    running.send("\u0430cme")
    wait_for(lambda: "FirnTenantConfusable" in asked.alerts("firing"), SEEN_S, "FirnTenantConfusable")
    assert asked.alerts("firing").keys() == {"FirnTenantConfusable"}
    stack.stop("ingest")
    stopped_s = time.monotonic()
    gone = {"FirnServiceDown", "FirnNoActiveNode"}
    assert {RULES[name]["for"] for name in gone} == {"5m"}
    wait_for(lambda: gone <= asked.alerts("pending").keys(), SEEN_S, "what waits for its time")
    wait_for(lambda: gone <= asked.alerts("firing").keys(), 300 + SEEN_S, "what is gone")
    took_s = time.monotonic() - stopped_s
    assert took_s >= 300
    assert asked.alerts("firing")["FirnServiceDown"]["job"] == "firn-ingest"
    assert asked.alerts("firing").keys() <= gone | {"FirnTenantConfusable"}
    stack.start("ingest")
    wait_for(lambda: not gone & asked.alerts("firing").keys(), SEEN_S + 4 * EVERY_S, "an end of them")
