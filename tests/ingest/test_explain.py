"""`explain-message` tells where a message goes, what becomes of it, and why."""

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from ingest.cli.program import app
from tests.ingest.support.change_messages import debezium, key_of

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


CHANGES = """
[[ingest.topics]]
name = "orders"
tenant = ["const:shop"]
stream = ["const:orders"]
changes = { order_by = "position" }

[[ingest.topics]]
name = "history"
tenant = ["const:shop"]
changes = { mode = "history", format = "keyed_json" }

[[ingest.topics]]
name = "forgotten"
tenant = ["const:shop"]
changes = { mode = "delete_only", format = "keyed_json" }
"""


@pytest.fixture
def change_topics(tmp_path: Any) -> None:
    (tmp_path / "firn.toml").write_text(CHANGES)


@pytest.mark.usefixtures("change_topics")
def test_a_change_is_told_with_its_key_and_what_it_does() -> None:
    """Mode, operation, key, position, the typed row, and the effect on the table."""
    body = debezium("u", None, {"id": 7, "customer": "Ada"}, lsn=12, ts_ms=1_795_000_000_000)
    found = _explained(body, "--topic", "orders", "--key", key_of(7).decode())
    assert (found["table"], found["read_as"], found["records"]) == ("shop.orders", "a change, debezium", [])
    change = found["change"]
    assert (change["mode"], change["op"], change["key"]) == ("upsert", "update", {"id": 7})
    assert change["position"] == f"{12:020}"
    assert change["effect"] == "the row of its key, unless the row is newer by its position"
    assert change["row"][0] == {"name": "id", "kind": "long", "value": 7}


@pytest.mark.usefixtures("change_topics")
def test_what_a_mode_passes_over_is_told() -> None:
    """A message without a value is a delete of its key; what has no key becomes a dead letter."""
    effects = {
        topic: _explained(body, "--topic", topic, "--key", "k")["change"]["effect"]
        for topic, body in (("history", b""), ("forgotten", b'{"a":1}'))
    }
    assert effects == {
        "history": "a row more, with the _op delete",
        "forgotten": "none: all but deletes are passed over",
    }
    removed = _explained(b"", "--topic", "forgotten", "--key", "k")["change"]
    assert removed["effect"] == "removes the row of its key, if there is one"
    refused = _explained(b'{"a":1}', "--topic", "forgotten")
    assert (refused["rejected"].split(":")[0], refused["change"]) == ("key_missing", None)
    heartbeat = _explained(b'{"ts_ms":1}', "--topic", "orders")["change"]
    assert heartbeat["effect"] == "none: it is no change of a row (heartbeat)"
    shown = RUNNER.invoke(app, ["explain-message", "--topic", "history", "--key", "[k]"], input=b'{"a":1}')
    assert "with the _op update" in shown.output
