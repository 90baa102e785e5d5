"""Settings of ingestion that are about Kafka."""

from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, model_validator

from lake.settings.group import SettingsGroup
from lake.settings.kafka_options import check_options

SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
SaslMechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
OAUTHBEARER = "OAUTHBEARER"
# What each setting is called by Kafka's client, under all of its names there.
OF_CLIENT = {
    "security_protocol": ("security.protocol",),
    "sasl_mechanism": ("sasl.mechanism", "sasl.mechanisms"),
    "sasl_username": ("sasl.username",),
    "sasl_password": ("sasl.password",),
    "oauth_token_endpoint": ("sasl.oauthbearer.token.endpoint.url",),
    "oauth_client_id": ("sasl.oauthbearer.client.id", "sasl.oauthbearer.client.credentials.client.id"),
    "oauth_client_secret": (
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.client.credentials.client.secret",
    ),
    "oauth_scope": ("sasl.oauthbearer.scope",),
    "ssl_ca": ("ssl.ca.location", "ssl.ca.pem"),
    "ssl_certificate": ("ssl.certificate.location", "ssl.certificate.pem"),
    "ssl_key": ("ssl.key.location", "ssl.key.pem"),
    "ssl_key_password": ("ssl.key.password",),
}
_FILES = ("ssl_ca", "ssl_certificate", "ssl_key")


def _given(value: object) -> object:
    """An empty variable counts as none."""
    return None if value == "" else value


class IngestKafka(SettingsGroup):
    """The brokers, how they are reached, and the consumer group that reads them."""

    bootstrap_servers: Annotated[str, Field(description="Kafka brokers, host:port separated by commas")] = (
        "127.0.0.1:9092"
    )
    security_protocol: Annotated[
        SecurityProtocol | None,
        BeforeValidator(_given),
        Field(description="PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL; without it PLAINTEXT"),
    ] = None
    sasl_mechanism: Annotated[
        SaslMechanism | None,
        BeforeValidator(_given),
        Field(description="PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER"),
    ] = None
    sasl_username: Annotated[str | None, Field(description="user of PLAIN and SCRAM")] = None
    sasl_password: Annotated[SecretStr | None, Field(description="password of that user")] = None
    oauth_token_endpoint: Annotated[
        str | None, Field(description="URL where OAUTHBEARER gets tokens, by client credentials")
    ] = None
    oauth_client_id: Annotated[str | None, Field(description="client id of OAUTHBEARER")] = None
    oauth_client_secret: Annotated[SecretStr | None, Field(description="secret of that client")] = None
    oauth_scope: Annotated[str | None, Field(description="scope that tokens are asked for; empty: none")] = (
        None
    )
    ssl_ca: Annotated[
        str | None,
        Field(description="PEM file with the CAs that brokers are trusted by; without it that of tls.ca"),
    ] = None
    ssl_certificate: Annotated[
        str | None, Field(description="PEM file with the certificate that is shown to brokers (mutual TLS)")
    ] = None
    ssl_key: Annotated[str | None, Field(description="PEM file with that certificate's private key")] = None
    ssl_key_password: Annotated[SecretStr | None, Field(description="password of that key's file")] = None
    options: Annotated[
        dict[str, SecretStr],
        Field(
            description=(
                "any other setting of librdkafka, name to value; what Firn's promises stand on is refused"
            )
        ),
    ] = {}
    group: Annotated[str, Field(description="Kafka consumer group that holds the offsets")] = "firn"
    check_crcs: Annotated[
        bool,
        Field(
            description=(
                "compare the checksums of Kafka's batches; a node whose client dies of a damaged "
                "batch goes on without, and says so"
            )
        ),
    ] = True

    @model_validator(mode="after")
    def _can_work(self) -> Self:
        check_options(self.options)
        if wrong := next(self._contradictions(), None):
            raise ValueError(wrong)
        return self

    @property
    def files(self) -> list[str]:
        """The files with certificates and keys that are named."""
        return [path for name in _FILES if (path := getattr(self, name))]

    def has(self, *names: str) -> list[str]:
        """Which of these settings are there, under their own names or among the options."""
        return [
            name
            for name in names
            if getattr(self, name) or any(each in self.options for each in OF_CLIENT[name])
        ]

    def value(self, name: str) -> str:
        """A setting as given, under its own name or among the options; empty where it is not."""
        given = getattr(self, name) or next(
            (self.options[each] for each in OF_CLIENT[name] if each in self.options), ""
        )
        return given.get_secret_value() if isinstance(given, SecretStr) else str(given)

    def _contradictions(self) -> Iterator[str]:
        yield from self._twice()
        protocol = self.value("security_protocol").upper() or "PLAINTEXT"
        by_tls, by_sasl = protocol.endswith("SSL"), protocol.startswith("SASL_")
        of_tls = self.has("ssl_ca", "ssl_certificate", "ssl_key", "ssl_key_password")
        if of_tls and not by_tls:
            yield f"{of_tls[0]} is of no use where security_protocol is {protocol}; set it to SSL or SASL_SSL"
        if self.has("ssl_key") and not self.has("ssl_certificate"):
            yield "ssl_key is given without ssl_certificate; set both, or neither"
        if self.has("ssl_certificate") and not self.has("ssl_key") and not self._has_keystore:
            yield "ssl_certificate is given without ssl_key; set both, or neither"
        if self.ssl_key_password and not self.has("ssl_key"):
            yield "ssl_key_password is given without ssl_key; set both, or neither"
        yield from self._of_sasl(protocol) if by_sasl else self._without_sasl(protocol)

    @property
    def _has_keystore(self) -> bool:
        return any(name.startswith(("ssl.keystore.", "ssl.engine.", "ssl.key.")) for name in self.options)

    def _twice(self) -> Iterator[str]:
        for name, names in OF_CLIENT.items():
            twice = [each for each in names if each in self.options]
            if twice and getattr(self, name):
                yield f"{name} and options.{twice[0]} are both given; leave one of them out"

    def _without_sasl(self, protocol: str) -> Iterator[str]:
        of_sasl = self.has(
            "sasl_mechanism",
            "sasl_username",
            "sasl_password",
            "oauth_token_endpoint",
            "oauth_client_id",
            "oauth_client_secret",
            "oauth_scope",
        )
        if of_sasl:
            yield (
                f"{of_sasl[0]} is of no use where security_protocol is {protocol}; set it to SASL_SSL, or to "
                "SASL_PLAINTEXT where nobody else can listen"
            )

    def _of_sasl(self, protocol: str) -> Iterator[str]:
        mechanism = self.value("sasl_mechanism").upper()
        if not mechanism:
            yield (
                f"security_protocol is {protocol} without sasl_mechanism; set it to PLAIN, SCRAM-SHA-256, "
                "SCRAM-SHA-512 or OAUTHBEARER"
            )
        of_users = ("sasl_username", "sasl_password")
        of_clients = ("oauth_token_endpoint", "oauth_client_id", "oauth_client_secret")
        if mechanism == OAUTHBEARER:
            yield from self._complete(mechanism, () if self._brings_tokens else of_clients, of_users)
        elif mechanism == "PLAIN" or mechanism.startswith("SCRAM-"):
            yield from self._complete(mechanism, of_users, (*of_clients, "oauth_scope"))

    @property
    def _brings_tokens(self) -> bool:
        """Whether the options say in another way where tokens come from."""
        known = {each for names in OF_CLIENT.values() for each in names}
        return any(
            name not in known and name.startswith(("sasl.oauthbearer.", "enable.sasl.oauthbearer."))
            for name in self.options
        )

    def _complete(self, mechanism: str, needs: tuple[str, ...], strange: tuple[str, ...]) -> Iterator[str]:
        if missing := [name for name in needs if name not in self.has(*needs)]:
            yield f"sasl_mechanism is {mechanism} without {missing[0]}; set it"
        if given := self.has(*strange):
            yield f"{given[0]} is of no use where sasl_mechanism is {mechanism}; leave it out"


def _without_credentials(url: str) -> str:
    if "@" in url:
        raise ValueError("url holds a user; set user and password beside it, which are kept out of messages")
    return url


class RegistrySettings(SettingsGroup):
    """The schema registry of messages in Confluent's wire format: Avro, Protobuf, JSON Schema."""

    url: Annotated[
        str,
        AfterValidator(_without_credentials),
        Field(
            description=(
                "base URLs of the schema registry, separated by commas; empty: no message is read with one"
            )
        ),
    ] = ""
    user: Annotated[str, Field(description="user of basic authentication; empty: none")] = ""
    password: Annotated[SecretStr | None, Field(description="password of basic authentication")] = None
    ca: Annotated[
        str | None,
        Field(description="PEM file with the certificates that are trusted here; without it that of tls.ca"),
    ] = None
    timeout_s: Annotated[float, Field(description="seconds until a request is given up", gt=0)] = 10.0
    schemas_max: Annotated[int, Field(description="schemas that are kept at a time", ge=1)] = 4_096
    unknown_s: Annotated[
        float,
        Field(description="seconds after which the registry is asked again for a schema it lacks", ge=0),
    ] = 60.0


class AuditTopic(SettingsGroup):
    """Where the audit trail goes."""

    topic: Annotated[
        str,
        Field(
            description=(
                "where `ingest serve` writes the audit trail; an input topic as well, whose rules are "
                "const:system and const:audit"
            )
        ),
    ] = "firn.audit"


class UsageTopic(SettingsGroup):
    """Where goes what tenants used."""

    topic: Annotated[
        str,
        Field(
            description=(
                "where `ingest serve` writes what tenants used; an input topic as well, whose rules are "
                "const:system and const:usage, with `changes` of the format keyed_json"
            )
        ),
    ] = "firn.usage"


class InternalTopics(SettingsGroup):
    """Firn's own topics."""

    dead_letters: Annotated[str, Field(description="where messages go that cannot be stored")] = (
        "firn.dead-letters"
    )
    dead_letters_table: Annotated[
        bool,
        Field(
            description=(
                "dead letters are rows of the table system.dead_letters as well: why, when and where, and "
                "nothing of what they hold"
            )
        ),
    ] = False
    replay: Annotated[
        str, Field(description="where dead letters go to be read again; beside `topics` an input topic too")
    ] = "firn.replay"
    parked: Annotated[str, Field(description="where the records of tables wait that take none for now")] = (
        "firn.parked"
    )
    signing_keys: Annotated[
        tuple[Annotated[SecretStr, Field(min_length=16)], ...],
        Field(
            description=(
                "secrets by which messages in Firn's own topics are signed: the first signs, any is "
                "accepted; needed beyond loopback brokers"
            )
        ),
    ] = ()
    unsigned_below: Annotated[
        dict[str, int],
        Field(
            description=(
                "what was written before there were signing_keys: topic:partition to the offset below "
                "which unsigned messages are Firn's own"
            )
        ),
    ] = {}
