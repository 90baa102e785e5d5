"""What brokers refuse: a connection for its credentials, a request for their access lists. Told as sentences
that say what to change."""

import threading
from typing import NamedTuple

import structlog
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from ingest.kafka.token_endpoint import why_no_token
from lake.clock import SYSTEM_CLOCK, Clock
from lake.errors import UnavailableError
from lake.settings import IngestSettings

# A connection that was refused is tried again twice a second, by each client.
LOG_EVERY_S = 30.0
# For so long a refusal explains why nothing else works.
RECENT_S = 60.0
DOCS = "docs/ingest.md lists what Firn needs"
_CREDENTIALS = frozenset({KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._SSL})
FORBIDDEN = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
_TLS = ("SSL", "certificate", "tls alert")
# What the client says where it gets no token, and a broker of one that it does not take.
_NO_TOKEN, _TOKEN_REFUSED = "OAUTHBEARER token", "invalid_token"
_ASK_FOR_TOKENS = (
    "kafka.oauth_token_endpoint gives no token: is it there and reached from here, trusted by "
    "kafka.ssl_ca, does it know kafka.oauth_client_id, kafka.oauth_client_secret and kafka.oauth_scope? it "
    "is asked again until it does"
)
log = structlog.get_logger()


class KafkaRefusedError(UnavailableError):
    """Brokers refuse the credentials, or what they are used for: somebody has to change that, and whoever
    waits goes on by itself then."""


class Right(NamedTuple):
    """What is asked for: an operation of Kafka's access lists on a resource, `READ` on `topic logs`."""

    operation: str
    resource: str


class ConnectionRefusals:
    """What became of the connections of all clients of this process. Thread-safe."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._newest: tuple[float, str] | None = None
        self._logged: dict[int, float] = {}

    def note(self, error: KafkaError) -> None:
        """Takes what a client says beside its answers (`error_cb`); logs it, each kind once in a while."""
        text, advice = error.str(), advice_for(error)
        now_s = self._clock.monotonic_s()
        with self._lock:
            if advice:
                self._newest = now_s, f"{text}; {advice}"
            if now_s - self._logged.get(error.code(), -LOG_EVERY_S) < LOG_EVERY_S:
                return
            self._logged[error.code()] = now_s
        log.warning("kafka.trouble", code=error.name(), text=text, **({"advice": advice} if advice else {}))

    def newest(self) -> str | None:
        """Returns why connections were refused lately, and what to do."""
        with self._lock:
            if self._newest is None or self._clock.monotonic_s() - self._newest[0] > RECENT_S:
                return None
            return self._newest[1]


REFUSALS = ConnectionRefusals()


def advice_for(error: KafkaError) -> str:
    """Returns what to do about a connection that was refused for its credentials; empty for other
    trouble."""
    text = error.str()
    if _NO_TOKEN in text:
        return _ASK_FOR_TOKENS
    if _TOKEN_REFUSED in text:
        return (
            "the broker does not accept the token: audience and issuer of what kafka.oauth_token_endpoint "
            "gives have to be its sasl.oauthbearer.expected.audience and .expected.issuer, and it has to "
            "know the issuer's keys; the next token is tried by itself"
        )
    if "alert" in text and any(word in text for word in _TLS):
        return (
            "the broker does not accept the certificate in kafka.ssl_certificate (has it expired, does the "
            "broker trust its CA?); put another one there, it is taken up by itself"
        )
    if "verify failed" in text or "certificate has expired" in text:
        return (
            "the broker's certificate has expired, is not of a CA in kafka.ssl_ca, or not of this host; a "
            "new one is taken up by itself"
        )
    if error.code() == KafkaError._SSL:
        return "check kafka.security_protocol, kafka.ssl_ca, kafka.ssl_certificate and kafka.ssl_key"
    if error.code() in _CREDENTIALS:
        return (
            "check the user and the password (or the client and its secret) of kafka.sasl_mechanism; what is "
            "put into their files is taken up by itself"
        )
    return ""


def unavailable(
    settings: IngestSettings,
    what: str,
    error: Exception,
    right: Right | None = None,
    client: AdminClient | None = None,
) -> UnavailableError:
    """Returns the error that says what Kafka did not do, why, and what to change; a KafkaRefusedError where
    the brokers refuse it. `client`: who asked; what it was told beside its answers is looked at."""
    if client is not None:
        client.poll(0)  # it calls `REFUSALS.note`
    cause = error.args[0] if isinstance(error, KafkaException) else None
    told = f"Kafka at {settings.kafka.bootstrap_servers} {what}: {error if cause is None else cause.str()}"
    if isinstance(cause, KafkaError) and cause.code() in FORBIDDEN:
        return KafkaRefusedError(f"{told}; {forbidden(settings, right)}")
    if refusal := REFUSALS.newest():
        return KafkaRefusedError(f"{told}; {refusal}")
    if why := why_no_token(settings):
        return KafkaRefusedError(f"{told}; {why}: {_ASK_FOR_TOKENS}")
    return UnavailableError(f"{told}; is it running, and is kafka.bootstrap_servers right?")


def forbidden(settings: IngestSettings, right: Right | None) -> str:
    """Returns what a right that is missing is, and whose."""
    if right is None:
        return f"{_who(settings)} lacks a right for it; {DOCS}"
    return f"{_who(settings)} may not {right.operation} {right.resource}: grant it; {DOCS}"


def _who(settings: IngestSettings) -> str:
    kafka = settings.kafka
    if user := kafka.value("sasl_username"):
        return f"the user {user}"
    if client := kafka.value("oauth_client_id"):
        return f"the client {client}"
    return f"the user of kafka.ssl_certificate ({kafka.ssl_certificate})" if kafka.ssl_certificate else "Firn"
