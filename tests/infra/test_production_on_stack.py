"""`python -m infra doctor --production` on the real services, which are as open as on anybody's own machine.
Of a Kafka with users: tests/security/test_secured_kafka.py, of S3: tests/contracts/test_storage.py."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from infra.__main__ import app
from infra.production import (
    callers,
    clocks,
    kafka_brokers,
    kafka_rights,
    kafka_transport,
    retention,
    storage,
    trino,
    versions,
)
from tests.stack.support.kafka_topics import KafkaTopics
from tests.stack.support.line import Line

pytestmark = [pytest.mark.stack, pytest.mark.timeout(300)]
WAREHOUSE = "s3://firn-warehouse/doctor"
MINUTES, GIVEN_S = 60, 30.0


def set_up(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    """Has the settings of this process be those of a stack."""
    monkeypatch.setenv("FIRN_CONFIG", "")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def test_an_open_stack_is_unsafe_by_each_of_its_faults(
    line: Line, kafka: KafkaTopics, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No keys, no retention, no TLS and no access lists of Kafka, a Trino that asks nobody, a folder that
    everybody reads; clocks and versions are well. As JSON, with exit code 1."""
    topic = kafka.topic()
    set_up(monkeypatch, line.stack.environment())
    tmp_path.chmod(0o755)
    monkeypatch.setenv("FIRN_CATALOG_WAREHOUSE", f"file://{tmp_path}")
    monkeypatch.setenv("FIRN_INGEST_TOPICS", json.dumps([{"name": topic, "tenant": ["field:tenant"]}]))
    done = CliRunner().invoke(app, ["doctor", "--production", "--json"])
    assert done.exit_code == 1, done.output
    told = json.loads(done.stdout)
    assert (told[0]["verdict"], told[-1]["verdict"]) == ("unsafe", "ok")
    found: dict[str, set[str]] = {}
    for each in told:
        found.setdefault(each["check"], set()).add(each["verdict"])
    unsafe = {name for name, verdicts in found.items() if "unsafe" in verdicts}
    assert {callers.NAME, retention.NAME, storage.NAME, kafka_rights.NAME, trino.NAME} <= unsafe
    assert found[kafka_transport.NAME] == {"warning"}
    assert found[kafka_brokers.NAME] == found[versions.NAME] == {"ok"}
    assert "ok" in found[clocks.NAME]
    assert "unsafe" not in found[clocks.NAME]
