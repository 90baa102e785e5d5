"""Kafka by tokens of an issuer (OAUTHBEARER, client credentials): the broker compares them with the issuer's
keys and ends connections with them; Firn fetches the next one in time, waits for an issuer that is away, and
says why a token is refused."""

import base64
from collections.abc import Iterator

import orjson
import pytest

from infra.local.supervisor import Stack
from lake.clock import SYSTEM_CLOCK
from tests.security.support.secured_line import (
    Make,
    Tenant,
    check_nothing_shown,
    tools_of,
    wait_for_words,
)
from tests.stack.support.kafka_topics import KafkaTopics
from tests.stack.support.line import Line
from tests.stack.support.token_issuer import LIFETIME_S, NOT_NOW, TokenIssuer, kafka_by_token
from tests.stack.support.waiting import wait_for

pytestmark = [pytest.mark.stack, pytest.mark.prove, pytest.mark.timeout(900)]
SHORT_S = 8
# A client fetches the next token after four fifths of that; what is left has to be enough on a busy machine.
LASTS_S = 25
SENDS, SENT = 3, 50
NO_TOKEN = "kafka.oauth_token_endpoint gives no token"


@pytest.fixture(scope="module")
def issuing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenIssuer]:
    """In force for as long as the stack runs."""
    with kafka_by_token(tmp_path_factory.mktemp("access")) as issuer:
        yield issuer


@pytest.fixture
def issuer(issuing: TokenIssuer) -> Iterator[TokenIssuer]:
    """As it was, whatever a test has had it do."""
    as_it_was = {**vars(issuing)}
    yield issuing
    vars(issuing).update(as_it_was)


@pytest.fixture(scope="module")
def line(issuing: TokenIssuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Line]:
    """Kafka and the catalog; rows are compared by the audit, so nobody has to run Trino."""
    assert issuing.given == []
    with Stack(tmp_path_factory.mktemp("tokens"), tied=True) as stack:
        stack.start("kafka", "catalog")
        line = Line(stack, KafkaTopics(stack.address("kafka")), tmp_path_factory.mktemp("line"))
        yield line
        line.catalog.close()


@pytest.fixture
def made(line: Line) -> Iterator[Make]:
    """Tools with an ingester that does not run yet; it ends with the test."""
    with tools_of(line) as make:
        yield make


def test_a_node_and_its_tools_come_in_by_tokens(made: Make, line: Line, issuer: TokenIssuer) -> None:
    """Rows, dead letters, offsets, status, audit, with the rights that are listed; neither the secret of
    the client nor a token stands where others see it."""
    topic = line.kafka.topic()
    tools = made(topic)
    tenant = Tenant(tools, topic)
    tools.ingester.start()
    tenant.send(200)
    tenant.check()
    assert tools.json("status")["lag_records"] == 0
    assert tools.run("dead-letters", "list", "--json").count("\n") == 20
    tools.ingester.stop()
    assert issuer.given
    check_nothing_shown(tools, issuer.secret, *issuer.given)


def test_the_next_token_is_there_before_one_ends(made: Make, line: Line, issuer: TokenIssuer) -> None:
    """The broker ends a connection with its token; a node whose tokens last for seconds goes on through many
    of them, and nothing is refused."""
    issuer.lifetime_s = LASTS_S
    topic = line.kafka.topic()
    tools = made(topic)
    tenant = Tenant(tools, topic)
    ingester = tools.ingester.start()
    for _ in range(SENDS):
        tenant.send(SENT)
        tenant.check()
        _wait_for_the_end_of(issuer.given[-1])
    assert "kafka.trouble" not in ingester.log()
    assert "node.restarts" not in ingester.log()
    ingester.stop()


def _wait_for_the_end_of(token: str) -> None:
    ends_s = orjson.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))["exp"]
    wait_for(lambda: SYSTEM_CLOCK.now().timestamp() > ends_s, 2 * LASTS_S, "the end of a token")


@pytest.mark.parametrize("status", [None, NOT_NOW], ids=["hangs_up", "not_now"])
def test_an_issuer_that_is_away_is_an_outage(
    status: int | None, made: Make, line: Line, issuer: TokenIssuer
) -> None:
    """A node that starts meanwhile waits and says what for. One that runs when its tokens end stays, takes up
    what has come once there are tokens again, and loses nothing."""
    issuer.status = status
    topic = line.kafka.topic()
    tools = made(topic)
    tenant = Tenant(tools, topic)
    tenant.send(SENT)
    ingester = tools.ingester.start(ready=False)
    wait_for_words(ingester, "node.waits", NO_TOKEN)
    assert not ingester.is_ready()
    issuer.status, issuer.lifetime_s = 200, SHORT_S
    tenant.check()
    told = len(ingester.log())
    issuer.status = status
    wait_for_words(ingester, "kafka.trouble", NO_TOKEN, since=told)
    tenant.send(SENT)
    assert ingester.alive
    issuer.status, issuer.lifetime_s = 200, LIFETIME_S
    tenant.check()
    ingester.stop()


def test_a_token_for_others_is_refused(made: Make, line: Line, issuer: TokenIssuer) -> None:
    """By the broker, since it has another audience; the sentence says what to look at and shows no token."""
    issuer.audience = "another-kafka"
    said = made(line.kafka.topic()).refusal("own-topics")
    assert "the broker does not accept the token" in said
    assert "expected.audience" in said
    assert not [token for token in issuer.given if token in said]


def test_a_client_that_the_issuer_does_not_know_gets_no_token(
    made: Make, line: Line, issuer: TokenIssuer
) -> None:
    """The sentence names the settings of the client, and shows no secret."""
    shown, issuer.secret = issuer.secret, "rotated-battery-staple"
    said = made(line.kafka.topic()).refusal("own-topics")
    assert NO_TOKEN in said
    assert "kafka.oauth_client_secret" in said
    assert shown not in said
