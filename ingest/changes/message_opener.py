"""Messages of Kafka Connect taken apart: what the schema of each means, and the JSON of its payload."""

from typing import NamedTuple

from msgspec import Struct

from ingest.changes.connect_message import split, split_exactly
from ingest.changes.connect_schema import RowSchema, Scalar, row_schema
from lake.errors import Rejected


class Opened(Struct, frozen=True, gc=False):
    """A message of Connect: the schema of its row, None where it has none, and the JSON of its payload."""

    schema: RowSchema | Scalar | None
    payload: bytes


class _Last(NamedTuple):
    """What the last message began with: its schema, up to the payload, and what that means."""

    beginning: bytes
    size: int
    schema: RowSchema | Scalar


class MessageOpener:
    """Opens the keys, or the values, of a format; `members` and `left_out` as for `row_schema`.

    Messages in a row have the same schema: to compare it takes a tenth of what it takes to find its end and
    look it up. Any thread may call it.
    """

    def __init__(self, members: tuple[str, ...] = (), left_out: tuple[str, ...] = ()) -> None:
        self._members, self._left_out = members, left_out
        self._last: _Last | None = None

    def open(self, message: bytes, depth_max: int) -> Opened | Rejected:
        """Takes a message apart and looks its schema up; NOT_OF_SCHEMA, UNDECODABLE or TOO_DEEP where that
        cannot be."""
        last = self._last
        if last is not None and message.startswith(last.beginning) and message.endswith(b"}"):
            return Opened(last.schema, message[last.size : -1])
        return self._look_up(message, depth_max)

    def _look_up(self, message: bytes, depth_max: int) -> Opened | Rejected:
        parts = split(message)
        if parts is not None and parts.schema is not None:
            schema = row_schema(parts.schema, self._members, self._left_out)
            if not isinstance(schema, Rejected):
                size = len(message) - len(parts.payload) - 1
                self._last = _Last(message[:size], size, schema)
                return Opened(schema, parts.payload)
        exactly = split_exactly(message, depth_max)
        if isinstance(exactly, Rejected) or exactly.schema is None:
            return exactly if isinstance(exactly, Rejected) else Opened(None, exactly.payload)
        schema = row_schema(exactly.schema, self._members, self._left_out)
        return schema if isinstance(schema, Rejected) else Opened(schema, exactly.payload)
