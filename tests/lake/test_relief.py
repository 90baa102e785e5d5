"""Relief of a table that nobody maintains: metadata is a dictionary here, and files lie in a folder, not
synced."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from pyroaring import BitMap64

from lake.catalog_client import TableName
from lake.commit import (
    MAIN,
    Prepared,
    RowDelta,
    TableState,
    new_table_state,
    prepare_append,
    prepare_row_delta,
)
from lake.data_file import DataFile
from lake.deletes.row_deletes import encode_row_deletes
from lake.manifest import ManifestEntry, Status
from lake.marks import MARKS_PROPERTY, Marks, TopicPartition
from lake.relief import ENTRIES_FULL, FAN_IN, Bounds, is_crowded, prepare_relief
from lake.storage import local_path, open_storage
from lake.table_files import load_manifest

STORAGE = open_storage()
BOUNDS = Bounds()
TOPIC = TopicPartition("topic", 0)


@dataclass
class Table:
    """A table that takes every commit."""

    folder: Path
    state: TableState = field(init=False)
    snapshots: list[dict[str, Any]] = field(default_factory=list)
    refs: dict[str, dict[str, Any]] = field(default_factory=dict)
    rewritten: int = 0
    reliefs: int = 0

    def __post_init__(self) -> None:
        self.state = new_table_state(TableName("a", "logs"), "a", "logs", f"file://{self.folder}")
        local_path(f"{self.state.location}/metadata").mkdir(parents=True)

    @property
    def metadata(self) -> dict[str, Any]:
        return {
            "format-version": 2,
            "snapshots": self.snapshots,
            "current-snapshot-id": self.state.head,
            "refs": self.refs,
        }

    def delete_row(self, at: int) -> None:
        """Of the file of an append, as a keyed table does it."""
        file = DataFile(f"{self.state.location}/data/{at:08d}.parquet", 490_000 + at // 400, 1, 1_000)
        written, (deletes,) = encode_row_deletes(self.state.location, 2, [(file, BitMap64([0]))])
        assert written
        delta = RowDelta((), [ManifestEntry(Status.ADDED, deletes)])
        self.apply(prepare_row_delta(self.state, delta, self.state.schema, Marks({TOPIC: at + 1}), at))

    def append(self, at: int) -> None:
        file = DataFile(f"{self.state.location}/data/{at:08d}.parquet", 490_000 + at // 400, 1, 1_000)
        self.apply(prepare_append(self.state, [file], self.state.schema, Marks({TOPIC: at + 1}), at))

    def relieve(self, bounds: Bounds = BOUNDS) -> Prepared | None:
        prepared = prepare_relief(self.metadata, self.state, STORAGE, bounds, 0)
        if prepared is not None:
            self.apply(prepared)
            self.reliefs += 1
            # Only a relief writes entries again; to look at all of an append takes longest.
            self.rewritten += sum(
                manifest.existing_files
                for manifest in prepared.after.manifests
                if manifest.snapshot_id == prepared.snapshot_id
            )
        return prepared

    def apply(self, prepared: Prepared) -> None:
        for uri, data in prepared.files:
            local_path(uri).write_bytes(data)
        for update in prepared.request["updates"]:
            if update["action"] == "add-snapshot":
                self.snapshots.append(update["snapshot"])
            elif update["action"] == "remove-snapshots":
                self.snapshots = [
                    snapshot
                    for snapshot in self.snapshots
                    if snapshot["snapshot-id"] not in update["snapshot-ids"]
                ]
        self.state = replace(prepared.after, snapshots=len(self.snapshots))
        assert prepared.after.snapshots == len(self.snapshots)

    def entries(self) -> list[tuple[str, int | None, int | None]]:
        """Live files with the snapshot and sequence number that they came with."""
        found = [
            entry
            for manifest in self.state.manifests
            for entry in load_manifest(STORAGE, manifest, self.state.table_location)
        ]
        return sorted(
            (entry.file.uri, entry.snapshot_id, entry.sequence_number)
            for entry in found
            if entry.status is not Status.DELETED
        )


def grown(folder: Path, count: int) -> Table:
    """A table after so many commits; after each of them it has as few snapshots and manifests as it
    should."""
    table = Table(folder)
    for at in range(count):
        table.append(at)
        if is_crowded(table.state, BOUNDS):
            table.relieve()
        assert len(table.snapshots) <= BOUNDS.snapshots
        assert len(table.state.manifests) <= BOUNDS.snapshots + 4 * FAN_IN + at // ENTRIES_FULL
    return table


@pytest.mark.long
def test_manifests_and_snapshots_stay_few_and_entries_are_seldom_written_again(tmp_path: Path) -> None:
    """Every file is live with the sequence number it came with; an entry is written again once for each
    eightfold growth of its manifest."""
    count = 2_500
    table = grown(tmp_path, count)
    plain = Table(tmp_path)
    for at in range(300):
        plain.append(at)
    assert [uri for uri, _, _ in table.entries()] == [
        f"{table.state.location}/data/{at:08d}.parquet" for at in range(count)
    ]
    # The snapshots of reliefs have sequence numbers as well, so those of files only grow.
    numbers = [number for _, _, number in table.entries()]
    assert numbers == sorted(set(numbers), key=lambda number: number or 0)
    assert table.rewritten <= 4 * count
    assert table.reliefs <= count // (BOUNDS.snapshots // 2 - 2)
    assert len(plain.state.manifests) == 300


def test_manifests_of_deletes_are_gathered_apart(tmp_path: Path) -> None:
    """Every delete file is live with its sequence number, by which readers tell what it is about."""
    table = Table(tmp_path)
    for at in range(50):
        table.append(at)
        table.delete_row(at)
    before = table.entries()
    assert table.relieve(Bounds(20, 20)) is not None
    assert table.entries() == before
    assert [(each.content, each.live_files) for each in table.state.manifests] == [(0, 50), (1, 50)]


def test_marks_stand_in_the_head_that_a_relief_makes(tmp_path: Path) -> None:
    """And the table is not taken for one that was moved back."""
    table = grown(tmp_path, 101)
    assert table.reliefs == 1
    head = next(snapshot for snapshot in table.snapshots if snapshot["snapshot-id"] == table.state.head)
    assert head["summary"][MARKS_PROPERTY] == Marks({TOPIC: 101}).to_property()
    assert not table.state.moved_back


def test_names_of_snapshots_are_kept_and_asserted(tmp_path: Path) -> None:
    """A tag's snapshot stays however old it is; the commit fails where somebody moves the tag meanwhile."""
    table = grown(tmp_path, 10)
    named = table.snapshots[4]["snapshot-id"]
    table.refs = {"audit": {"snapshot-id": named, "type": "tag"}, MAIN: {"snapshot-id": 0, "type": "branch"}}
    for at in range(10, 90):
        table.append(at)
    prepared = table.relieve(Bounds(8, 8))
    assert prepared is not None
    assert {"type": "assert-ref-snapshot-id", "ref": "audit", "snapshot-id": named} in prepared.request[
        "requirements"
    ]
    assert sum(requirement.get("ref") == MAIN for requirement in prepared.request["requirements"]) == 1
    assert named in {snapshot["snapshot-id"] for snapshot in table.snapshots}


def test_nothing_is_gathered_where_entries_carry_more_than_we_write(tmp_path: Path) -> None:
    """Tables of another format version only lose snapshots, without a new one: the head stays."""
    table = Table(tmp_path)
    for at in range(60):
        table.append(at)
    metadata = {**table.metadata, "format-version": 3}
    prepared = prepare_relief(metadata, table.state, STORAGE, Bounds(20, 20), 0)
    assert prepared is not None
    assert [update["action"] for update in prepared.request["updates"]] == ["remove-snapshots"]
    assert len(prepared.request["updates"][0]["snapshot-ids"]) == 50
    assert prepared.files == ()


@pytest.mark.parametrize("schemas_too", [True, False])
def test_schemas_that_only_those_snapshots_named_go_where_the_catalog_lets_them(
    tmp_path: Path, schemas_too: bool
) -> None:
    """Of a table whose records keep bringing new fields, each schema has all columns before it."""
    table = Table(tmp_path)
    for at in range(60):
        table.append(at)
    for at, snapshot in enumerate(table.snapshots):
        snapshot["schema-id"] = at // 10
    schemas = [{"schema-id": at} for at in range(7)]
    metadata = {**table.metadata, "format-version": 3, "schemas": schemas, "current-schema-id": 6}
    prepared = prepare_relief(metadata, table.state, STORAGE, Bounds(20, 20), 0, schemas_too=schemas_too)
    assert prepared is not None
    gone = [update.get("schema-ids") for update in prepared.request["updates"][1:]]
    assert gone == ([[0, 1, 2, 3, 4]] if schemas_too else [])


def test_a_table_with_little_gets_nothing(tmp_path: Path) -> None:
    """Neither snapshots to take away nor manifests of like size."""
    table = Table(tmp_path)
    for at in range(FAN_IN - 1):
        table.append(at)
    assert table.relieve() is None


def test_what_cannot_be_taken_away_is_not_tried_with_every_commit(tmp_path: Path) -> None:
    """After a relief that left more than the bounds allow, half a bound more has to come."""
    state = replace(Table(tmp_path).state, snapshots=140)
    assert is_crowded(state, BOUNDS)
    assert not is_crowded(state, BOUNDS, (130, 0))
    assert is_crowded(replace(state, snapshots=181), BOUNDS, (130, 0))
