"""What clients of Kafka are made with."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from ingest.kafka.acknowledged_producer import AcknowledgedProducer
from ingest.kafka.kafka_client import (
    check_connection,
    make_client,
    reading_consumer,
    reading_options,
)
from lake.errors import SettingsError, UnavailableError
from lake.kafka_connection import connection
from lake.settings import IngestSettings
from lake.settings.kafka_options import RESERVED, check_options

# Of confluent-kafka itself, not of the library below it.
OF_PYTHON = {"default.topic.config", "logger"}
SHOW = """
import ctypes, sys
library, c = ctypes.CDLL(sys.argv[1]), ctypes.CDLL(None)
library.rd_kafka_conf_properties_show.argtypes = [ctypes.c_void_p]
library.rd_kafka_conf_properties_show(ctypes.c_void_p.in_dll(c, "stdout"))
c.fflush(None)
"""


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRN_CONFIG", "")
    monkeypatch.delenv("FIRN_TLS_CA", raising=False)


def _load(**kafka: Any) -> IngestSettings:
    return IngestSettings.load(**{f"kafka__{name}": value for name, value in kafka.items()})


def _reached_by(**kafka: Any) -> dict[str, Any]:
    made = connection(_load(**kafka))
    assert made.pop("bootstrap.servers") == "127.0.0.1:9092"
    assert made.pop("log_level") == 2
    return made


def test_each_setting_goes_to_the_client_by_its_name() -> None:
    """SASL with user and password, mutual TLS, tokens by client credentials, and the options beside them."""
    assert _reached_by() == {}
    assert _reached_by(
        security_protocol="SASL_SSL",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_username="firn",
        sasl_password="word",
        ssl_ca="/ca.pem",
        ssl_certificate="/c.pem",
        ssl_key="/k.pem",
        ssl_key_password="other",
        options={"client.rack": "a"},
    ) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "firn",
        "sasl.password": "word",
        "ssl.ca.location": "/ca.pem",
        "ssl.certificate.location": "/c.pem",
        "ssl.key.location": "/k.pem",
        "ssl.key.password": "other",
        "client.rack": "a",
    }
    assert _reached_by(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        oauth_token_endpoint="https://login.example.org/token",
        oauth_client_id="firn",
        oauth_client_secret="word",
        oauth_scope="kafka",
    ) == {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": "https://login.example.org/token",
        "sasl.oauthbearer.client.id": "firn",
        "sasl.oauthbearer.client.secret": "word",
        "sasl.oauthbearer.scope": "kafka",
    }


def test_the_ca_of_all_clients_is_trusted_where_there_is_none_for_kafka(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For brokers over TLS and for where tokens come from; not without TLS, not beside one of its own."""
    monkeypatch.setenv("FIRN_TLS_CA", "/all.pem")
    assert "ssl.ca.location" not in _reached_by()
    assert _reached_by(security_protocol="SSL")["ssl.ca.location"] == "/all.pem"
    assert _reached_by(security_protocol="SSL", ssl_ca="/own.pem")["ssl.ca.location"] == "/own.pem"
    assert "ssl.ca.location" not in _reached_by(security_protocol="SSL", options={"ssl.ca.pem": "x"})
    by_token = _reached_by(
        security_protocol="SASL_SSL",
        sasl_mechanism="OAUTHBEARER",
        oauth_token_endpoint="https://x",
        oauth_client_id="c",
        oauth_client_secret="s",
    )
    assert by_token["https.ca.location"] == "/all.pem"


def test_every_setting_that_firn_makes_is_refused_from_others() -> None:
    """What readers and producers set beside the connection; and what is refused is something that the client
    knows."""
    set_by_firn = set(reading_options(_load(), "g", 1)) - set(connection(_load()))
    assert len(set_by_firn) > 5
    for name in {
        *set_by_firn,
        "enable.partition.eof",
        "fetch.max.bytes",
        "queued.max.messages.kbytes",
        "acks",
    }:
        with pytest.raises(ValueError, match=name):
            check_options([name])
    known = _known_to_the_client()
    unknown = {
        name
        for name in RESERVED
        if not any(each == name or (name.endswith(".") and each.startswith(name)) for each in known)
    }
    assert unknown == OF_PYTHON


def test_the_client_knows_what_is_sent_to_it(tmp_path: Path) -> None:
    """Every mechanism makes a client, though no broker is there; a wrong file, or an option that does not
    exist, is told."""
    for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
        check_connection(
            _load(
                security_protocol="SASL_SSL", sasl_mechanism=mechanism, sasl_username="u", sasl_password="p"
            )
        )
    check_connection(
        _load(
            security_protocol="SASL_SSL",
            sasl_mechanism="OAUTHBEARER",
            oauth_token_endpoint="https://127.0.0.1:9/token",
            oauth_client_id="c",
            oauth_client_secret="s",
            oauth_scope="x",
        )
    )
    absent = _load(security_protocol="SSL", ssl_ca=str(tmp_path / "absent.pem"))
    with pytest.raises(SettingsError, match=r"ssl\.ca\.location"):
        check_connection(absent)
    with pytest.raises(UnavailableError, match=r"ssl\.ca\.location"):  # what may pass, for a node that runs
        reading_consumer(absent, "g")
    with pytest.raises(UnavailableError, match=r"ssl\.ca\.location"):
        AcknowledgedProducer(absent, "t", queue_kbytes=64)
    with pytest.raises(SettingsError, match=r"no\.such\.thing"):
        check_connection(_load(options={"no.such.thing": "x"}))
    with pytest.raises(UnavailableError):
        make_client(Consumer, {"group.id": "g", "security.protocol": "wrong"})
    assert isinstance(make_client(AdminClient, {}), AdminClient)


def test_a_producer_sends_no_request_before_the_last_one_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a partition without a leader refused counts as acknowledged with the request behind it."""
    made: dict[str, Any] = {}
    monkeypatch.setattr(
        "ingest.kafka.acknowledged_producer.make_client", lambda _, options: made.update(options)
    )
    AcknowledgedProducer(_load(), "t", queue_kbytes=64)
    names = ("acks", "enable.idempotence", "max.in.flight.requests.per.connection")
    assert [made[name] for name in names] == ["all", True, 1]


def _known_to_the_client() -> set[str]:
    folder = Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs"
    library = next(folder.glob("librdkafka-*.so*"))
    shown = subprocess.run(
        [sys.executable, "-c", SHOW, str(library)], capture_output=True, text=True, check=True
    )
    names = {row.split("|")[0].strip() for row in shown.stdout.splitlines() if "|" in row}
    assert len(names) > 150
    return names
