"""The newest commit a node knows of, kept beside the group's offsets, so that a catalog database that went
back is noticed at the next start.

Restored marks lie, and a node that starts knows no others. But a restore takes away the newest commits first:
whenever it took away one whose records the group's offset has passed, it took away the checkpoint that was
stored with that offset as well.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import structlog

from ingest.commit.dropped_table import was_dropped
from ingest.kafka.group_offsets import store_offsets
from ingest.kafka.kafka_reader import KafkaReader, Stored
from ingest.model.parked_record import REREAD
from lake.catalog_client import CatalogClient, MetadataMissingError, TableName
from lake.commit import TableState
from lake.errors import FatalError, NotFoundError
from lake.lease import held_group
from lake.settings import IngestSettings

log = structlog.get_logger()


@dataclass
class Newest:
    """The newest commit a node has made or met, or found beside the offsets it began with; what group offsets
    stand on lies at or before it."""

    checkpoint: "CommitCheckpoint | None" = None

    def found(self, stored: Iterable["CommitCheckpoint"]) -> None:
        """Goes on from these: what a node meets itself may be older, and the offsets stand on what others
        have committed, too."""
        self.checkpoint = max(stored, key=lambda checkpoint: checkpoint.known_ms, default=None)

    def made(self, state: TableState, now_ms: int) -> None:
        """A commit of one's own was acknowledged: nothing known is newer, whatever the clocks of other nodes
        said."""
        self._note(state, max(now_ms, self._known_ms))

    def met(self, state: TableState) -> None:
        """A table was loaded, whoever made its head."""
        if state.head_ms >= self._known_ms:
            self._note(state, state.head_ms)

    @property
    def text(self) -> str:
        """As it stands beside an offset; empty where none is known."""
        return "" if self.checkpoint is None else self.checkpoint.to_text()

    @property
    def _known_ms(self) -> int:
        return 0 if self.checkpoint is None else self.checkpoint.known_ms

    def _note(self, state: TableState, known_ms: int) -> None:
        if state.exists and state.head is not None:
            self.checkpoint = CommitCheckpoint(
                state.name, state.uuid, state.head, state.sequence_number, known_ms
            )


class CommitCheckpoint(NamedTuple):
    """A commit: table and its uuid, snapshot, the snapshot's sequence number. `known_ms`: when it was
    acknowledged or, by others, made."""

    table: TableName
    uuid: str
    snapshot_id: int
    sequence_number: int
    known_ms: int

    def to_text(self) -> str:
        """As it stands in the metadata of an offset, behind the topic's id."""
        return f"{self.table}:{self.uuid}:{self.snapshot_id}:{self.sequence_number}:{self.known_ms}"


def parse_checkpoint(text: str) -> CommitCheckpoint | None:
    """None where nothing, or nothing known, stands there."""
    parts = text.split(":")
    namespace, _, name = parts[0].rpartition(".")
    if len(parts) != 5 or not namespace or not all(part.isdigit() for part in parts[2:]):
        return None
    return CommitCheckpoint(TableName(namespace, name), parts[1], *map(int, parts[2:]))


def check_checkpoints(checkpoints: Iterable[CommitCheckpoint], catalog: CatalogClient) -> None:
    """Raises FatalError where the catalog does not know a commit it acknowledged, UnavailableError where it
    does not answer."""
    for checkpoint in set(checkpoints):
        try:
            known = _knows(catalog.load_table(checkpoint.table)["metadata"], checkpoint)
        except MetadataMissingError:
            continue  # it can say nothing
        except NotFoundError:
            known = was_dropped(catalog, checkpoint.table, checkpoint.uuid)
        if not known:
            raise FatalError(
                f"the catalog went back: table {checkpoint.table} was committed as snapshot "
                f"{checkpoint.snapshot_id}, which it no longer knows, so its "
                "database was restored from an older copy (or somebody renamed the table), and tables may "
                "lack rows that were written. If the warehouse "
                "still has their files, run `python -m catalog rebuild --from-warehouse`. Else say `python "
                "-m ingest resolve --all --reread` to read the "
                "input topics again (what is there already stays single), or `--all --accept` to go on "
                "without those rows"
            )


def _knows(metadata: Mapping[str, Any], checkpoint: CommitCheckpoint) -> bool:
    if metadata.get("table-uuid") != checkpoint.uuid:
        return True  # another table of the same name
    ids = {snapshot["sequence-number"]: snapshot["snapshot-id"] for snapshot in metadata.get("snapshots", ())}
    # A snapshot that expired leaves no trace but that the table went on.
    same = ids.get(checkpoint.sequence_number, checkpoint.snapshot_id) == checkpoint.snapshot_id
    return bool(same and metadata.get("last-sequence-number", 0) >= checkpoint.sequence_number)


def resolve_all(settings: IngestSettings, control: CatalogClient, how: str) -> int:
    """Goes on after the catalog went back: reread sets the group's offsets to where it began, accept leaves
    them; how many.

    Raises RefusedError while a node runs, UnavailableError.
    """
    reader = KafkaReader(settings)
    partitions = reader.partitions(topic.name for topic in settings.with_own_topics().topics)
    stored, ends = reader.stored(partitions), reader.ends(partitions)
    first = {each: max(ends[each].start, stored[each].first) for each in partitions if each in stored}
    wanted = {each: start if how == REREAD else stored[each].offset for each, start in first.items()}
    refusal = (
        f"an ingester of group {settings.kafka.group} runs; stop it (all nodes, standbys too) before its "
        "offsets are changed"
    )
    with held_group(control, settings, refusal):
        store_offsets(
            settings,
            {
                each: Stored(offset, each.topic_id, first=stored[each].first)
                for each, offset in wanted.items()
            },
        )
    return len(wanted)
