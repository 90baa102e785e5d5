"""Which snapshots expire, and what nobody reaches then."""

import random
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lake.catalog_client import TableName
from lake.commit import new_table_state
from lake.data_file import POSITION_DELETES, PUFFIN, DataFile
from lake.expiry import expirable
from lake.manifest import ManifestEntry, Status
from lake.manifest_list import DATA_MANIFEST, DELETE_MANIFEST, ManifestFile, ManifestList
from lake.manifest_records import Reference
from lake.storage import open_storage
from optimize.snapshots import unreachable_files
from optimize.table_view import TableView

DAY_MS = 86_400_000


def metadata(count: int, refs: dict[str, int] | None = None, *, step_ms: int = 1_000) -> dict[str, Any]:
    snapshots = [
        {"snapshot-id": at, "sequence-number": at, "timestamp-ms": at * step_ms, "manifest-list": f"{at}"}
        for at in range(1, count + 1)
    ]
    named = {"main": {"snapshot-id": count, "type": "branch"}} | {
        name: {"snapshot-id": at, "type": "tag"} for name, at in (refs or {}).items()
    }
    return {"snapshots": snapshots, "current-snapshot-id": count, "refs": named}


def test_ten_newest_snapshots_stay() -> None:
    """Of 25 snapshots the 15 oldest go, the oldest first."""
    assert expirable(metadata(25), keep=10, age_max_ms=DAY_MS, now_ms=30_000) == tuple(range(1, 16))


def test_commit_that_adds_a_snapshot_leaves_room_for_it() -> None:
    """With the one that the same commit adds there are ten."""
    assert expirable(metadata(10), keep=10, age_max_ms=DAY_MS, now_ms=30_000, adding=1) == (1,)
    assert expirable(metadata(10), keep=10, age_max_ms=DAY_MS, now_ms=30_000) == ()


def test_tagged_snapshots_stay_however_old() -> None:
    """A tag holds its snapshot, and takes one of the ten places."""
    gone = expirable(metadata(25, {"audit": 3}), keep=10, age_max_ms=DAY_MS, now_ms=30_000)
    assert 3 not in gone
    assert len(gone) == 15
    assert expirable(metadata(25, {"audit": 3}), keep=1, age_max_ms=DAY_MS, now_ms=30_000) == (
        1,
        2,
        *range(4, 25),
    )


def test_old_snapshots_expire_but_the_head_stays() -> None:
    """Beyond the age limit only what refs name stays, also when it is few."""
    assert expirable(metadata(4), keep=10, age_max_ms=DAY_MS, now_ms=10 * DAY_MS) == (1, 2, 3)


@given(
    st.integers(1, 40),
    st.dictionaries(st.text(min_size=1, max_size=3), st.integers(1, 40), max_size=6),
    st.integers(1, 12),
    st.integers(0, 1),
)
def test_what_refs_name_stays_and_the_rest_is_bounded(
    count: int, refs: dict[str, int], keep: int, adding: int
) -> None:
    """Whatever branches and tags there are: none of their snapshots goes, and others stay only within the
    limit, the newest of them."""
    refs = {name: at for name, at in refs.items() if at <= count and name != "main"}
    gone = expirable(metadata(count, refs), keep=keep, age_max_ms=DAY_MS, now_ms=50_000, adding=adding)
    named = {*refs.values(), count}
    assert not named & set(gone)
    stay = set(range(1, count + 1)) - set(gone)
    assert len(stay) + adding <= max(keep, len(named) + adding)
    free = sorted(stay - named)
    assert not free or not [at for at in gone if at > free[0]]


def test_the_nearest_ancestor_with_marks_stays() -> None:
    """Whoever made the newest snapshots did not repeat the marks: the one that does shows whether the table
    was moved back."""
    table = metadata(25)
    for snapshot in table["snapshots"]:
        snapshot["parent-snapshot-id"] = snapshot["snapshot-id"] - 1
        snapshot["summary"] = {"firn.offsets": "{}"} if snapshot["snapshot-id"] <= 20 else {}
    gone = expirable(table, keep=3, age_max_ms=None, now_ms=0)
    assert gone == tuple(range(1, 20))
    table["snapshots"][-1]["summary"] = {"firn.offsets": "{}"}
    assert expirable(table, keep=3, age_max_ms=None, now_ms=0) == tuple(range(1, 23))


def manifest(uri: str, snapshot_id: int, hour: int) -> ManifestFile:
    bound = hour.to_bytes(4, "little")
    summary = {"contains_null": False, "lower_bound": bound, "upper_bound": bound}
    return ManifestFile(uri, 1, 0, DELETE_MANIFEST, 1, 1, snapshot_id, 1, 0, 0, 1, 0, 0, [summary])


def test_a_file_of_vectors_stays_while_one_of_them_is_live() -> None:
    """The vectors of one Puffin file are of several hours: the one of another hour is looked for as well."""
    shared, other = (
        DataFile(uri, hour, 1, 1, POSITION_DELETES, file_format=PUFFIN, content_offset=offset)
        for uri, hour, offset in (("shared.puffin", 1, 4), ("other.puffin", 2, 4))
    )
    entries = {
        "old": ManifestEntry(Status.ADDED, replace(shared, hour=2, content_offset=40)),
        "kept": ManifestEntry(Status.ADDED, shared),
        "new": ManifestEntry(Status.ADDED, other),
    }
    state = new_table_state(TableName("a", "logs"), "a", "logs", "file:///w")
    kept, new = manifest("kept", 1, 1), manifest("new", 2, 2)
    snapshots = [
        {"snapshot-id": at, "timestamp-ms": at, "manifest-list": f"list-{at}", "sequence-number": at}
        for at in (1, 2)
    ]
    view = TableView(
        replace(state, head=2, manifests=ManifestList.of([new, kept])),
        {"snapshots": snapshots},
        open_storage(),
        known={uri: (entry,) for uri, entry in entries.items()},
        lists={"list-1": [kept, manifest("old", 1, 2)]},
    )
    assert unreachable_files(view, [1]) == ["list-1", "old"]


HOURS, LOCATION = 4, "file:///w/a/logs"


@dataclass
class TableHistory:
    """Commits to a table, each on top of the last, as any engine may make them. `entries`: by manifest."""

    draws: random.Random
    entries: dict[str, list[Reference]] = field(default_factory=dict)
    snapshots: list[list[ManifestFile]] = field(default_factory=list)

    def file(self) -> Reference:
        return Reference(f"{LOCATION}/data/{self.draws.getrandbits(60):x}", self.draws.randrange(HOURS))

    def append(self) -> None:
        """A manifest with a new file or two beside the others."""
        added = [self.file() for _ in range(self.draws.randint(1, 2))]
        self.commit(self.snapshots[-1] if self.snapshots else [], added)

    def rewrite(self) -> None:
        """Some manifests become one: of their files some go, and one comes for them."""
        before = [m for m in self.snapshots[-1] if m.live_files]
        some = self.draws.sample(before, self.draws.randint(1, len(before)))
        live = [each for m in some for each in self.entries[m.uri] if each.is_live]
        gone = set(self.draws.sample(live, self.draws.randint(0, len(live))))
        named = [each._replace(is_live=each not in gone) for each in live]
        self.commit([m for m in before if m not in some], [*named, *([self.file()] if gone else [])])

    def lie(self) -> None:
        """Files that were taken away come again, or live ones are said to be gone that another manifest goes
        on listing: what no engine should do."""
        every = [each for named in self.entries.values() for each in named]
        some = self.draws.sample(every, min(3, len(every)))
        is_live = self.draws.random() < 0.5
        self.commit(self.snapshots[-1], [each._replace(is_live=is_live) for each in some])

    def commit(self, kept: Iterable[ManifestFile], named: list[Reference]) -> None:
        number = len(self.snapshots) + 1
        uri, hours = (
            f"manifest-{number}",
            [each.partition for each in named if isinstance(each.partition, int)],
        )
        gone = sum(not each.is_live for each in named)
        low, high = (at.to_bytes(4, "little") for at in (min(hours), max(hours)))
        summary = {"contains_null": False, "lower_bound": low, "upper_bound": high}
        counts = (len(named) - gone, 0, gone, 0, 0, 0)
        line = ManifestFile(uri, 1, 0, DATA_MANIFEST, number, 1, number, *counts, [summary])
        self.entries[uri] = named
        self.snapshots.append([*kept, line])

    def view(self, *, is_line: bool) -> TableView:
        """The table, of which nothing has to be read any more. `is_line`: each snapshot names its parent."""
        state = new_table_state(TableName("a", "logs"), "a", "logs", "file:///w")
        numbers = range(1, len(self.snapshots) + 1)
        told = [
            {"snapshot-id": at, "timestamp-ms": at, "manifest-list": f"list-{at}", "sequence-number": at}
            | ({"parent-snapshot-id": at - 1} if is_line and at > 1 else {})
            for at in numbers
        ]
        return TableView(
            replace(
                state,
                location=LOCATION,
                head=len(self.snapshots),
                manifests=ManifestList.of(self.snapshots[-1]),
            ),
            {"snapshots": told},
            open_storage(),
            lists={f"list-{at}": self.snapshots[at - 1] for at in numbers},
            named_by=dict(self.entries),
        )

    def reached(self, numbers: Iterable[int]) -> set[str]:
        """What snapshots reach."""
        lists = {at: self.snapshots[at - 1] for at in numbers}
        manifests = {m.uri for some in lists.values() for m in some}
        live = {each.uri for uri in manifests for each in self.entries[uri] if each.is_live}
        return {*(f"list-{at}" for at in lists), *manifests, *live}


@pytest.mark.parametrize("seed", range(40))
def test_what_only_expired_snapshots_reach_is_found(seed: int) -> None:
    """By what snapshots say they have taken away, as by all files that are reached; and where the snapshots
    that go are not the first ones."""
    history = TableHistory(random.Random(seed))
    for _ in range(12):
        history.draws.choice((history.append, history.rewrite) if history.snapshots else (history.append,))()
    every = range(1, len(history.snapshots) + 1)
    for is_line in (True, False):
        for gone in (list(every[:7]), list(every[:1]), [*every[:3], *every[5:8]]):
            kept = [at for at in every if at not in gone]
            expected = history.reached(gone) - history.reached(kept)
            assert set(unreachable_files(history.view(is_line=is_line), gone)) == expected


@pytest.mark.parametrize("seed", range(40))
def test_no_file_goes_that_a_kept_snapshot_reaches_whatever_engines_write(seed: int) -> None:
    """Files that are said to be gone and are not, and those that came again, stay."""
    history = TableHistory(random.Random(seed))
    history.append()
    for _ in range(12):
        history.draws.choice((history.append, history.rewrite, history.lie))()
    every = range(1, len(history.snapshots) + 1)
    found = unreachable_files(history.view(is_line=True), every[:7])
    assert not set(found) & history.reached(every[7:])


def test_no_file_of_another_table_goes() -> None:
    """Whatever a snapshot says that it has taken away."""
    history = TableHistory(random.Random(1))
    history.append()
    own, foreign = (Reference(f"file:///w/{at}/data/x", 1, is_live=False) for at in ("a/logs", "b/logs"))
    history.commit(history.snapshots[-1], [own, foreign, history.file()])
    found = unreachable_files(history.view(is_line=True), [1])
    assert own.uri in found
    assert foreign.uri not in found
