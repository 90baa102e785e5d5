"""The marks of a backfill from a topic: a commit joins its offsets to those filled before and leaves the
marks of live ingestion as they are."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ingest.backfill.backfill_commits import ChangedMeanwhileError
from ingest.commit.ledger import Advance, beside_live
from lake.commit import TableState
from lake.marks import Marks, Range, TopicPartition
from lake.topic_fill import TopicFill, fill_property, parse_fill


@dataclass
class TopicLedger:
    """Marks of one run over one topic. `starts`: by partition, where the run begins.

    What the committer takes for the mark of a partition is the first offset from there on that the table does
    not have. Stretches further on, which earlier runs have filled, are left out where records are routed; so
    none may come to be there meanwhile.
    """

    topic: str
    topic_id: str
    starts: Mapping[int, int]
    _beyond: dict[str, frozenset[tuple[int, Range]]] = field(default_factory=dict)  # by the table's uuid

    def fill(self, state: TableState) -> TopicFill:
        """What earlier runs and this one have brought into a table. Raises ProtocolError."""
        return parse_fill(state.properties, self.topic_id) or TopicFill(self.topic)

    # ---- as a committer asks

    def marks(self, state: TableState) -> Marks:
        """Raises ChangedMeanwhileError where another run has filled a stretch that this one has not come to
        yet."""
        fill = self.fill(state)
        nexts = {partition: fill.next(partition, start) for partition, start in self.starts.items()}
        beyond = frozenset(
            (partition, each)
            for partition, at in nexts.items()
            for each in fill.of(partition)
            if each.start > at
        )
        if beyond - self._beyond.setdefault(state.uuid, beyond):
            raise ChangedMeanwhileError(
                f"another backfill of topic {self.topic} has written to table {state.name} meanwhile; run "
                "this one again"
            )
        return Marks(
            {TopicPartition(self.topic_id, partition): offset for partition, offset in nexts.items()}
        )

    def advance(self, state: TableState, ranges: Mapping[TopicPartition, Range], _: str) -> Advance:
        fill = self.fill(state)
        for topic_partition, each in ranges.items():
            fill = fill.joined(topic_partition.partition, each)
        return beside_live(state, {fill_property(self.topic_id): fill.to_property()})

    def moved_by(self, _: TableState) -> str:
        return ""
