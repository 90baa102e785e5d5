"""`explain-message` tells where a message goes, what becomes of it, and why."""

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from ingest.__main__ import app

RUNNER = CliRunner()


@pytest.fixture(autouse=True)
def _settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    toml = tmp_path / "firn.toml"
    toml.write_text(
        '[[ingest.topics]]\nname = "syslog"\ntenant = ["header:tenant", "const:ops"]\nstream = '
        '["const:hosts"]\ntime_zone = "Europe/Berlin"\n'
    )
    monkeypatch.setenv("FIRN_CONFIG", str(toml))


def _explained(body: bytes, *options: str) -> dict[str, Any]:
    result = RUNNER.invoke(
        app, ["explain-message", "--json", "--timestamp-ms", "1795210000000", *options], input=body
    )
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.output)
    return found


def test_tenant_table_format_and_time_are_told_with_their_reasons() -> None:
    """The rule that gave the tenant, the format, the field of the time, and every column with its type."""
    found = _explained(b"<34>Nov 20 22:00:00 web su: hi")
    told = (found["tenant"], found["tenant_why"], found["table"], found["stream_why"], found["read_as"])
    assert told == ("ops", "rule const:ops", "ops.hosts", "rule const:hosts", "syslog (RFC 3164)")
    (record,) = found["records"]
    assert (record["timestamp"], record["timestamp_why"]) == ("2026-11-20T21:00:00+00:00", "field /timestamp")
    assert {column["name"]: (column["kind"], column["value"]) for column in record["columns"]}[
        "severity"
    ] == ("string", "crit")


def test_batches_errors_and_dead_letters_are_shown() -> None:
    """Each record of a batch is told by itself."""
    found = _explained(b'{"_offset":1}\n{"broken\n{"a":2}', "--header", "tenant=acme")
    assert (found["tenant"], found["read_as"]) == ("acme", "NDJSON: 3 records")
    first, second, third = found["records"]
    assert [error["reason"] for error in first["errors"]] == ["reserved_name", "missing_timestamp"]
    assert second["rejected"].startswith("undecodable")
    assert third["columns"] == [{"name": "a", "kind": "string", "value": "2", "path": "/a"}]


def test_a_message_without_a_tenant_says_which_rules_were_tried() -> None:
    """A topic that is not in the settings has the defaults; what no rule routes becomes a dead letter."""
    found = _explained(b'{"a":1}', "--topic", "other")
    assert found["tenant"] is None
    assert found["rejected"].startswith("tenant_missing")
    assert "header:tenant, field:tenant" in found["tenant_why"]


def test_the_table_for_people_holds_the_same() -> None:
    """Without --json the explanation is a table, and nothing in a value can break it."""
    result = RUNNER.invoke(
        app, ["explain-message"], input=b'{"time":"2020-01-01T00:00:00Z","msg":"[bold]x","s":"\\ud800"}'
    )
    assert result.exit_code == 0, result.output
    assert "too_late" in result.output
    shown = RUNNER.invoke(app, ["explain-message"], input=b'{"msg":"[bold]x"}')
    assert "[bold]x" in shown.output
