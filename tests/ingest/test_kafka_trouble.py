"""What brokers refuse, as sentences; a connection that is refused is logged once in a while."""

from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from structlog.testing import capture_logs

from infra.local.kafka_access import CA, FIRN
from ingest.kafka.kafka_trouble import (
    LOG_EVERY_S,
    RECENT_S,
    ConnectionRefusals,
    KafkaRefusedError,
    Right,
    advice_for,
    forbidden,
    unavailable,
)
from lake.settings import IngestSettings
from tests.ingest.support.fake_clock import FakeClock
from tests.stack.support.certificates import CertificateAuthority
from tests.stack.support.token_issuer import token_issuer

EXPIRED = "ssl://b:1/bootstrap: Receive failed: SSL routines::ssl/tls alert certificate unknown: SSL alert 46"
TOKENLESS = "Failed to acquire SASL OAUTHBEARER token: HTTP error code 401: no such client"
TOKEN_REFUSED = 'SASL authentication error: {"status":"invalid_token"} (after 6ms in state AUTH_REQ)'
UNTRUSTED = "SSL handshake failed: certificate verify failed: broker certificate could not be verified"


@pytest.fixture(autouse=True)
def no_settings_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRN_CONFIG", "")


@pytest.mark.parametrize(
    ("code", "text", "advice"),
    [
        (KafkaError._AUTHENTICATION, "SASL authentication error", "check the user and the password"),
        (KafkaError._TRANSPORT, EXPIRED, "has it expired"),
        (KafkaError._SSL, UNTRUSTED, "is not of a CA in kafka.ssl_ca"),
        (KafkaError._SSL, "SSL handshake failed: Disconnected", "check kafka.security_protocol"),
        (KafkaError._AUTHENTICATION, TOKENLESS, "kafka.oauth_token_endpoint gives no token"),
        (KafkaError._AUTHENTICATION, TOKEN_REFUSED, "the broker does not accept the token"),
        (KafkaError._TRANSPORT, "Connection refused", ""),
        (KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down", ""),
    ],
    ids=str,
)
def test_credentials_that_are_refused_have_advice(code: int, text: str, advice: str) -> None:
    """Other trouble has none: it passes, or the sentence says enough."""
    assert advice in advice_for(KafkaError(code, text))
    assert bool(advice_for(KafkaError(code, text))) == bool(advice)


def test_a_refusal_explains_what_fails_for_a_while_and_is_logged_once_in_a_while() -> None:
    """Each kind of trouble by itself; what has passed explains nothing any more."""
    clock = FakeClock()
    refusals = ConnectionRefusals(clock)
    with capture_logs() as logs:
        for _ in range(3):
            refusals.note(KafkaError(KafkaError._AUTHENTICATION, "no"))
            refusals.note(KafkaError(KafkaError._ALL_BROKERS_DOWN, "down"))
        assert [each["code"] for each in logs] == ["_AUTHENTICATION", "_ALL_BROKERS_DOWN"]
        clock.s += LOG_EVERY_S
        refusals.note(KafkaError(KafkaError._AUTHENTICATION, "no"))
    assert len(logs) == 3
    assert (refusals.newest() or "").startswith("no; check the user")
    clock.s += RECENT_S + 1
    assert refusals.newest() is None


@pytest.mark.parametrize(
    ("kafka", "who"),
    [
        ({}, "Firn"),
        (
            {
                "security_protocol": "SASL_SSL",
                "sasl_mechanism": "PLAIN",
                "sasl_username": "ida",
                "sasl_password": "p",
            },
            "the user ida",
        ),
        (
            {"security_protocol": "SSL", "ssl_certificate": "/c.pem", "ssl_key": "/k.pem"},
            "the user of kafka.ssl_certificate (/c.pem)",
        ),
        (
            {
                "security_protocol": "SASL_SSL",
                "sasl_mechanism": "OAUTHBEARER",
                "oauth_token_endpoint": "https://x",
                "oauth_client_id": "ida",
                "oauth_client_secret": "p",
            },
            "the client ida",
        ),
    ],
    ids=str,
)
def test_a_right_that_is_missing_is_named(kafka: dict[str, str], who: str) -> None:
    """Whose it is, the operation, the resource."""
    settings = IngestSettings.load(**{f"kafka__{name}": value for name, value in kafka.items()})
    assert forbidden(settings, Right("READ", "topic logs")).startswith(
        f"{who} may not READ topic logs: grant it"
    )
    error = unavailable(
        settings,
        "does not describe topic logs",
        KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)),
        Right("DESCRIBE", "topic logs"),
    )
    assert isinstance(error, KafkaRefusedError)
    assert f"{who} may not DESCRIBE topic logs" in str(error)


@pytest.mark.parametrize("status", [None, 503, 401], ids=str)
def test_an_issuer_that_gives_no_token_explains_a_broker_that_is_not_reached(
    status: int | None, tmp_path: Path
) -> None:
    """Before Kafka's client has said so. One that gives a token explains nothing."""
    late = KafkaException(KafkaError(KafkaError._TRANSPORT, "late"))
    with token_issuer(tmp_path, CertificateAuthority(tmp_path)) as issuer:
        settings = IngestSettings.load(
            kafka__security_protocol="SASL_SSL",
            kafka__sasl_mechanism="OAUTHBEARER",
            kafka__oauth_token_endpoint=issuer.url,
            kafka__oauth_client_id=FIRN,
            kafka__oauth_client_secret=issuer.secret,
            kafka__ssl_ca=str(tmp_path / CA),
        )
        assert not isinstance(unavailable(settings, "is away", late), KafkaRefusedError)
        issuer.status = status
        error = unavailable(settings, "is away", late)
    assert isinstance(error, KafkaRefusedError)
    assert "kafka.oauth_token_endpoint gives no token" in str(error)
    assert ("no answer" if status is None else f"the answer {status}") in str(error)
    assert issuer.secret not in str(error)


def test_an_outage_is_no_refusal() -> None:
    """Nobody is told to change credentials where a broker is away."""
    error = unavailable(
        IngestSettings.load(), "does not answer", KafkaException(KafkaError(KafkaError._TIMED_OUT, "late"))
    )
    assert not isinstance(error, KafkaRefusedError)
    assert str(error) == (
        "Kafka at 127.0.0.1:9092 does not answer: late; is it running, and is kafka.bootstrap_servers right?"
    )
