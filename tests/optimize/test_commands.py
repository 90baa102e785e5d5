"""The commands that only tell, on tables of a real catalog: what they say is right, and they change
nothing."""

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lake.catalog_client import CatalogClient
from lake.errors import NotFoundError, PrerequisiteError
from lake.storage import local_path, open_storage
from optimize.__main__ import app
from optimize.leader import leader_lease
from optimize.printing import console
from tests.optimize.support.live_files import live_files
from tests.optimize.support.maintained import maintenance
from tests.optimize.support.small_files import SmallFiles, this_hour
from tests.optimize.test_rounds import Damaging
from tests.stack.support.waiting import fresh

pytestmark = pytest.mark.stack

Say = Callable[..., str]
LONG_AGO_S = (datetime.now(UTC) - timedelta(days=30)).timestamp()


@pytest.fixture
def say(catalog: CatalogClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Say:
    """`say("plan", ...)`: what the command prints, on lines as long as they are."""
    for name, value in {"FIRN_OPTIMIZE_CATALOG__URI": catalog.uri, "FIRN_CONFIG": ""}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(console, "width", 250)
    # Logs of this process would go to the runner's stderr, also after it is closed.
    monkeypatch.setattr("optimize.__main__.configure_logs", lambda _: None)

    def run(*arguments: str) -> str:
        result = CliRunner().invoke(app, arguments)
        if result.exception is not None:
            raise result.exception
        return result.output

    return run


@pytest.fixture
def table(catalog: CatalogClient) -> SmallFiles:
    """One day's retention: two days ago two files, three hours ago four, and one that nobody refers to."""
    table = SmallFiles(catalog, open_storage(), fresh("told"), properties={"firn.retention": "1d"})
    table.append(this_hour() - 48, 10, times=2)
    table.append(this_hour() - 3, 10, times=4)
    orphan = local_path(table.state.location) / "data/left-behind.parquet"
    orphan.write_bytes(b"x" * 2**20)
    os.utime(orphan, (LONG_AGO_S, LONG_AGO_S))
    return table


def test_plan_and_explain_tell_what_the_next_round_does(say: Say, table: SmallFiles) -> None:
    """Two hours, six files into two; explain says the same of each hour, and why the table is as it is."""
    (row,) = [
        line for line in say("plan", "--table", str(table.name)).splitlines() if str(table.name) in line
    ]
    assert [cell.strip() for cell in row.strip("│").split("│")][2:5] == ["2", "6", "2"]
    told = say("explain", str(table.name))
    assert told.startswith(f"{table.name}: never optimized")
    assert "4 files" in told
    assert "due: 2 files into 1 by arrow" in told
    with pytest.raises(NotFoundError, match="there is no table"):
        say("explain", "nobody.logs")


def test_dry_runs_tell_what_would_go_and_nothing_goes(
    say: Say, table: SmallFiles, catalog: CatalogClient
) -> None:
    """Rows, files, bytes and the oldest row that retention would take; the orphan; no table that was just
    dropped. All of it is still there afterwards."""
    oldest = f"{datetime.fromtimestamp((this_hour() - 48) * 3_600, UTC):%Y-%m-%d %H}:"
    told = say("retention", "--dry-run", "--table", str(table.name))
    assert told.startswith(f"{table.name}: 20 rows in 2 files, 0.0 MiB, the oldest row of {oldest}")
    told = say("orphan-files", "--table", str(table.name))
    assert f"{table.name}: 1 of " in told
    assert "left-behind.parquet" in told
    assert live_files(catalog, table.storage, table.name) == {this_hour() - 48: 2, this_hour() - 3: 4}
    assert (local_path(table.state.location) / "data/left-behind.parquet").exists()
    catalog.drop_table(table.name, purge=True)
    assert str(table.name) not in say("purge", "--dry-run")  # its three days are not over
    assert local_path(table.state.location).exists()


def test_status_names_leader_and_paused_tables_and_resume_ends_a_pause(
    say: Say, table: SmallFiles, catalog: CatalogClient
) -> None:
    """A table whose merge was refused stands in the status with its reason until it is resumed; beside a
    leader the commands that change give way."""
    maintenance(catalog, [table.name], storage=Damaging()).run()
    assert f"{table.name}: paused after 1 failure:" in say("status")
    say("resume", str(table.name))
    assert str(table.name) not in say("status")
    assert "leader: nobody" in say("status")
    with leader_lease(catalog, 60.0) as leader:
        leader.take()
        assert f"leader: {leader._holder}" in say("status")


def test_commands_that_change_give_way_to_the_leader(
    say: Say, table: SmallFiles, catalog: CatalogClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While another process leads, retention is refused and changes nothing; after that it takes what the dry
    run told."""
    monkeypatch.setenv("FIRN_OPTIMIZE_LEASE_S", "1")
    with leader_lease(catalog, 60.0) as leader:
        leader.take()
        with pytest.raises(PrerequisiteError, match="another process leads"):
            say("retention", "--table", str(table.name))
        assert live_files(catalog, table.storage, table.name) == {this_hour() - 48: 2, this_hour() - 3: 4}
    assert "20 rows in 2 files" in say("retention", "--table", str(table.name))
    assert live_files(catalog, table.storage, table.name) == {this_hour() - 3: 4}
