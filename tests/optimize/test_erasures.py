"""Erasures that are asked for in the catalog's work list: exactly the rows that a request names go, whoever
dies meanwhile, and nothing of another table."""

import re
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from lake.catalog_client import CatalogClient
from lake.clock import SystemClock
from lake.deletes.dead_rows import DeleteFiles, load_dead_rows
from lake.erasure_work import (
    ANSWER_KEPT_MS,
    ANSWER_KIND,
    REQUEST_KIND,
    ErasureAnswer,
    ErasureRequest,
    ErasureWork,
    pack_rows,
)
from lake.errors import FirnError
from lake.extras_client import ExtrasClient, Task
from lake.storage import local_path, open_storage
from lake.table_version import Manifests, Version, load_version
from optimize.erase_rows import Tools
from optimize.erasures import Erasures
from tests.optimize.conftest import Optimizer
from tests.optimize.support.delete_files import add_delete_file, delete_positions
from tests.optimize.support.live_files import missing_files, offsets_of
from tests.optimize.support.maintained import FixedClock, utc
from tests.optimize.support.small_files import SmallFiles, this_hour
from tests.stack.support.waiting import fresh, wait_for

pytestmark = pytest.mark.stack
# Of files of ten rows each.
PLACES = [0, 3, 9]
ROUND = re.compile(r"\boptimize\.round\b")


def new_table(catalog: CatalogClient, files: int = 3) -> SmallFiles:
    table = SmallFiles(catalog, open_storage(), fresh("erased"))
    table.append(this_hour() - 3, 10, times=files)
    return table


def version_of(table: SmallFiles) -> Version:
    version = load_version(table.catalog, Manifests(table.storage), table.name)
    assert version is not None
    return version


def ask(table: SmallFiles, rows: dict[str, str] | None = None, **options: object) -> ErasureRequest:
    """Asks for three rows of each live file, or for others."""
    version = version_of(table)
    wanted = {uri: pack_rows(PLACES) for uri in version.data} if rows is None else rows
    request = ErasureRequest(fresh("r"), table.name, version.state.uuid, wanted, 3_600_000)
    request = replace(request, **options)  # type: ignore[arg-type]
    ErasureWork(table.catalog).ask(request)
    return request


def erasures(catalog: CatalogClient, work: ErasureWork | None = None) -> Erasures:
    return Erasures(Tools(catalog, open_storage(), SystemClock()), work or ErasureWork(catalog))


def answer_to(table: SmallFiles, request: ErasureRequest) -> ErasureAnswer:
    answer = ErasureWork(table.catalog).answer(request.id)
    assert answer is not None
    return answer


def left_of(files: int) -> list[int]:
    return [at for at in range(10 * files) if at % 10 not in PLACES]


def test_rows_that_are_asked_for_are_gone_and_one_snapshot_is_left(catalog: CatalogClient) -> None:
    """Marks and properties stay; a file of which all goes goes; what nobody reaches waits for its deletion;
    the request is off the list."""
    table = new_table(catalog)
    before, (first, *others) = table.reload(), version_of(table).data
    old = {str(s["manifest-list"]) for s in version_of(table).metadata["snapshots"]}
    whole = pq.read_table(local_path(first)).column("_offset").to_pylist()
    request = ask(table, {first: pack_rows(range(10)), **{uri: pack_rows(PLACES) for uri in others}})
    assert erasures(catalog).run() == 1
    answer, after = answer_to(table, request), table.reload()
    assert (answer.state, answer.problem, answer.rows) == ("done", None, 16)
    assert (answer.files_rewritten, answer.files_removed, answer.snapshots_expired) == (2, 1, 3)
    assert [s["snapshot-id"] for s in version_of(table).metadata["snapshots"]] == [answer.snapshot_id]
    assert sorted(offsets_of(table)) == [at for at in left_of(3) if at not in whole]
    assert (after.marks, after.properties) == (before.marks, before.properties)
    assert missing_files(catalog, table.storage, table.name) == []
    assert {first, *others} | old <= set(answer.queued)
    assert answer.files_queued == len(answer.queued)
    assert all(local_path(uri).exists() for uri in answer.queued)  # for an hour
    assert request.id not in [task.id.split(":")[1] for task in ErasureWork(catalog).requests()]
    assert erasures(catalog).run() == 0


def test_a_request_without_rows_only_takes_older_snapshots_away(catalog: CatalogClient) -> None:
    """They may reach files that are not live any more and hold such rows."""
    table = new_table(catalog)
    head, request = version_of(table).state.head, ask(table, {})
    erasures(catalog).run()
    answer = answer_to(table, request)
    assert (answer.snapshot_id, answer.snapshots_expired, answer.rows) == (head, 2, 0)
    assert [s["snapshot-id"] for s in version_of(table).metadata["snapshots"]] == [head]
    assert sorted(offsets_of(table)) == list(range(30))


def test_rows_that_were_deleted_before_do_not_come_back(catalog: CatalogClient) -> None:
    """Position deletes apply to the file that is written anew as well."""
    table = new_table(catalog, files=1)
    (uri,) = version_of(table).data
    delete_positions(table, this_hour() - 3, {uri: [1, 3]})
    ask(table)
    erasures(catalog).run()
    (left,) = version_of(table).data
    with local_path(left).open("rb") as file:
        assert pq.read_table(file).column("_offset").to_pylist() == [2, 4, 5, 6, 7, 8]


class Meddling(ErasureWork):
    """A work list during whose writing before the commit somebody deletes a row."""

    def __init__(self, table: SmallFiles, uri: str, row: int) -> None:
        super().__init__(table.catalog)
        self._table, self._uri, self._row = table, uri, row
        self.times = 0

    def save(self, answer: ErasureAnswer) -> int:
        if answer.snapshot_id is not None and not self.times:
            self.times += 1
            delete_positions(self._table, this_hour() - 3, {self._uri: [self._row]})
        return super().save(answer)


def test_rows_that_are_deleted_meanwhile_stay_deleted(catalog: CatalogClient) -> None:
    """The file is written once; the commit deletes the row in it. The deletes of the old file go with it."""
    table = new_table(catalog, files=1)
    (uri,) = version_of(table).data
    delete_positions(table, this_hour() - 3, {uri: [1]})
    ask(table)
    meddling = Meddling(table, uri, 5)
    erasures(catalog, meddling).run()
    assert meddling.times == 1
    version = version_of(table)
    ((left, entry),) = version.data.items()
    with local_path(left).open("rb") as file:
        offsets = pq.read_table(file).column("_offset").to_pylist()
    assert offsets == [2, 4, 5, 6, 7, 8]
    index = DeleteFiles.of(version.deletes)
    wanted = [(left, entry.sequence_number)]
    dead = load_dead_rows(table.storage, index, wanted, version.state.table_location)
    assert {offsets[at] for at in dead[left]} == {5}
    assert version.state.totals.position_deletes == sum(each.file.rows for each in version.deletes)


class Killed(BaseException):
    """As SIGKILL, which no handler of errors sees."""


class Dying(ErasureWork):
    """A work list whose writer dies at its `lives`-th writing, before or after it is done."""

    def __init__(self, catalog: CatalogClient, lives: int, *, after: bool) -> None:
        super().__init__(catalog)
        self._lives, self._after = lives, after

    def save(self, answer: ErasureAnswer) -> int:
        return self._until_dead(lambda: super(Dying, self).save(answer))

    def drop_request(self, request_id: str) -> None:
        self._until_dead(lambda: super(Dying, self).drop_request(request_id) or 0)

    def _until_dead(self, write: Callable[[], int]) -> int:
        self._lives -= 1
        if self._lives == 0 and not self._after:
            raise Killed
        done = write()
        if self._lives == 0:
            raise Killed
        return done


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_whoever_goes_on_after_a_kill_does_the_rest_and_counts_it_once(
    catalog: CatalogClient, after: bool
) -> None:
    """Killed at each writing in turn; nothing that was noted is left undeleted."""
    for lives in range(1, 20):
        table = new_table(catalog)
        old = set(version_of(table).data)
        request = ask(table)
        try:
            erasures(catalog, Dying(catalog, lives, after=after)).run()
        except Killed:
            erasures(catalog).run()
            is_dead = True
        else:
            is_dead = False
        answer = answer_to(table, request)
        assert (answer.state, answer.rows, answer.files_rewritten) == ("done", 9, 3), lives
        assert answer.snapshot_id == version_of(table).state.head
        assert old <= set(answer.queued)
        assert sorted(offsets_of(table)) == left_of(3)
        if not is_dead:
            break
    assert lives == 6  # begun, progress, before the commit, the answer, the request gone


def test_files_that_are_not_the_tables_are_left_alone(catalog: CatalogClient) -> None:
    """A request may name what it wants: only live files of its own table are opened, written and queued."""
    table, other = new_table(catalog), new_table(catalog)
    theirs = version_of(other).data
    request = ask(table, {uri: pack_rows(PLACES) for uri in (*theirs, "file:///etc/passwd", "s3://b/x")})
    stolen = ask(table, {uri: pack_rows(PLACES) for uri in theirs}, table_uuid=version_of(other).state.uuid)
    erasures(catalog).run()
    assert (answer_to(table, request).rows, answer_to(table, stolen).rows) == (0, 0)
    assert answer_to(table, stolen).snapshot_id is None
    assert not {*theirs, "file:///etc/passwd"} & set(answer_to(table, request).queued)
    for one in (table, other):
        assert sorted(offsets_of(one)) == list(range(30))


def test_a_link_out_of_the_tables_folder_is_not_followed(catalog: CatalogClient, tmp_path: Path) -> None:
    """The file it leads to is not read; the request fails with a sentence, and the table stays."""
    table = new_table(catalog, files=1)
    (uri,) = version_of(table).data
    real = tmp_path / "elsewhere.parquet"
    local_path(uri).rename(real)
    local_path(uri).symlink_to(real)
    request = ask(table)
    erasures(catalog).run()
    answer = answer_to(table, request)
    assert answer.state == "failed"
    assert "is no ordinary file" in str(answer.problem)
    assert list(version_of(table).data) == [uri]
    assert real.exists()


def test_one_request_that_fails_ends_no_other(catalog: CatalogClient) -> None:
    """One that is none, one that names rows that are not there, one for a table that is gone, one with
    equality deletes: each is answered, and so is the next."""
    beyond, gone, deletes, good = (new_table(catalog) for _ in range(4))
    broken = Task(f"{REQUEST_KIND}:0-{fresh('b')}", REQUEST_KIND, "asked", 0, {"table": "x"})
    ExtrasClient(catalog).save_tasks([broken])
    past_the_end = ask(beyond, {uri: pack_rows([10]) for uri in version_of(beyond).data})
    of_gone = ask(gone)
    catalog.drop_table(gone.name)
    add_delete_file(deletes, this_hour() - 3, content=2)
    with_deletes, last = ask(deletes), ask(good)
    erasures(catalog).run()
    unread = ErasureWork(catalog).answer(broken.id.split(":")[1])
    assert unread is not None
    assert (unread.state, "no request" in str(unread.problem)) == ("failed", True)
    assert "which has 10 rows" in str(answer_to(beyond, past_the_end).problem)
    assert answer_to(gone, of_gone).state == "done"
    assert "equality deletes" in str(answer_to(deletes, with_deletes).problem)
    assert answer_to(good, last).rows == 9
    assert sorted(offsets_of(beyond)) == list(range(30))
    assert list(ErasureWork(catalog).requests()) == []


def test_a_leader_whose_lease_is_gone_changes_nothing(catalog: CatalogClient) -> None:
    """The catalog refuses what it writes; the request stays for who leads now."""
    table = new_table(catalog)
    request = ask(table)
    extras = ExtrasClient(catalog)
    name = fresh("lease")
    stale = extras.acquire_lease(name, "first", 60.0)
    extras.release_lease(name, stale)
    extras.release_lease(name, extras.acquire_lease(name, "second", 60.0))
    lease = f"{name}:{stale}"
    with closing(CatalogClient(catalog.uri, lease=lease)) as client, pytest.raises(FirnError):
        Erasures.of(client, table.storage, SystemClock(), lease=lease).run()
    assert sorted(offsets_of(table)) == list(range(30))
    assert erasures(catalog).run() == 1
    assert answer_to(table, request).rows == 9


def test_answers_that_nobody_takes_in_go_after_a_week(catalog: CatalogClient) -> None:
    """With the next request that is carried out."""
    table = new_table(catalog)
    request = ask(table, {})
    erasures(catalog).run()
    later = FixedClock(utc(2200, 1, 1))
    again = ask(table, {})
    Erasures(Tools(catalog, table.storage, later), ErasureWork(catalog)).run()
    assert ANSWER_KEPT_MS < 8 * 86_400_000
    kept = [task.id for task in ExtrasClient(catalog).tasks(ANSWER_KIND)]
    assert not [each for each in kept if each.endswith((request.id, again.id))]


def test_the_optimizer_carries_requests_out_beside_its_rounds(
    catalog: CatalogClient, optimizer_alone: Callable[..., Optimizer]
) -> None:
    """As a process of its own, promptly, also between two rounds an hour apart; one round alone does too; for
    tables that were not named it does not."""
    table, other = new_table(catalog, files=1), new_table(catalog, files=1)
    request = ask(table)
    optimizer = optimizer_alone(lease_s=2)  # it is killed: the next to lead waits no longer
    optimizer.run("run", "--once", "--table", str(other.name))
    assert ErasureWork(catalog).answer(request.id) is None
    optimizer.run("run", "--once", "--table", str(table.name))
    assert answer_to(table, request).rows == 3
    rounds = len(ROUND.findall(optimizer.log()))
    optimizer.start("run", "--table", str(other.name))
    wait_for(lambda: len(ROUND.findall(optimizer.log())) > rounds, 60.0, "the end of the first round")
    late = ask(other)
    wait_for(lambda: ErasureWork(catalog).answer(late.id), 20.0, "the optimizer taking it up")
    wait_for(lambda: answer_to(other, late).state == "done", 20.0, "its end")
    assert sorted(offsets_of(other)) == left_of(1)
