"""How brokers are reached: every setting in one place, contradictions told before anything is tried."""

from typing import Any

import pytest

from lake.errors import SettingsError
from lake.settings import IngestSettings
from lake.settings.kafka_options import RESERVED

PASSWORD = "correct-horse-battery-staple"
USER = {"sasl_username": "firn", "sasl_password": PASSWORD}
CLIENT = {
    "oauth_token_endpoint": "https://login.example.org/token",
    "oauth_client_id": "firn",
    "oauth_client_secret": PASSWORD,
}
SASL = {"security_protocol": "SASL_SSL"}


@pytest.fixture(autouse=True)
def no_settings_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRN_CONFIG", "")


def _load(**kafka: Any) -> IngestSettings:
    return IngestSettings.load(**{f"kafka__{name}": value for name, value in kafka.items()})


@pytest.mark.parametrize(
    "kafka",
    [
        {},
        {"security_protocol": "PLAINTEXT"},
        {"security_protocol": "SSL"},
        {"security_protocol": "SSL", "ssl_certificate": "c", "ssl_key": "k", "ssl_key_password": PASSWORD},
        {**SASL, "sasl_mechanism": "PLAIN", **USER, "ssl_ca": "/ca.pem"},
        {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-256", **USER},
        {**SASL, "sasl_mechanism": "SCRAM-SHA-512", **USER, "ssl_certificate": "c", "ssl_key": "k"},
        {**SASL, "sasl_mechanism": "OAUTHBEARER", **CLIENT, "oauth_scope": "kafka"},
        {**SASL, "sasl_mechanism": "OAUTHBEARER", "options": {"sasl.oauthbearer.config": "x"}},
        {"options": {"security.protocol": "sasl_ssl", "sasl.mechanisms": "GSSAPI"}},
        {**SASL, "sasl_mechanism": "PLAIN", "options": {"sasl.username": "u", "sasl.password": "p"}},
        {"options": {"client.id": "firn", "socket.keepalive.enable": "true", "client.rack": "a"}},
        {"security_protocol": "SSL", "ssl_certificate": "c", "options": {"ssl.key.pem": "x"}},
    ],
    ids=str,
)
def test_what_can_work_is_taken(kafka: dict[str, Any]) -> None:
    """Each mechanism, over TLS and without, by settings of their own and by options."""
    assert _load(**kafka).kafka.security_protocol == kafka.get("security_protocol")


@pytest.mark.parametrize(
    ("kafka", "told"),
    [
        ({"sasl_password": PASSWORD}, "sasl_password is of no use where security_protocol is PLAINTEXT"),
        ({"security_protocol": "SSL", **USER}, "sasl_username is of no use where security_protocol is SSL"),
        ({"oauth_scope": "x"}, "oauth_scope is of no use"),
        ({**SASL, **USER}, "security_protocol is SASL_SSL without sasl_mechanism"),
        ({**SASL, "sasl_mechanism": "PLAIN", "sasl_password": PASSWORD}, "PLAIN without sasl_username"),
        (
            {**SASL, "sasl_mechanism": "SCRAM-SHA-256", "sasl_username": "u"},
            "SCRAM-SHA-256 without sasl_password",
        ),
        (
            {**SASL, "sasl_mechanism": "OAUTHBEARER", **CLIENT, "oauth_token_endpoint": None},
            "OAUTHBEARER without oauth_token_endpoint",
        ),
        (
            {**SASL, "sasl_mechanism": "OAUTHBEARER", "oauth_token_endpoint": "https://x"},
            "OAUTHBEARER without oauth_client_id",
        ),
        (
            {**SASL, "sasl_mechanism": "OAUTHBEARER", **CLIENT, **USER},
            "sasl_username is of no use where sasl",
        ),
        (
            {**SASL, "sasl_mechanism": "PLAIN", **USER, "oauth_scope": "x"},
            "oauth_scope is of no use where sas",
        ),
        ({"ssl_ca": "/ca.pem"}, "ssl_ca is of no use where security_protocol is PLAINTEXT"),
        ({"security_protocol": "SSL", "ssl_certificate": "c"}, "ssl_certificate is given without ssl_key"),
        ({"security_protocol": "SSL", "ssl_key": "k"}, "ssl_key is given without ssl_certificate"),
        (
            {"security_protocol": "SSL", "ssl_key_password": PASSWORD},
            "ssl_key_password is given without ssl_key",
        ),
        ({"security_protocol": "TLS"}, "kafka.security_protocol"),
        ({**SASL, "sasl_mechanism": "GSSAPI"}, "kafka.sasl_mechanism"),
        (
            {**SASL, "sasl_mechanism": "PLAIN", **USER, "options": {"sasl.password": "p"}},
            "sasl_password and options.sasl.password are both given",
        ),
        (
            {"security_protocol": "SSL", "ssl_ca": "a", "options": {"ssl.ca.pem": "p"}},
            "ssl_ca and options.ssl.ca.pem are both given",
        ),
        ({"options": {"sasl.username": "u"}}, "sasl_username is of no use"),
    ],
    ids=str,
)
def test_what_cannot_work_is_told(kafka: dict[str, Any], told: str) -> None:
    """One sentence that names the setting, before any broker is asked; no secret is in it."""
    with pytest.raises(SettingsError) as caught:
        _load(**kafka)
    assert told in str(caught.value)
    assert PASSWORD not in f"{caught.value} {caught.value.__cause__}"


@pytest.mark.parametrize("name", [*(f"{each}x" if each.endswith(".") else each for each in RESERVED), "a_cb"])
def test_what_promises_stand_on_cannot_be_set(name: str) -> None:
    """By its name, with the reason."""
    with pytest.raises(SettingsError, match=f"{name} cannot be set: ."):
        _load(options={name: "x"})
