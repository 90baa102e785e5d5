"""Where a row came from."""

from functools import lru_cache
from typing import NamedTuple, Self

from lake.marks import TopicPartition
from lake.settings import ChangeMode, ChangeSettings, FormatName, TopicSettings
from lake.table_layout import HISTORY_SUFFIX
from lake.tenant import TableId


class AsOf(NamedTuple):
    """Where rows of a dump stand among the changes of their source: a position in its log, or a time in
    microseconds since 1970."""

    position: tuple[int, ...] | None = None
    time_us: int | None = None


@lru_cache(maxsize=65_536)
def _place(topic_id: str, partition: int) -> TopicPartition:
    return TopicPartition(topic_id, partition)


class Source(NamedTuple):
    """A topic-partition as messages are numbered by: where a row came from."""

    topic: str
    topic_id: str
    partition: int
    form: FormatName  # how its messages are read
    time_zone: str = "UTC"  # of times that name none
    changes: ChangeSettings | None = None  # how its changes of rows are read; None: it has records
    is_alone: bool = False  # its topic has no other partition, so all changes are in one order
    as_of: AsOf | None = None  # of a dump whose rows are taken in as changes

    @property
    def place(self) -> TopicPartition:
        """The partition as marks name it: one object, which goes through a pipe once for many flushes."""
        return _place(self.topic_id, self.partition)

    def mode_for(self, table: TableId) -> ChangeMode:
        """What its messages are to a table that they go to: records, or changes of some mode."""
        if self.changes is None:
            return "append"
        return "history" if self.is_beside(table) else self.changes.mode

    def is_beside(self, table: TableId) -> bool:
        """Whether the table has the history of another one, which has the messages as well."""
        return self.changes is not None and self.changes.history and table.stream.endswith(HISTORY_SUFFIX)

    @classmethod
    def of(cls, topic: TopicSettings, topic_id: str, partition: int, *, is_alone: bool = False) -> Self:
        """A partition of an input topic."""
        return cls(topic.name, topic_id, partition, topic.format, topic.time_zone, topic.changes, is_alone)
