"""Files that clients were made with, and whether they hold something else now."""

from pathlib import Path

import pytest

from ingest.kafka.credential_files import CredentialFiles
from ingest.kafka.kafka_reader import KafkaReader
from lake.settings import IngestSettings


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> IngestSettings:
    monkeypatch.setenv("FIRN_CONFIG", "")
    monkeypatch.delenv("FIRN_TLS_CA", raising=False)
    for name in ("password", "registry"):
        (tmp_path / name).write_text("first")
    return IngestSettings.load(
        kafka__security_protocol="SASL_PLAINTEXT",
        kafka__sasl_mechanism="PLAIN",
        kafka__sasl_username="firn",
        kafka__sasl_password_file=str(tmp_path / "password"),
        registry__user="firn",
        registry__password_file=str(tmp_path / "registry"),
    )


def test_new_content_is_seen_and_a_file_that_is_gone_is_not(settings: IngestSettings, tmp_path: Path) -> None:
    """A file that is replaced is gone for a moment, and may be written again with the same content."""
    password, files = tmp_path / "password", CredentialFiles(settings)
    password.unlink()
    assert files.changed() == []
    password.write_text("first")
    assert files.changed() == []
    password.write_text("second")
    assert files.changed() == [str(password)]
    assert CredentialFiles(settings).changed() == []
    (tmp_path / "registry").write_text("second")
    assert files.changed() == [str(password), str(tmp_path / "registry")]


def test_certificates_and_keys_are_files_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the settings, of the options, and the CA of all clients."""
    monkeypatch.setenv("FIRN_CONFIG", "")
    paths = {name: tmp_path / name for name in ("all.pem", "c.pem", "k.pem", "crl.pem")}
    for path in paths.values():
        path.write_text("first")
    monkeypatch.setenv("FIRN_TLS_CA", str(paths["all.pem"]))
    made = IngestSettings.load(
        kafka__security_protocol="SSL",
        kafka__ssl_certificate=str(paths["c.pem"]),
        kafka__ssl_key=str(paths["k.pem"]),
        kafka__options={"ssl.crl.location": str(paths["crl.pem"])},
    )
    files = CredentialFiles(made)
    for path in paths.values():
        path.write_text("second")
    assert files.changed() == sorted(map(str, paths.values()))


def test_a_tool_that_runs_for_long_asks_by_a_client_of_now(settings: IngestSettings, tmp_path: Path) -> None:
    """The client of a reader is made anew when a file has changed, and only then."""
    reader = KafkaReader(settings)
    first = reader._admin
    assert reader._admin is first
    (tmp_path / "password").write_text("second")
    second = reader._admin
    assert second is not first
    assert reader._admin is second
