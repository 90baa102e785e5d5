"""The formats that Firn reads. What sniffs a message, names a format or describes one asks here.

A new format is a module in this folder, and its name in `LINE_FORMATS` or `BATCH_FORMATS`. Where a topic's
settings can say that it holds nothing else, `lake.settings.FormatName` names it too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from enum import Enum

from ingest.decode.event_time import parse_instant
from ingest.decode.formats.access_log import ACCESS_LOG
from ingest.decode.formats.batch_format import BatchFormat
from ingest.decode.formats.json_batch import JSON_ARRAY, NDJSON
from ingest.decode.formats.json_object import BLANK_BYTES, BLANKS
from ingest.decode.formats.otlp import OTLP_JSON
from ingest.decode.formats.otlp_protobuf import OTLP_PROTOBUF
from ingest.decode.formats.syslog import ISO_LINE, RFC_3164, RFC_5424
from ingest.decode.formats.text_line import LineFormat, Values
from lake.settings import FormatName, RecordFormat

# The first that reads a line or a message has it.
LINE_FORMATS: Sequence[LineFormat] = (RFC_5424, RFC_3164, ACCESS_LOG, ISO_LINE)
BATCH_FORMATS: Sequence[BatchFormat] = (OTLP_PROTOBUF, OTLP_JSON, NDJSON, JSON_ARRAY)

AUTO: RecordFormat = "auto"
JSON: RecordFormat = "json"
TEXT: RecordFormat = "text"
REPLAY: FormatName = "replay"  # each message's headers name one of the others
# How a record is read that came with others in one message.
BATCH_RECORD = JSON
OBJECT_BEGINS = b"{"
FIRST_BLANKS = frozenset(character.encode()[:1] for character in BLANKS)
_PRIORITY = "<"


# ---- messages


class MessageKind(Enum):
    """What a message is by a first look, which decides the path that is tried first; a message may turn out
    to be something else."""

    OBJECT = "one JSON object"
    LINE = "one line of text"
    BATCH = "what may carry several records"
    OPEN = "its first byte does not tell"


# For loops over messages: looking a member up in its class is a call.
LOOKS_OBJECT, LOOKS_LINE, LOOKS_BATCH, LOOKS_OPEN = MessageKind


@dataclass(eq=False, slots=True)
class TopicFormat:
    """How the messages of a topic are read.

    `by_first_byte`, `otherwise`: what a message is by its first byte. Loops over messages look there
    themselves, since a call for each would cost more than the look.
    `batches`: the formats that a message with several records is tried for, in order; `by_begin`, `of_any`:
    the same by a first byte that is no blank. `surely`: whether the topic holds nothing else.
    """

    otherwise: MessageKind
    batches: Sequence[BatchFormat] = ()
    by_first_byte: Mapping[bytes, MessageKind] = field(default_factory=dict)
    surely: bool = False
    by_begin: Mapping[bytes, Sequence[BatchFormat]] = field(init=False)
    of_any: Sequence[BatchFormat] = field(init=False)

    def __post_init__(self) -> None:
        self.of_any = self._beginning(b"", b"")
        begins = {each.begins for each in self.batches} - FIRST_BLANKS
        self.by_begin = {first: self._beginning(first, first) for first in begins}

    def candidates(self, value: bytes) -> Sequence[BatchFormat]:
        """The formats with several records that a message may have by its first byte."""
        first = value[:1]
        if first in FIRST_BLANKS:
            return self._beginning(first, value.lstrip(BLANK_BYTES)[:1])
        return self.by_begin.get(first, self.of_any)

    def _beginning(self, first: bytes, first_of_json: bytes) -> Sequence[BatchFormat]:
        return [
            each for each in self.batches if each.begins in (b"", first_of_json if each.is_json else first)
        ]

    @property
    def takes_objects(self) -> bool:
        """Whether a message that begins with a brace is taken for one JSON object."""
        return self.by_first_byte.get(OBJECT_BEGINS, self.otherwise) is MessageKind.OBJECT


def topic_formats(batches: Sequence[BatchFormat]) -> dict[FormatName, TopicFormat]:
    """The formats that a topic's settings can name, where these formats of messages are registered."""
    told = tuple(each for each in batches if each.begins)
    of_json = tuple(each for each in told if each.is_json)
    return {
        AUTO: TopicFormat(MessageKind.LINE, told, _by_first_byte(told)),
        JSON: TopicFormat(MessageKind.OBJECT, of_json, surely=True),
        TEXT: TopicFormat(MessageKind.LINE),
        **{
            # Several records of which something was masked are an array (ingest/mask/content.py), without
            # blanks before it: in protobuf these are tags and lengths.
            each.topic_format: TopicFormat(
                MessageKind.BATCH,
                (replace(JSON_ARRAY, is_json=False), replace(each, begins=b"")),
                surely=True,
            )
            for each in batches
            if each.topic_format is not None
        },
        REPLAY: TopicFormat(MessageKind.BATCH, of_json),
    }


def _by_first_byte(batches: Sequence[BatchFormat]) -> Mapping[bytes, MessageKind]:
    """What a message is by its first byte, where the topic does not say; without the bytes that begin
    lines."""
    table = dict.fromkeys({*FIRST_BLANKS, *(each.begins for each in batches)}, MessageKind.OPEN)
    return table | {OBJECT_BEGINS: MessageKind.OBJECT}


TOPIC_FORMATS = topic_formats(BATCH_FORMATS)
# A JSON object with one of these keys at its top may carry several records.
BATCH_ROOTS = frozenset(root for each in BATCH_FORMATS for root in each.roots)


# ---- lines


def by_first_character(formats: Sequence[LineFormat]) -> dict[str, Sequence[LineFormat]]:
    """The formats to try on a line by its first character; under the empty text those for all others."""
    of_any = tuple(each for each in formats if not each.begins)
    table: dict[str, Sequence[LineFormat]] = {"": of_any}
    for first in {_PRIORITY, *(character for each in formats for character in each.begins)}:
        others = () if first == _PRIORITY else of_any
        table[first] = tuple(each for each in formats if first in each.begins or each in others)
    return table


# Most plain lines are done after one look.
_BY_FIRST_CHARACTER = by_first_character(LINE_FORMATS)
_OTHERS = _BY_FIRST_CHARACTER[""]


def match_line(line: str, kafka_us: int, local: tzinfo) -> tuple[LineFormat, Values] | None:
    """The format of a line and its values, the date not checked; None for a plain line.

    `kafka_us`: the message's Kafka timestamp, microseconds since 1970; `local`: the zone of times that name
    none.
    """
    for known in _BY_FIRST_CHARACTER.get(line[:1], _OTHERS):
        if (values := known.read(line, kafka_us, local)) is not None:
            return known, values
    return None


def recognise(line: str, kafka_us: int, local: tzinfo) -> tuple[LineFormat, Values] | None:
    """The same as `match_line`, but a line with a date that no calendar has is a plain one."""
    found = match_line(line, kafka_us, local)
    if found is None or ((timestamp := found[1][0]) is not None and parse_instant(timestamp) is None):
        return None
    return found
