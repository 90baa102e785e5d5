"""Where a row came from."""

from typing import Literal, NamedTuple

Form = Literal[
    "auto", "json", "text", "otlp_proto", "replay"
]  # replay: each message's headers name one of the others


class Source(NamedTuple):
    """A topic-partition as messages are numbered by: where a row came from."""

    topic: str
    topic_id: str
    partition: int
    form: Form
    time_zone: str = "UTC"  # of times that name none
