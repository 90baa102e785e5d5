"""A real Prometheus asks the running services: what rules and dashboards name is there, no rule fires while
all is well, and faults fire theirs within their time."""

import re
import time
from collections.abc import Iterator

import orjson
import pytest
import yaml

from infra.grafana.panels import PAGES
from infra.local.supervisor import Stack
from tests.infra.support.prometheus import EVERY_S, Prometheus, prometheus
from tests.infra.support.promtool import FOLDER
from tests.stack.support.kafka_topics import KafkaTopics, Record
from tests.stack.support.waiting import wait_for

pytestmark = [pytest.mark.stack, pytest.mark.prove, pytest.mark.timeout(1800)]

JOBS = {
    "firn-catalog": "catalog",
    "firn-ingest": "ingest",
    "firn-ingest-tools": "ingest-serve",
    "firn-optimize": "optimize",
    "firn-query": "query",
}
NAME = re.compile(r"\bfirn_\w+\b")
OF_HISTOGRAM = re.compile(r"_(bucket|sum|count)$")
SEEN_S = 120.0
RULES = {
    rule["alert"]: rule for rule in yaml.safe_load((FOLDER / "rules.yaml").read_text())["groups"][0]["rules"]
}
TOPIC = "logs"
# Who takes the token of ingestion, and who sends it.
TOKENS = ("INGEST_HTTP__TOKEN", "OPTIMIZE_LAG__INGEST_TOKEN", "QUERY_INGEST__TOKEN")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stack, Prometheus]]:
    """All programs of Firn, a record through them, and a Prometheus that asks them."""
    token = tmp_path_factory.mktemp("token") / "ingest-token"
    token.write_text("a-token-of-the-line")
    settings = {
        "FIRN_INGEST_TOPICS": orjson.dumps([{"name": TOPIC, "tenant": ["header:tenant"]}]).decode(),
        "FIRN_INGEST_FLUSH__INTERVAL_S": "2",
        "FIRN_INGEST_FLUSH__VISIBILITY_MAX_S": "2",
        "FIRN_OPTIMIZE_INTERVAL_S": "10",
        **{f"FIRN_{name}_FILE": str(token) for name in TOKENS},
    }
    with Stack(tmp_path_factory.mktemp("scraped"), tied=True) as stack:
        stack.start("kafka")
        KafkaTopics(stack.address("kafka")).topic(name=TOPIC)
        send(stack, "acme")
        stack.start(*JOBS.values(), environment=settings)
        jobs = {job: stack.address(service).removeprefix("http://") for job, service in JOBS.items()}
        with prometheus(jobs, token, tmp_path_factory.mktemp("prometheus")) as asked:
            wait_for(lambda: asked.jobs_up() == set(JOBS), SEEN_S, "answers of all jobs")
            yield stack, asked


def send(stack: Stack, tenant: str) -> None:
    """A record of a tenant."""
    record = Record(b'{"message": "hello"}', headers=(("tenant", tenant.encode()),))
    KafkaTopics(stack.address("kafka")).produce(TOPIC, [record])


def test_what_rules_and_dashboards_name_is_told_by_the_services(running: tuple[Stack, Prometheus]) -> None:
    """Each metric of each expression, and rows that were written count."""
    _, asked = running
    expressions = [rule["expr"] for rule in RULES.values()]
    expressions += [query for page in PAGES for panel in page.panels for query, _ in panel.expressions]
    named = {OF_HISTOGRAM.sub("", name) for expression in expressions for name in NAME.findall(expression)}
    assert len(named) > 40
    wait_for(lambda: asked.value("sum(firn_ingest_records_written_total)") == 1, SEEN_S, "a row")
    wait_for(lambda: named <= asked.families(), SEEN_S, f"{named - asked.families()}")


def test_a_fault_fires_its_alert_within_its_time_and_no_other(running: tuple[Stack, Prometheus]) -> None:
    """Nothing fires while all is well. A tenant whose name looks like another's is told at once; a node that
    is gone, and with it the one that was active, after the five minutes of their rules."""
    stack, asked = running
    # Until the first round of maintenance has ended, that is pending.
    round_ended = "max(firn_catalog_maintenance_last_round_timestamp_seconds)"
    wait_for(
        lambda: asked.value(round_ended) and not asked.alerts("pending"), SEEN_S, "a round, and no doubt"
    )
    assert asked.alerts("firing") == {}
    send(stack, "\u0430cme")
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
