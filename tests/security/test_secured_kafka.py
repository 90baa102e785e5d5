"""Kafka with users, TLS and access lists: Firn runs with the rights that its list names and no more, says
which is missing, takes up new passwords and certificates, and waits while they are refused."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException

from infra.local.kafka_access import ADMIN, FIRN, password_file
from infra.local.services import kafka as kafka_service
from infra.local.supervisor import Stack
from infra.production import (
    certificates,
    kafka_brokers,
    kafka_rights,
    kafka_topics,
    kafka_transport,
    kafka_writers,
)
from infra.production.finding import Verdict
from infra.production.rooms import Rooms
from lake.kafka_access_list import OF_INPUT, OF_OWN, Grant, grants
from tests.security.support.secured_line import (
    SAID_S,
    Make,
    Tenant,
    check_nothing_shown,
    tools_of,
    wait_for_words,
)
from tests.stack.support.kafka_topics import KafkaTopics
from tests.stack.support.line import Line
from tests.stack.support.secured_kafka import (
    SecuredKafka,
    admit,
    by_certificate,
    grant,
    secured_kafka,
    set_password,
)
from tests.stack.support.waiting import wait_for

pytestmark = [pytest.mark.stack, pytest.mark.timeout(900)]
NEW_PASSWORD = "rotated-battery-staple"
OFFSETS_MINUTES = 60


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    """Its certificates and passwords, in force for as long as the stack runs."""
    with secured_kafka(tmp_path_factory.mktemp("access")) as access:
        yield access


@pytest.fixture(scope="module")
def line(secured: SecuredKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Line]:
    """Kafka and the catalog; rows are compared by the audit, so nobody has to run Trino. Offsets go after an
    hour, which no test takes."""
    as_usual, shorter = kafka_service._properties, f"{kafka_brokers.OFFSETS}={OFFSETS_MINUTES}"
    with pytest.MonkeyPatch.context() as patch, Stack(tmp_path_factory.mktemp("secured"), tied=True) as stack:
        patch.setattr(kafka_service, "_properties", lambda *given: [*as_usual(*given), shorter])
        stack.start("kafka", "catalog")
        kafka = KafkaTopics(stack.address("kafka"))
        admit(kafka.bootstrap_servers)
        line = Line(stack, kafka, tmp_path_factory.mktemp("line"))
        yield line
        line.catalog.close()


@pytest.fixture
def made(line: Line) -> Iterator[Make]:
    """Tools with an ingester that does not run yet; it ends with the test."""
    with tools_of(line) as make:
        yield make


def test_a_node_and_its_tools_run_with_the_rights_that_are_listed(
    made: Make, line: Line, secured: SecuredKafka
) -> None:
    """By SCRAM over TLS: rows, dead letters, offsets, status, audit; no password stands where others see
    it."""
    topic = line.kafka.topic()
    tools = made(topic)
    tenant = Tenant(tools, topic)
    tools.ingester.start()
    tenant.send(200)
    tenant.check()
    assert tools.json("status")["lag_records"] == 0
    assert tools.run("dead-letters", "list", "--json").count("\n") == 20
    tools.ingester.stop()
    check_nothing_shown(tools, secured.password)


@pytest.mark.prove
def test_a_new_password_is_taken_up_and_nothing_is_lost(
    made: Make, line: Line, secured: SecuredKafka
) -> None:
    """The file has it first: Kafka refuses the node, which says so and waits; once Kafka has it, too,
    the node goes on by itself, with each record once."""
    topic = line.kafka.topic()
    tools = made(topic)
    tenant = Tenant(tools, topic)
    ingester = tools.ingester.start()
    tenant.send(50)
    tenant.check()
    old = secured.password
    secured.write_password(NEW_PASSWORD)
    file = password_file(secured.folder, FIRN)
    wait_for_words(ingester, f"{file} changed", "kafka.trouble", "check the user and the password")
    wait_for(lambda: not ingester.is_ready(), SAID_S, "not being ready")
    tenant.send(50)
    assert ingester.alive
    set_password(line.kafka.bootstrap_servers, NEW_PASSWORD)
    tenant.send(50)
    tenant.check()
    assert ingester.is_ready()
    ingester.stop()
    check_nothing_shown(tools, old, NEW_PASSWORD)


@pytest.mark.prove
def test_an_expired_certificate_is_an_outage(made: Make, line: Line, secured: SecuredKafka) -> None:
    """On the listener that asks for certificates: with one that has expired a node starts, says so and waits;
    with a new one in its place it goes on, and so it does when one expires while it runs."""
    topic = line.kafka.topic()
    tools = made(topic, **by_certificate(line.stack, secured))
    tenant = Tenant(tools, topic)
    tenant.send(50)
    secured.certificates.sign(FIRN, ended=True)
    ingester = tools.ingester.start(ready=False)
    wait_for_words(ingester, "node.waits", "kafka.ssl_certificate (has it expired")
    assert ingester.alive
    secured.certificates.sign(FIRN)
    tenant.check()
    secured.certificates.sign(FIRN, ended=True)
    wait_for_words(ingester, "changed; all clients begin anew")
    tenant.send(50)
    assert ingester.alive
    secured.certificates.sign(FIRN)
    tenant.check()
    ingester.stop()


def test_rights_that_are_missing_are_named(made: Make, line: Line) -> None:
    """One after the other, with operation and resource; when all are there the node goes on by itself."""
    topic = line.kafka.topic()
    bare = Line(line.stack, line.kafka, line.folder, grants=False)
    tools = made(topic, bare)
    tenant = Tenant(tools, topic)
    tenant.send(50)
    grants = tools.ingester.grants()
    ingester = tools.ingester.start(ready=False)
    dead = ingester.dead_letter_topic
    wait_for_words(ingester, f"the user firn may not CREATE (and DESCRIBE) topic {dead}: grant it")
    servers, of_topic = line.kafka.bootstrap_servers, [each for each in grants if each.name == topic]
    grant(servers, [each for each in grants if each.kind == "topic" and each not in of_topic])
    wait_for_words(ingester, f"the user firn may not DESCRIBE topic {topic}: grant it")
    grant(servers, [each._replace(operations=["DESCRIBE"]) for each in of_topic])
    wait_for_words(ingester, f"the user firn may not READ group {tools.group}: grant it")
    grant(servers, [each for each in grants if each.kind == "group"])
    wait_for_words(ingester, f"the user firn may not READ topic {topic}: grant it")
    grant(servers, of_topic)
    tenant.check()
    ingester.stop()


def test_nobody_else_gets_in(made: Make, line: Line, tmp_path: Path) -> None:
    """A tool with another password says what to look at, and shows none."""
    tools = made(line.kafka.topic())
    wrong = tmp_path / "wrong"
    wrong.write_text("wrong-battery-staple")
    tools.environment["FIRN_INGEST_KAFKA__SASL_PASSWORD_FILE"] = str(wrong)
    said = tools.refusal("own-topics")
    assert "check the user and the password" in said
    assert "wrong-battery-staple" not in said


def test_the_doctor_names_rights_until_they_are_given(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    """By resource and operation; with those of the list nothing is missing, and nothing beyond them. TLS is
    well, its certificate soon ends. What waits for its tables must be kept, and one broker has one copy."""
    kafka, topic = line.kafka, line.kafka.topic()
    _set_up(monkeypatch, line.stack.environment())
    monkeypatch.setenv("FIRN_INGEST_TOPICS", json.dumps([{"name": topic, "tenant": ["field:tenant"]}]))
    rooms = Rooms.load()
    own = rooms.ingest.internal_topics
    for name in (own.dead_letters, own.parked, own.replay):
        kafka.topic(name=name)
    assert f"topic {topic}: {', '.join(sorted(OF_INPUT))}" in _rights(rooms)
    wanted = grants(rooms.ingest)
    grant(kafka.bootstrap_servers, [each for each in wanted if each.name != topic])
    wait_for(lambda: own.parked not in _rights(rooms), SAID_S, "rights on Firn's own topics")
    assert f"may not topic {topic}:" in _rights(rooms)
    grant(kafka.bootstrap_servers, wanted)
    wait_for(lambda: "may not" not in _rights(rooms), SAID_S, "all rights")
    (found,) = kafka_rights.look(rooms)
    assert found.verdict in (Verdict.OK, Verdict.UNKNOWN), found
    (transport,) = kafka_transport.look(rooms)
    assert transport.verdict is Verdict.OK
    (shown,) = certificates.look(rooms)
    assert f"{kafka.bootstrap_servers} expires on" in shown.sentence
    topics = {each.sentence.split()[0]: each.verdict for each in kafka_topics.look(rooms)}
    assert topics == {
        own.parked: Verdict.UNSAFE,
        own.dead_letters: Verdict.WARNING,
        own.replay: Verdict.WARNING,
    }


def test_the_doctor_is_told_of_brokers_where_it_may_know(
    line: Line, secured: SecuredKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not to Firn's own user; to an administrator, that offsets go after an hour, and who writes to its own
    topics. An administrator's rights are more than Firn needs."""
    _set_up(monkeypatch, line.stack.environment())
    with pytest.raises(KafkaException, match="authorization"):
        list(kafka_brokers.look(Rooms.load()))
    own = Rooms.load().ingest.internal_topics
    grant(line.kafka.bootstrap_servers, [Grant("topic", own.parked, OF_OWN)])
    (untold,) = kafka_writers.look(Rooms.load())
    assert untold.verdict is Verdict.UNKNOWN
    topic = line.kafka.topic()
    prefix = "FIRN_INGEST_KAFKA__SASL_"
    _set_up(
        monkeypatch,
        {
            f"{prefix}MECHANISM": "PLAIN",
            f"{prefix}USERNAME": ADMIN,
            f"{prefix}PASSWORD_FILE": str(password_file(secured.folder, ADMIN)),
            "FIRN_INGEST_TOPICS": json.dumps([{"name": topic, "tenant": ["field:tenant"]}]),
        },
    )
    (brokers,) = kafka_brokers.look(Rooms.load())
    assert brokers.verdict is Verdict.UNSAFE
    assert f"after {OFFSETS_MINUTES} minutes" in brokers.sentence
    assert f"everything to {topic}" in _rights(Rooms.load())
    (writers,) = kafka_writers.look(Rooms.load())
    assert f"others than User:{ADMIN} may write to Firn's own topics: User:{FIRN} to" in writers.sentence


def _set_up(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    """Has the settings of this process be those of a stack."""
    monkeypatch.setenv("FIRN_CONFIG", "")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def _rights(rooms: Rooms) -> str:
    """What is said of Firn's rights."""
    (found,) = kafka_rights.look(rooms)
    return found.sentence
