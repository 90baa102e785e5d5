"""What the tools are opened with."""

from collections.abc import Mapping

import pytest
from typer.testing import CliRunner

from ingest import __main__ as program
from ingest.serve.tools import Tools
from lake.catalog_client import EXTRAS_PROPERTY, CatalogClient
from lake.clock import SystemClock
from lake.settings import IngestSettings, TopicSettings
from lake.storage import open_storage

FIRN, FOREIGN = {EXTRAS_PROPERTY: "1"}, dict[str, str]()


class Catalog(CatalogClient):
    """One that says this of itself."""

    def __init__(self, says: Mapping[str, str]) -> None:
        super().__init__("http://127.0.0.1:1")
        self.__dict__["config"] = says


@pytest.mark.parametrize(
    ("says", "control_uri", "is_catalog", "has_extras"),
    [
        pytest.param(FIRN, "", True, True, id="Firn's own"),
        pytest.param(FIRN, "http://127.0.0.1:2", True, True, id="Firn's own needs no other"),
        pytest.param(FOREIGN, "", True, False, id="another"),
        pytest.param(FOREIGN, "http://127.0.0.1:2", False, True, id="another with a control service"),
    ],
)
def test_tools_ask_whom_the_node_asks(
    says: Mapping[str, str], control_uri: str, is_catalog: bool, has_extras: bool
) -> None:
    """About leases and parked records; a control service serves nothing else, not even a configuration."""
    settings = IngestSettings.load(topics=(TopicSettings(name="t"),), control__uri=control_uri)
    tools = Tools(settings, Catalog(says), open_storage(), SystemClock())
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
