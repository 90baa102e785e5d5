"""Faults injected into the running services fire their alerts in a real Prometheus, each within its time, and
no others; mended, they end. Rules and dashboards as they are: test_prometheus_scrapes.py.

The rules wait twenty times shorter than in production, and figures that depend on settings go with them.
"""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from infra.local.jvm_parts import REPOSITORY
from lake.tenant import TenantId
from query.alerts.rule import Rule
from query.alerts.rule_store import RuleStore, StoredRule
from tests.faults.crash.catalog_proxy import CatalogProxy
from tests.infra.support.scraped import (
    JOBS,
    SEEN_S,
    TOPIC,
    Scraped,
    again_and_again,
    quicker_rules,
    scraped,
    wait_for_alerts,
)
from tests.query.support.alert_world import Receiver
from tests.query.support.log_table import LogTable
from tests.query.support.processes import run
from tests.security.support.hostile_batches import ZSTD, Wire, batch, record
from tests.stack.support.certificates import CertificateAuthority
from tests.stack.support.kafka_topics import Record
from tests.stack.support.line import Line
from tests.stack.support.parked import location, roll_back_by_rest, snapshots, table_name, unwritable
from tests.stack.support.plain_http import http
from tests.stack.support.waiting import wait_for

pytestmark = [pytest.mark.stack, pytest.mark.prove, pytest.mark.timeout(3600)]
TIMES, EVERY_S = 20, 3
# A flush after two seconds at the latest, a round every ten, of which the catalog takes note every minute.
FIGURES = {"3 * 900": "3 * 10", "3 * 3600": "3 * 40", "5 * 60": "5 * 3"}
BOMB_BYTES = 150 * 1024 * 1024
LOG_BYTES = 90_000_000
SPOOL_BYTES = 1024 * 1024
# Ingestion takes no snapshots and manifests back, but where a test wants it.
UNRELIEVED: dict[str, Any] = {"commit__snapshots_max": "100000", "commit__manifests_max": "100000"}
# What an alert may take beyond its own time: some rounds of asking, and figures that are a minute old.
SLACK_S = 90.0
# A service that a test starts anew is away for a moment, which is long for such rules.
GONE = {"FirnServiceDown", "FirnNoActiveNode"}
# More of one tenant at once are refused, and a refusal is no slow search.
SLOW_TENANTS, SEARCHES_OF_EACH, SLOW_S = ("slow-a", "slow-b", "slow-c"), 6, 11.0
# What is put in front of the node's own code; each table is then converted by itself.
FAULT_OF_OURS = """
from ingest.write import flush_writer

def convert_batched(*_):
    raise ZeroDivisionError("a fault of ours")

flush_writer.convert_batched = convert_batched
"""
WATCHED, UNREAD = TenantId("watched"), TenantId("unread")
LONG = timedelta(days=400)
Figures = dict[str, int]
Recorder = Callable[[str, object], None]


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    """What alerts on what is logged are told, in the place of an Alertmanager."""
    with Receiver().running() as made:
        yield made


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, receiver: Receiver) -> Iterator[Scraped]:
    """All programs, with rules that wait shorter."""
    folder = tmp_path_factory.mktemp("faults")
    rules = folder / "rules.yaml"
    quicker_rules(rules, TIMES, FIGURES)
    settings = {
        "FIRN_INGEST_TABLES__PARK_AFTER_S": "2",
        "FIRN_INGEST_COMMIT__TIMEOUT_S": "5",
        **{f"FIRN_INGEST_{name.upper()}": value for name, value in UNRELIEVED.items()},
        "FIRN_QUERY_AUDIT__ENABLED": "true",
        "FIRN_QUERY_AUDIT__SPOOL_BYTES_MAX": str(SPOOL_BYTES),
        "FIRN_QUERY_ALERTS__ENABLED": "true",
        "FIRN_QUERY_ALERTS__ALERTMANAGERS": f'["{receiver.uri}"]',
        "FIRN_OPTIMIZE_SNAPSHOTS__INTERVAL_S": "10",
        "FIRN_TLS_CA": str(_private_ca(folder)["ca.pem"]),
    }
    with scraped(folder, rules=rules, every_s=EVERY_S, **settings) as made:
        yield made


def _private_ca(folder: Path, valid: timedelta = LONG) -> CertificateAuthority:
    """A CA that every service trusts beside the usual ones; made again it stands in the same file."""
    (folder / "private").mkdir(exist_ok=True)
    return CertificateAuthority(folder / "private", valid)


@pytest.fixture
def well(running: Scraped) -> Scraped:
    """No alert fires, nor is about to."""
    wait_for(running.is_well, 2 * SEEN_S, "no alert", poll_s=1.0)
    return running


@pytest.fixture(scope="module")
def line(running: Scraped, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Line]:
    """The tables, and ingesters of other groups."""
    made = Line(running.stack, running.kafka, tmp_path_factory.mktemp("line"), grants=False)
    yield made
    made.catalog.close()


@pytest.fixture(scope="module")
def rules(line: Line) -> RuleStore:
    """Rules of alerts on what is logged."""
    return RuleStore(line.catalog)


def _rows(running: Scraped, line: Line, tenant: str, flushes: int) -> None:
    """So many snapshots of a tenant's table."""
    for _ in range(flushes):
        before = line.rows_written(tenant)
        running.send(tenant)
        wait_for(partial(_has_more, line, tenant, before), SEEN_S, "a row")


def _has_more(line: Line, tenant: str, before: int) -> bool:
    return line.rows_written(tenant) > before


@contextmanager
def _log_kept(database: Path) -> Iterator[None]:
    """Somebody reads the catalog's database and does not end, while much is written."""
    with (
        closing(sqlite3.connect(database, timeout=60)) as reader,
        closing(sqlite3.connect(database, timeout=60)) as writer,
    ):
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM namespaces").fetchone()
        writer.execute("CREATE TABLE fault (data BLOB)")
        writer.execute("INSERT INTO fault VALUES (zeroblob(?))", (LOG_BYTES,))
        writer.commit()
        yield
        reader.rollback()
        writer.execute("DROP TABLE fault")
        writer.commit()


def test_faults_that_harm_no_other_tenant_fire_theirs(
    well: Scraped, line: Line, record_property: Recorder
) -> None:
    """A table that cannot be written and one that was rolled back; records that are broken JSON, a message of
    a stranger, a batch that nobody can decompress; a key that expires soon; somebody who reads the database
    for long."""
    stack = well.stack
    _rows(well, line, "stuck", 1)
    _rows(well, line, "back", 3)
    with ExitStack() as ends:
        ends.enter_context(unwritable(location(line, "stuck") / "data"))
        ends.enter_context(well.flow("stuck"))
        roll_back_by_rest(line, "back", snapshots(line, "back")[0])
        well.send("back")
        ends.enter_context(well.flow("broken", b'{"n":'))
        well.kafka.produce("firn.replay", [Record(b"of a stranger")])
        bomb = batch([record(0, bytes(BOMB_BYTES))], codec=ZSTD)
        Wire(well.kafka.bootstrap_servers).produce(TOPIC, bomb)
        made = run("catalog", stack.environment(), "key", "create", "--scope", "read", "--expires", "7d")
        assert made.returncode == 0, made.stderr
        ends.enter_context(_log_kept(stack.folder / "catalog.db"))
        wanted = {
            "FirnTableParked",
            "FirnTableNeedsPerson",
            "FirnDeadLettersRise",
            "FirnForeignMessages",
            "FirnBatchesUnreadable",
            "FirnKeysExpire",
            "FirnDatabaseLogGrows",
        }
        _note(record_property, wait_for_alerts(well, wanted, 3600 / TIMES + SLACK_S, set()))
    resolved = run("ingest", {**stack.environment(), **well.settings}, "resolve", "back.logs", "--accept")
    assert resolved.returncode == 0, resolved.stdout + resolved.stderr
    key_id = made.stdout.split("_")[1]
    assert run("catalog", stack.environment(), "key", "revoke", key_id).returncode == 0


def test_a_second_group_that_writes_is_told(well: Scraped, line: Line, record_property: Recorder) -> None:
    """It is quicker, so that the node finds its rows there."""
    topics = [{"name": TOPIC, "tenant": ["header:tenant"]}]
    other = line.ingester(topics, flush__interval_s=0.2, **UNRELIEVED)
    try:
        with well.flow("shared"):
            wanted = {"FirnConcurrentWriters"}
            _note(record_property, wait_for_alerts(well, wanted, 60 / TIMES + SLACK_S, set()))
    finally:
        other.kill()
    well.stack.stop("ingest")  # what it has seen it tells for as long as it runs
    well.start("ingest")


def test_a_catalog_that_is_away_fires_what_waits_for_it(well: Scraped, record_property: Recorder) -> None:
    """Itself, the tables that take no rows, the records that wait, and the rules of alerts that nobody can
    read."""
    with well.flow("acme"):
        well.stack.stop("catalog")
        wanted = {"FirnServiceDown", "FirnRecordsWait", "FirnTablesFailing", "FirnAlertRulesLate"}
        _note(record_property, wait_for_alerts(well, wanted, 300 / TIMES + SLACK_S, GONE))
        well.start("catalog")


def test_without_a_node_lag_grows_and_what_expires_is_told(well: Scraped, record_property: Recorder) -> None:
    """More and more waits; when the topic's retention has taken records away before a node comes back, that
    one says so."""
    well.stack.stop("ingest")
    with well.flow("acme"):
        wanted = {"FirnLagGrows", "FirnNoActiveNode", "FirnServiceDown", "FirnRecordsWait"}
        _note(record_property, wait_for_alerts(well, wanted, 31 * 60 / TIMES + SLACK_S, set()))
    (end,) = well.kafka.ends(TOPIC).values()
    well.kafka.remove_records(TOPIC, end)
    well.start("ingest")
    _note(record_property, wait_for_alerts(well, {"FirnRecordsExpired"}, SLACK_S, wanted))


def test_without_maintenance_ingestion_looks_after_its_tables(
    well: Scraped, record_property: Recorder
) -> None:
    """No round ends, and a table that has too many snapshots is relieved by ingestion."""
    well.stack.stop("optimize", "ingest")
    well.start("ingest", commit__snapshots_max="4")
    with well.flow("acme"):
        wanted = {"FirnMaintenanceBehind", "FirnMaintenanceByIngestion"}
        within_s = 3 * 40 + 900 / TIMES + SLACK_S
        _note(record_property, wait_for_alerts(well, wanted, within_s, GONE))
    well.stack.stop("ingest")
    well.start("ingest", "optimize", **UNRELIEVED)


def test_a_certificate_that_ends_soon_is_told(well: Scraped, record_property: Recorder) -> None:
    """By each service that has its file, without a start: also when a new one lies there."""
    folder = well.stack.folder.parent
    told = 'min by (job) (firn_certificate_expires_timestamp_seconds{setting="tls.ca"}) > time()'
    assert well.asked.value(f"count({told})") == len(JOBS)
    _private_ca(folder, timedelta(days=13))
    try:
        wanted = {"FirnCertificateExpiring"}
        _note(record_property, wait_for_alerts(well, wanted, 900 / TIMES + SLACK_S, set()))
        soon = f"count(({told}) - time() < 14 * 86400)"
        wait_for(lambda: well.asked.value(soon) == len(JOBS), SEEN_S, "each service saying so")
    finally:
        _private_ca(folder)


def test_an_error_that_nobody_foresaw_is_told_and_loses_nothing(
    well: Scraped, line: Line, tmp_path: Path, record_property: Recorder
) -> None:
    """A fault in the code that converts the records of many tables together."""
    (tmp_path / "sitecustomize.py").write_text(FAULT_OF_OURS)
    well.stack.stop("ingest")
    paths = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{REPOSITORY}"}
    well.stack.start("ingest", environment={**well.settings, **paths})
    before = line.rows_written("unforeseen")
    well.send("unforeseen")
    wanted = {"FirnUnexpectedErrors"}
    _note(record_property, wait_for_alerts(well, wanted, SLACK_S, GONE))
    wait_for(partial(_has_more, line, "unforeseen", before), SEEN_S, "the row")
    well.stack.stop("ingest")
    well.stack.start("ingest", environment={**well.settings, "PYTHONPATH": str(REPOSITORY)})


def test_searches_that_wait_for_a_slow_catalog_are_told(
    well: Scraped, line: Line, record_property: Recorder
) -> None:
    """It answers the API alone slowly; nothing else is late."""
    for tenant in SLOW_TENANTS:
        _rows(well, line, tenant, 1)
    catalog = well.stack.address("catalog")
    slow = {table_name(tenant): SLOW_S for tenant in SLOW_TENANTS}
    with CatalogProxy(catalog, slow) as proxy, ExitStack() as searches:
        _restart_query(well, FIRN_QUERY_CATALOG__URI=proxy.address)
        for tenant in SLOW_TENANTS:
            for _ in range(SEARCHES_OF_EACH):
                searches.enter_context(_searches(well, "hello", tenant))
        wanted = {"FirnSearchesSlow"}
        within_s = 2 * 900 / TIMES + SLACK_S
        _note(record_property, wait_for_alerts(well, wanted, within_s, {"FirnServiceDown"}))
        searches.close()
        _restart_query(well, FIRN_QUERY_CATALOG__URI=catalog)


def _restart_query(running: Scraped, **settings: str) -> None:
    """Starts the API anew, with these settings besides."""
    running.stack.stop("query")
    running.stack.start("query", environment={**running.settings, **settings})


def test_an_audit_trail_that_nobody_takes_waits_and_is_lost(well: Scraped, record_property: Recorder) -> None:
    """Ever more events wait while `ingest serve` is away; when the files are full, some are lost."""
    well.stack.stop("ingest-serve")
    with _searches(well, "nothing"):
        wanted = {"FirnAuditEventsWait", "FirnServiceDown"}
        _note(record_property, wait_for_alerts(well, wanted, 31 * 60 / TIMES + SLACK_S, set()))
    with _searches(well, "x" * 50_000):
        lost = wait_for_alerts(well, {"FirnAuditEventsLost"}, SLACK_S, wanted)
        _note(record_property, lost)
    well.start("ingest-serve")


def test_what_is_wrong_with_rules_of_alerts_is_told(
    well: Scraped, line: Line, receiver: Receiver, rules: RuleStore, record_property: Recorder
) -> None:
    """A rule over a file that is gone; a receiver that does not take messages, and one that calls them wrong;
    no server that evaluates."""
    receiver.status = 503
    _keep(rules, WATCHED, query="", window=60)
    _keep(rules, _without_its_file(line), query="message:hello", window=3_600)
    with well.flow("watched"):
        wanted = {"FirnAlertMessagesWait", "FirnAlertRulesFailing"}
        within_s = 2 * 60 + 900 / TIMES + SLACK_S
        _note(record_property, wait_for_alerts(well, wanted, within_s, set()))
        receiver.status = 400
        _note(record_property, wait_for_alerts(well, {"FirnAlertMessagesLost"}, SLACK_S, wanted))
        receiver.status = 200
        _restart_query(well, FIRN_QUERY_ALERTS__ENABLED="false")
        wanted |= {"FirnAlertMessagesLost", "FirnServiceDown"}
        alone = wait_for_alerts(well, {"FirnAlertRulesNotEvaluated"}, 300 / TIMES + SLACK_S, wanted)
        _note(record_property, alone)
    for tenant in (WATCHED, UNREAD):
        rules.drop(tenant, "any-row")
    _restart_query(well)


def _keep(rules: RuleStore, tenant: TenantId, **wanted: object) -> None:
    """A rule that alerts for each row of a tenant."""
    written = {"name": "any-row", "condition": {"mode": "count", "over": 0}, **wanted}
    rule = Rule.model_validate({**written, "every": 5, "delay": 0, "late": 0})
    rules.keep([StoredRule(tenant, rule, "somebody", "")])


def _without_its_file(line: Line) -> TenantId:
    """A tenant whose table has a file that is not there."""
    table = LogTable(line.catalog, UNREAD.name)
    table.append([{"timestamp": datetime.now(UTC), "message": "hello"}])
    (file,) = table.files()
    Path(file.uri.removeprefix("file://")).unlink()
    return UNREAD


@contextmanager
def _searches(running: Scraped, words: str, tenant: str = "acme") -> Iterator[None]:
    """One search follows the other, each an event of the trail."""
    body = {"tenant": tenant, "query": words, "from": "now-1h", "to": "now"}
    address = f"{running.stack.address('query')}/v1/search"
    with again_and_again(lambda: http.post(address, json=body, timeout=60.0), 0.5):
        yield


def _note(record_property: Recorder, took_s: Figures) -> None:
    """Keeps after how many seconds each alert fired."""
    for alert, seconds in sorted(took_s.items()):
        record_property(alert, seconds)
