"""What a format of messages says of itself, and the records that such a message carries.

A message of a batch format carries several records. Each of them becomes a JSON object, or what should have
been one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ingest.decode.formats.rejected_record import RejectedRecord
from lake.errors import Rejected
from lake.settings import FormatName


class Batch(list[bytes | RejectedRecord]):
    """The records that one message carries: JSON objects, or what should have been one, in their order.

    `title`: the format, as `explain-message` names it.
    """

    def __init__(self, title: str, records: Sequence[bytes | RejectedRecord]) -> None:
        super().__init__(records)
        self.title = title


@dataclass(frozen=True, eq=False, slots=True)
class BatchFormat:
    """A format of messages that carry several records.

    `begins`: the byte that its messages begin with; empty: they cannot be told from others, and are read only
    where a topic's settings name `topic_format`.
    `read` gets a message that begins so, the levels that a record may nest, and whether its topic holds
    nothing else (then broken messages are `Rejected`, not left to another format). It returns None where the
    message is not of the format.
    `is_json`: whether it is JSON text. Then blanks and a byte order mark may stand before `begins`, and a
    topic of JSON may hold it.
    `may_be`: a quick look that tells a message that begins so from a line of text, True too often rather than
    too seldom; None: no line begins so. Messages that begin with a brace are never taken for lines.
    `roots`: keys of the JSON object that a message is; what has one at its top is not taken for one record.
    `topic_format`: its name in the settings of a topic, where they can say that it holds nothing else.
    """

    title: str
    begins: bytes
    read: Callable[[bytes, int, bool], Batch | Rejected | None]
    is_json: bool = True
    may_be: Callable[[bytes], bool] | None = None
    roots: tuple[str, ...] = ()
    topic_format: FormatName | None = None
