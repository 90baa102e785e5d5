"""Which tables are committed together, and in which order."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ingest.commit import commit_sending, committer
from ingest.commit.table_events import Compare
from ingest.commit.table_states import table_name
from ingest.model.link import Outcome, Settled, WrittenFlush
from lake.catalog_client import CommitResult, CommitStatus
from lake.commit import new_table_state
from lake.data_file import DataFile
from lake.day_counts import DayCount, day_counts
from lake.marks import Range
from lake.tenant import TableId, TenantId
from tests.ingest.support.node_world import PLACE, NodeWorld

TOGETHER = 5
TABLES = [TableId(TenantId(f"t{number:02}"), "logs") for number in range(12)]
MANY = [TableId(TenantId("many"), f"s{number:02}") for number in range(12)]
ROWS = 10


class Commits:
    """A node whose tables are all known, and a catalog that notes who is committed together. `fails`: tables
    whose commits fail, so often."""

    def __init__(self, folder: Path, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
        for module in (commit_sending, committer):
            monkeypatch.setattr(module, "BATCH_TABLES", TOGETHER)
        self.world = NodeWorld(folder, pool)
        self.together: list[list[str]] = []
        self.fails: dict[str, int] = {}
        self.compared = 0
        monkeypatch.setattr(self.world.client, "commit_all", self._commit_all)
        monkeypatch.setattr(self.world.client, "ping", lambda **_: None)
        lives = self.world.node_states.lives
        on = lives.on

        def noted(life: Any, event: Any, now_s: float) -> bool:
            self.compared += isinstance(event, Compare)
            return on(life, event, now_s)

        monkeypatch.setattr(lives, "on", noted)
        for table in (*TABLES, *MANY):
            name = table_name(table)
            lives[table].learn(new_table_state(name, table.tenant.name, table.stream, self.world.warehouse))

    def submit(self, *tables: TableId) -> None:
        """A worker hands a flush of each over."""
        states = self.world.node_states
        flushes = [
            WrittenFlush(
                table,
                states.view(table).uuid,
                {PLACE: Range(0, ROWS)},
                [DataFile(f"{states.view(table).location}/data/1.parquet", 490_000, ROWS, 1_000)],
                ROWS,
                {},
                value_bytes=700,
            )
            for table in tables
        ]
        self.world.node.committer.submit(0, flushes)

    def steps(self) -> list[TableId]:
        """Time goes on until all is settled; who was told to be done, in order."""
        for _ in range(100):
            if self.world.node.committer.is_idle:
                break
            self.world.steps(1)
        told = [message for _, message in self.world.messages if isinstance(message, Settled)]
        outcomes = [outcome for message in told for outcome in message.outcomes]
        assert {outcome for _, outcome, _ in outcomes} == {Outcome.DONE}
        return [table for table, _, _ in outcomes]

    def _commit_all(self, requests: Sequence[Mapping[str, Any]], **_: float) -> list[CommitResult]:
        names = [request["identifier"]["namespace"][0] for request in requests]
        self.together.append(names)
        return [self._result(name) for name in names]

    def _result(self, name: str) -> CommitResult:
        if self.fails.get(name, 0):
            self.fails[name] -= 1
            return CommitResult(CommitStatus.FAILED, "not now")
        return CommitResult(CommitStatus.COMMITTED)


@pytest.fixture
def commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Commits]:
    with ThreadPoolExecutor(1) as pool:
        yield Commits(tmp_path, pool, monkeypatch)


def test_tables_go_in_batches_in_their_order(commits: Commits) -> None:
    """Nobody is looked at again and again while others are committed."""
    commits.submit(*TABLES)
    assert commits.steps() == TABLES
    assert [len(names) for names in commits.together] == [5, 5, 2]
    assert commits.compared <= len(TABLES) + TOGETHER


def test_very_many_tables_of_one_tenant_hold_up_no_others(commits: Commits) -> None:
    """Where more are due than go together, each tenant's first goes before any tenant's second."""
    commits.submit(*MANY, *TABLES[:2])
    assert commits.steps() == [MANY[0], *TABLES[:2], *MANY[1:]]


def test_a_commit_counts_what_came_on_its_day(commits: Commits) -> None:
    """In the table itself, once, however often it is sent: nobody who is killed forgets it."""
    first, second = TABLES[:2]
    commits.fails[first.tenant.namespace] = 2
    commits.submit(first, second)
    commits.steps()
    for table in (first, second):
        known = commits.world.node_states.lives[table].known
        assert known is not None
        day = commits.world.clock.now().date().isoformat()
        assert day_counts(known.properties) == {day: DayCount(ROWS, 700)}


def test_a_table_that_fails_goes_alone_beside_the_others(commits: Commits) -> None:
    """It is tried again after a pause, and holds up none of them."""
    failing, *others = TABLES
    commits.fails[failing.tenant.namespace] = 2
    commits.submit(*TABLES)
    done = commits.steps()
    assert sorted(done) == sorted(TABLES)
    assert done[-1] == failing
    alone = [names for names in commits.together if failing.tenant.namespace in names]
    assert [len(names) for names in alone] == [5, 1, 1]
    assert done[:-1] == others
