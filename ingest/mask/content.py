"""A message's value as what its rules can be asked about, and back to bytes.

One JSON object stays one, one line of text stays a line. A line of a known format becomes the JSON object of
its fields, several records an array of theirs: what reads messages makes the same records of them.
"""

import re
from dataclasses import dataclass, field
from datetime import tzinfo
from enum import Enum
from json.encoder import encode_basestring
from typing import Any

from ingest.decode.decoder import Batch, Pairs, decode, json_text, kind_of, take_apart
from ingest.decode.formats.registry import BATCH_RECORD, LOOKS_LINE, OBJECT_BEGINS, recognise
from ingest.decode.formats.rejected_record import RejectedRecord
from ingest.decode.formats.text_line import to_pairs
from ingest.mask.tree import payload_of
from lake.errors import Rejected
from lake.settings import FormatName

_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f]")  # ESC begins colours
WIRE_FORMAT = b"\0"  # how messages of a schema registry begin, and no text


class Shape(Enum):
    """What the bytes of a message are."""

    OBJECT = "a JSON object"
    TEXT = "text"
    RECORDS = "several records"


@dataclass(frozen=True, slots=True)
class Content:
    """The records of a message: objects, and texts that are none.

    `opaque`: those in which no field can be looked for: their number -> the bytes. `encoding`: of a text.
    """

    shape: Shape
    parts: list[Pairs | str]
    opaque: dict[int, bytes] = field(default_factory=dict)
    encoding: str = "utf-8"

    def with_parts(self, parts: list[Pairs | str]) -> "Content":
        return Content(self.shape, parts, self.opaque, self.encoding)

    @property
    def is_lost(self) -> bool:
        """Whether these are several records none of which is an object: as an array nothing would know that
        they are several."""
        return self.shape is Shape.RECORDS and not any(isinstance(part, Pairs) for part in self.parts)

    def to_bytes(self) -> bytes:
        """The bytes of a message with these records."""
        if self.shape is Shape.RECORDS:
            return b"[" + b",".join(map(_encoded, self.parts)) + b"]"
        part = self.parts[0]
        return _encoded(part) if isinstance(part, Pairs) else part.encode(self.encoding)


def _encoded(part: Pairs | str) -> bytes:
    """The same as of `json_text`, in half of the time where all texts can be written as UTF-8."""
    try:
        return _spelled(part).encode()
    except UnicodeEncodeError:
        return json_text(part).encode()


def _spelled(value: Any) -> str:
    if type(value) is str:
        return encode_basestring(value)
    if isinstance(value, Pairs):
        members = [f"{encode_basestring(key)}:{_spelled(member)}" for key, member in value]
        return "{" + ",".join(members) + "}"
    return "null" if value is None else str(value)


@dataclass(frozen=True, slots=True)
class Reading:
    """How the values of a topic are read. `images`: of changes, the members that hold columns of the row;
    None: they are records. `knows_lines`: whether lines are looked into for their fields."""

    form: FormatName
    depth_max: int
    local: tzinfo
    images: frozenset[str] | None
    knows_lines: bool

    def read(self, value: bytes, kafka_us: int) -> Content:
        """The content of a message. `kafka_us`: its Kafka timestamp, us since 1970."""
        if self.images is not None:
            return self._change(value, self.images)
        if kind_of(value, self.form) is LOOKS_LINE:
            return self._one(value, kafka_us, self.form)
        batch = take_apart(value, self.form, self.depth_max)
        if batch is None:
            return self._one(value, kafka_us, self.form)
        return self._several(batch) if isinstance(batch, Batch) else _opaque(value)

    def _change(self, value: bytes, images: frozenset[str]) -> Content:
        """A message about a row; opaque where an image of the row is no object, but its text for example."""
        pairs = decode(value, BATCH_RECORD, self.depth_max)
        if not isinstance(pairs, Pairs):
            return _opaque(value)
        held = [image for key, image in payload_of(pairs) or pairs if key in images]
        if any(image is not None and not isinstance(image, Pairs) for image in held):
            return _opaque(value)
        return Content(Shape.OBJECT, [pairs])

    def _one(self, value: bytes, kafka_us: int, form: FormatName) -> Content:
        fields = decode(value, form, self.depth_max)
        if isinstance(fields, Pairs):
            return Content(Shape.OBJECT, [fields])
        if isinstance(fields, Rejected):
            return _opaque(value)
        if self.knows_lines and (known := recognise(fields, kafka_us, self.local)) is not None:
            return Content(Shape.OBJECT, [to_pairs(*known)])
        return _opaque(value)

    def _several(self, batch: Batch) -> Content:
        parts, opaque = list[Pairs | str](), dict[int, bytes]()
        for at, record in enumerate(batch):
            own = record.value if isinstance(record, RejectedRecord) else record
            fields = None if isinstance(record, RejectedRecord) else decode(own, BATCH_RECORD, self.depth_max)
            if isinstance(fields, Pairs):
                parts.append(fields)
            else:
                opaque[at] = own
                parts.append(_text_of(own)[0])
        return Content(Shape.RECORDS, parts, opaque)


def read_beside(data: bytes, depth_max: int) -> Content:
    """The content of a key or of a header: a JSON object, or text of whatever bytes."""
    if data[:1] != OBJECT_BEGINS:
        text, encoding = _text_of(data)
        return Content(Shape.TEXT, [text], encoding=encoding)
    fields = decode(data, BATCH_RECORD, depth_max)
    return Content(Shape.OBJECT, [fields]) if isinstance(fields, Pairs) else _opaque(data)


def _opaque(value: bytes) -> Content:
    text, encoding = _text_of(value)
    return Content(Shape.TEXT, [text], {0: value}, encoding)


def _text_of(data: bytes) -> tuple[str, str]:
    """Bytes as text, and the encoding by which they are made again; every byte is a character of Latin 1."""
    try:
        return data.decode(), "utf-8"
    except UnicodeDecodeError:
        return data.decode("latin-1"), "latin-1"


def is_readable(data: bytes, *, may_be_binary: bool) -> bool:
    """Whether bytes are text in which patterns can be looked for. `may_be_binary`: with control characters
    they are of a binary format, where what stands beside a number may be a digit by chance."""
    if may_be_binary and _CONTROL.search(data):
        return False
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return not data.startswith(WIRE_FORMAT)
