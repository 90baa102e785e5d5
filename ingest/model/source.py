"""Where a row came from."""

from typing import NamedTuple, Self

from lake.settings import ChangeSettings, FormatName, TopicSettings


class AsOf(NamedTuple):
    """Where rows of a dump stand among the changes of their source: a position in its log, or a time in
    microseconds since 1970."""

    position: tuple[int, ...] | None = None
    time_us: int | None = None


class Source(NamedTuple):
    """A topic-partition as messages are numbered by: where a row came from."""

    topic: str
    topic_id: str
    partition: int
    form: FormatName  # how its messages are read
    time_zone: str = "UTC"  # of times that name none
    changes: ChangeSettings | None = None  # how its changes of rows are read; None: it has records
    as_of: AsOf | None = None  # of a dump whose rows are taken in as changes

    @classmethod
    def of(cls, topic: TopicSettings, topic_id: str, partition: int) -> Self:
        """A partition of an input topic."""
        return cls(topic.name, topic_id, partition, topic.format, topic.time_zone, topic.changes)
