"""What the tools are opened with."""

import pytest
from typer.testing import CliRunner

from ingest.cli import program
from ingest.serve.tools import Tools
from lake.clock import SystemClock
from lake.settings import IngestSettings, TopicSettings
from lake.storage import open_storage
from tests.lake.support.fake_catalog import FakeCatalog


@pytest.mark.parametrize(
    ("is_ours", "control_uri", "is_catalog", "has_extras"),
    [
        pytest.param(True, "", True, True, id="Firn's own"),
        pytest.param(True, "http://127.0.0.1:2", True, True, id="Firn's own needs no other"),
        pytest.param(False, "", True, False, id="another"),
        pytest.param(False, "http://127.0.0.1:2", False, True, id="another with a control service"),
    ],
)
def test_tools_ask_whom_the_node_asks(
    is_ours: bool, control_uri: str, is_catalog: bool, has_extras: bool
) -> None:
    """About leases and parked records; a control service serves nothing else, not even a configuration."""
    settings = IngestSettings.load(topics=(TopicSettings(name="t"),), control__uri=control_uri)
    tools = Tools(settings, FakeCatalog(has_extras=is_ours).client(), open_storage(), SystemClock())
    assert (tools.control is tools.catalog, tools.control.has_extras) == (is_catalog, has_extras)


def test_every_verb_keeps_logs_away_from_what_it_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that log only when something has to be tried again."""
    rooms = list[str]()
    monkeypatch.setattr(program, "configure_logs", rooms.append)
    for verb in (
        ["explain-message", "--help"],
        ["parked", "list", "--help"],
        ["backfill", "files", "--help"],
    ):
        assert CliRunner().invoke(program.app, verb).exit_code == 0
    assert rooms == ["ingest"] * 3
