"""Where a row came from."""

from typing import NamedTuple

from lake.settings import FormatName


class Source(NamedTuple):
    """A topic-partition as messages are numbered by: where a row came from."""

    topic: str
    topic_id: str
    partition: int
    form: FormatName  # how its messages are read
    time_zone: str = "UTC"  # of times that name none
