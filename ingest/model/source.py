"""Where a row came from."""

from typing import NamedTuple, Self

from lake.settings import ChangeSettings, FormatName, TopicSettings


class Source(NamedTuple):
    """A topic-partition as messages are numbered by: where a row came from."""

    topic: str
    topic_id: str
    partition: int
    form: FormatName  # how its messages are read
    time_zone: str = "UTC"  # of times that name none
    changes: ChangeSettings | None = None  # how its changes of rows are read; None: it has records
    is_alone: bool = False  # its topic has no other partition, so all changes are in one order

    @classmethod
    def of(cls, topic: TopicSettings, topic_id: str, partition: int, *, is_alone: bool = False) -> Self:
        """A partition of an input topic."""
        return cls(topic.name, topic_id, partition, topic.format, topic.time_zone, topic.changes, is_alone)
