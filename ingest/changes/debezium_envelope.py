"""Debezium's envelope: decoded together with its rows where they are as their schema says, else apart from
them."""

from typing import Any

import msgspec

from ingest.changes.connect_schema import RowSchema
from ingest.changes.envelope import decode_envelope
from ingest.changes.message_opener import Opened
from ingest.changes.row_struct import NOT_DECODED, Decode, decoder
from ingest.decode.formats.json_object import Json
from lake.errors import Rejected


class Source(msgspec.Struct):
    """What is read of `source`, under the names of `SOURCE_FIELDS`."""

    lsn: Any = None
    file: Any = None
    pos: Any = None
    row: Any = None
    commit_lsn: Any = None
    change_lsn: Any = None
    event_serial_no: Any = None
    scn: Any = None
    ts_us: Any = None
    ts_ns: Any = None
    ts_ms: Any = None

    def get(self, name: str) -> Any:
        """As of the object that it was."""
        return getattr(self, name)


class Envelope(msgspec.Struct):
    """What is read of an envelope. `before`, `after`: rows as JSON (`Raw`, empty where there is none), or
    decoded to the struct of their schema (None where there is none)."""

    op: str | None = None
    before: Any = None
    after: Any = None
    source: Source | None = None
    ts_ms: int | None = None
    # Of messages that are no changes.
    ddl: msgspec.Raw = msgspec.Raw()
    table_changes: msgspec.Raw = msgspec.field(default=msgspec.Raw(), name="tableChanges")
    status: str | None = None


class RawEnvelope(Envelope):
    """One whose rows stay JSON."""

    before: msgspec.Raw = msgspec.Raw()
    after: msgspec.Raw = msgspec.Raw()


_raw_decoder = msgspec.json.Decoder(RawEnvelope, float_hook=Json)


def read_envelope(opened: Opened, depth_max: int) -> Envelope | Rejected:
    """Reads the envelope of a message. NOT_OF_SCHEMA, UNDECODABLE or TOO_DEEP where it is none."""
    return _with_rows(opened) or decode_envelope(opened.payload, _raw_decoder, depth_max)


def _with_rows(opened: Opened) -> Envelope | None:
    """The envelope with its rows decoded; None where that does not succeed."""
    if not isinstance(opened.schema, RowSchema):
        return None
    decode = opened.schema.struct.decode_around(_decoder_with_rows)
    if decode is None:
        return None
    try:
        envelope: Envelope = decode(opened.payload)
    except NOT_DECODED:
        return None
    # What a message without an operation is depends on whether its rows are there at all.
    return None if envelope.op is None else envelope


def _decoder_with_rows(row: type[msgspec.Struct]) -> Decode:
    rows: Any = row | None
    fields = [("before", rows, None), ("after", rows, None)]
    return decoder(msgspec.defstruct("EnvelopeWithRows", fields, bases=(Envelope,)))


def raw_row(opened: Opened, member: str) -> bytes:
    """The JSON of a row that `read_envelope` has decoded."""
    return bytes(getattr(_raw_decoder.decode(opened.payload), member))
