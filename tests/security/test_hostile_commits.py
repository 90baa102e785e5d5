"""Commits by a hostile writer that name files of others, outside paths, links, what is huge and what never
ends: refused, nothing read beyond a bound, nothing deleted. Seeded; FIRN_SECURITY_COMMITS says how many."""

import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from lake.errors import FirnError
from lake.storage import local_path
from lake.table_files import METADATA_BYTES_MAX
from lake.table_version import Manifests, load_version
from optimize.deletions import DeletionQueue
from optimize.erased_version import reached_files
from optimize.orphan_files import live_files
from optimize.snapshots import unreachable_files
from optimize.table_view import TableView as MaintainedTable
from query.files.file_cache import FileCache
from query.files.file_index import FileIndex
from query.model.table_view import view_of
from tests.query.support.log_table import LogTable
from tests.security.support.hostile_tables import (
    IN_REQUEST,
    ROUTES,
    SECRET,
    Hostile,
    Watched,
    craft,
    foreign_uris,
    hostile_files,
    loaded,
    send,
    start_hostile,
)

pytestmark = [pytest.mark.stack, pytest.mark.finding(2)]
COMMITS = int(os.environ.get("FIRN_SECURITY_COMMITS", "75"))
GOOD_EVERY = max(10, COMMITS // 15)
SEED = int(os.environ.get("FIRN_TEST_SEED", "20"))
# Of a commit, all it makes the catalog read: far less than what the hostile files hold, or would never end to
# hold.
READ_BYTES_PER_COMMIT = 4 * 1024 * 1024
GROWTH_BYTES_MAX = 400 * 1024 * 1024


if COMMITS > 1_000:
    pytestmark.append(pytest.mark.timeout(3_600))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hostile]:
    """A catalog of this module's own, with the tables of `a` and `b`."""
    made = start_hostile(tmp_path_factory.mktemp("hostile"))
    yield made
    made.server.stop()


class OneTable:
    """A catalog that answers with metadata as a hostile commit would have made it."""

    def __init__(self, metadata: dict[str, Any]) -> None:
        self._metadata = metadata

    def load_table(self, _: object) -> dict[str, Any]:
        return {"metadata": self._metadata}


def everything_by_search(metadata: dict[str, Any], storage: Watched, table: LogTable, folder: Path) -> None:
    """What a search in process does until it opens the files."""
    view = view_of(table.id, table.name, metadata)
    files = FileIndex(storage).files(view)
    FileCache(storage, folder, 10**9).local_paths([file.uri for file in files.files], view.table_location)
    if files.has_deletes:
        raise FirnError("Trino's to read, to which no other room leads")


def everything_by_maintenance(metadata: dict[str, Any], storage: Watched, table: LogTable, _: Path) -> None:
    """What merges, expiry and the search for orphans read before they queue or delete."""
    view = MaintainedTable(loaded(metadata, storage, table), metadata, storage)
    view.partitions()
    unreachable_files(view, [s["snapshot-id"] for s in metadata["snapshots"][:-1]])
    live_files(view)


def everything_by_erasure(metadata: dict[str, Any], storage: Watched, table: LogTable, folder: Path) -> None:
    """What an erasure reads before it writes, queues and deletes."""
    manifests = Manifests(storage)
    version = load_version(OneTable(metadata), manifests, table.name)  # type: ignore[arg-type]
    assert version is not None
    reached_files(manifests, version)
    uris = [*version.data, *(entry.file.uri for entry in version.deletes)]
    FileCache(storage, folder, 10**9).local_paths(uris, version.state.table_location)


READERS: tuple[Callable[[dict[str, Any], Watched, LogTable, Path], None], ...] = (
    everything_by_search,
    everything_by_maintenance,
    everything_by_erasure,
)


def reads_of(world: Hostile) -> int:
    """Bytes that the catalog has read so far, from disks and pipes alike."""
    assert world.server.process is not None
    return int(psutil.Process(world.server.process.pid).io_counters().read_chars)


def memory_of(world: Hostile) -> int:
    """The most memory the catalog ever had."""
    assert world.server.process is not None
    line = next(
        line
        for line in Path(f"/proc/{world.server.process.pid}/status").read_text().splitlines()
        if line.startswith("VmHWM")
    )
    return int(line.split()[1]) * 1024


def test_hostile_commits_are_refused_and_touch_nothing(
    world: Hostile, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """However a commit names what is not its table's, the catalog refuses it, and rooms that meet it all the
    same stop before they read or delete."""
    rng = random.Random(SEED)
    foreign, own = foreign_uris(world), hostile_files(world)
    before, theirs_before = world.files(), world.metadata(world.theirs)
    read_before, memory_before = reads_of(world), memory_of(world)
    storage, refused, good, read_by_rooms = Watched(), Counter[str](), 0, 0
    slowest_s = 0.0
    with world.http("mine") as client:
        for at in range(COMMITS):
            if (
                at % GOOD_EVERY == GOOD_EVERY - 1
            ):  # the same commit with nothing wrong in it: the refusals are for what the others name
                status, answer = send(client, rng.choice(ROUTES), craft(world, "good", "", rng).updates)
                assert status in (200, 204), answer
                good += 1
                continue
            layer = rng.choice((*IN_REQUEST, "manifest", "data file", "delete file"))
            # A statistics file is only named here, and a data file's content nobody reads with a key; links
            # are refused in data files as well.
            uri = rng.choice(
                foreign
                if layer.endswith("statistics")
                else foreign + own
                if "file" not in layer
                else [*foreign, *own[:4]]
            )
            crafted = craft(world, layer, uri, rng)
            started_s = time.process_time()
            status, answer = send(client, rng.choice(ROUTES), crafted.updates)
            slowest_s = max(slowest_s, time.process_time() - started_s)
            assert status in (400, 403), (layer, uri, status, answer)
            assert SECRET not in answer
            refused[layer] += 1
            if "statistics" not in layer and layer != "manifests" and at % 3 == 0:
                for reader in READERS:
                    read_by_rooms += 1
                    with pytest.raises(FirnError):
                        reader(crafted.metadata, storage, world.mine, tmp_path)
    assert storage.deleted == []
    inside = world.state(world.mine).location + "/metadata/"
    assert all(
        uri.startswith(inside) and size <= METADATA_BYTES_MAX for uri, size in storage.read_bytes.items()
    )
    assert world.files() == before
    assert world.metadata(world.theirs) == theirs_before
    read, grown = reads_of(world) - read_before, memory_of(world) - memory_before
    assert read < COMMITS * READ_BYTES_PER_COMMIT, f"{read:,} bytes"
    assert grown < GROWTH_BYTES_MAX, f"{grown:,} bytes"
    record_property("refused", dict(refused))
    record_property(
        "figures",
        f"{sum(refused.values())} refused, {good} good, {read_by_rooms} readings by rooms, {read:,} B read, "
        f"{grown:,} B grown",
    )
    print(
        f"\n{sum(refused.values())} refused {dict(refused)}, {good} good, {read_by_rooms} readings, {read:,} "
        f"bytes read, {grown:,} bytes of memory"
    )


def test_files_of_others_are_neither_queued_nor_deleted(world: Hostile) -> None:
    """A room that was deceived queues files of others under the attacker's table: the catalog refuses each,
    and what was queued before is left."""
    before = world.files()
    uuid, other = world.state(world.mine).uuid, world.state(world.theirs)
    own = f"{world.state(world.mine).location}/data/0/mine.parquet"
    world.storage.write(own, b"mine")
    link = f"{world.state(world.mine).location}/linked"
    local_path(link).symlink_to(local_path(f"{other.location}/metadata"))
    theirs = [str(s["manifest-list"]) for s in world.metadata(world.theirs)["snapshots"]]
    linked = [f"{link}/{uri.rsplit('/', 1)[1]}" for uri in theirs]
    uris = [
        uri
        for uri in foreign_uris(world)
        if uri.startswith(f"{world.server.warehouse}/")
        and not any(odd in uri for odd in ("..", "/./", "\x00"))
    ]
    with world.http("room") as client:
        entries = [
            {"location": uri, "record": {"table": "a.logs", "table-uuid": uuid}}
            for uri in [*uris, own, *linked]
        ]
        answer = client.post("/firn/v1/deletions", json={"deletions": [*entries, {"location": theirs[0]}]})
        assert answer.status_code == 200, answer.text
        assert set(uris) <= set(answer.json()["refused"])
        assert theirs[0] in answer.json()["refused"]
        assert not {own, *linked} & set(answer.json()["refused"])
    queue = DeletionQueue(world.mine.catalog)
    assert queue.delete_due(world.storage) == 1
    assert not local_path(own).exists()
    assert world.files() == before
    assert list(queue.due()) == []
