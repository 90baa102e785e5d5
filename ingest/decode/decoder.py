"""Bytes of a message to its records: JSON objects and lines of text, exactly, or a `Rejected` that says why
not.

This is the exact path: what is not text keeps the characters the record spells it with, duplicate keys are
seen, NaN and Infinity pass as the numbers they claim to be. The core gives the same fields of most records,
and leaves the others to it.
"""

from ingest.decode.formats.batch_format import Batch
from ingest.decode.formats.json_object import (
    BLANK_BYTES,
    BLANKS,
    Json,
    Pairs,
    is_text,
    json_text,
    parse_object,
)
from ingest.decode.formats.registry import (
    LOOKS_BATCH,
    LOOKS_LINE,
    LOOKS_OPEN,
    OBJECT_BEGINS,
    TOPIC_FORMATS,
    MessageKind,
    TopicFormat,
)
from lake.errors import Reason, Rejected
from lake.settings import FormatName

__all__ = ["Batch", "Fields", "Json", "Pairs", "decode", "is_text", "json_text", "kind_of", "take_apart"]

Fields = Pairs | str  # a JSON object, or a line of text


def decode(value: bytes | None, form: FormatName, depth_max: int) -> Fields | Rejected:
    """Decodes one record: a JSON object gives `Pairs`, a line of text str."""
    if not value:
        return Rejected(Reason.EMPTY, "the message has no value")
    try:
        text = value.decode()
    except UnicodeDecodeError as error:
        return Rejected(Reason.UNDECODABLE, f"not UTF-8: byte {error.start} is {value[error.start]:#04x}")
    known = TOPIC_FORMATS[form]
    # A topic of lines alone does not look at the first byte: there a line may begin with a brace.
    if known.otherwise is LOOKS_LINE and (not known.by_first_byte or text.lstrip(BLANKS)[:1] != "{"):
        line = text.rstrip("\r\n")
        return line if line.strip() else Rejected(Reason.EMPTY, "the message is blank")
    return parse_object(text.strip(BLANKS), depth_max)


def kind_of(value: bytes, form: FormatName) -> MessageKind:
    """What a message is by a quick look; never OPEN."""
    known = TOPIC_FORMATS[form]
    kind = known.by_first_byte.get(value[:1], known.otherwise)
    return look_closer(value, known) if kind is LOOKS_OPEN else kind


def look_closer(value: bytes, topic_format: TopicFormat) -> MessageKind:
    """What a message is whose first byte leaves it OPEN: LINE, or BATCH, which includes an object with blanks
    before it."""
    candidates = topic_format.by_begin.get(value[:1])
    if candidates is None:  # a blank
        if value.lstrip(BLANK_BYTES)[:1] == OBJECT_BEGINS:
            return LOOKS_BATCH
        candidates = topic_format.candidates(value)
    for known in candidates:
        if known.may_be is None or known.may_be(value):
            return LOOKS_BATCH
    return LOOKS_LINE


def take_apart(value: bytes, form: FormatName, depth_max: int) -> Batch | Rejected | None:
    """The records of a message that carries several; None where it is one record, for `decode`."""
    topic_format = TOPIC_FORMATS[form]
    for known in topic_format.by_begin.get(value[:1]) or topic_format.candidates(value):
        if (found := known.read(value, depth_max, topic_format.surely)) is not None:
            return found
    return None
