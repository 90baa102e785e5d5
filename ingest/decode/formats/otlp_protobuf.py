"""OTLP as protobuf, which the OpenTelemetry Collector's Kafka exporter writes by default:
ExportLogsServiceRequest, read as its JSON mapping.

Source: opentelemetry-proto, `logs/v1/logs.proto` and `common/v1/common.proto`.
"""

from collections.abc import Mapping
from typing import Any

from ingest.decode.formats import otlp
from ingest.decode.formats.batch_format import Batch, BatchFormat
from ingest.decode.formats.protobuf import (
    FIXED32,
    FIXED64,
    LENGTH,
    VARINT,
    Field,
    Message,
    WireError,
    base64_text,
    double,
    of,
    read_message,
    signed,
    text,
    unsigned,
)
from lake.errors import Reason, Rejected

_ANY_VALUE = Message()
_KEY_VALUE = of({1: Field("key", LENGTH, text), 2: Field("value", LENGTH, part=_ANY_VALUE)})
_ATTRIBUTES = Field("attributes", LENGTH, repeated=True, part=_KEY_VALUE)
_DROPPED = Field("droppedAttributesCount", VARINT, unsigned)
_ANY_VALUE.fields.update(
    {
        1: Field("stringValue", LENGTH, text),
        2: Field("boolValue", VARINT, bool),
        3: Field("intValue", VARINT, signed),
        4: Field("doubleValue", FIXED64, double),
        5: Field("arrayValue", LENGTH, part=of({1: Field("values", LENGTH, repeated=True, part=_ANY_VALUE)})),
        6: Field(
            "kvlistValue", LENGTH, part=of({1: Field("values", LENGTH, repeated=True, part=_KEY_VALUE)})
        ),
        7: Field("bytesValue", LENGTH, base64_text),
    }
)
_RESOURCE = of({1: _ATTRIBUTES, 2: _DROPPED, 3: Field("entityRefs", LENGTH, base64_text, repeated=True)})
_SCOPE = of({1: Field("name", LENGTH, text), 2: Field("version", LENGTH, text), 3: _ATTRIBUTES, 4: _DROPPED})
_LOG_RECORD = of(
    {
        1: Field("timeUnixNano", FIXED64, unsigned),
        2: Field("severityNumber", VARINT, unsigned),
        3: Field("severityText", LENGTH, text),
        5: Field("body", LENGTH, part=_ANY_VALUE),
        6: _ATTRIBUTES,
        7: _DROPPED,
        8: Field("flags", FIXED32, unsigned),
        9: Field("traceId", LENGTH, bytes.hex),
        10: Field("spanId", LENGTH, bytes.hex),
        11: Field("observedTimeUnixNano", FIXED64, unsigned),
        12: Field("eventName", LENGTH, text),
    }
)
# Records stay bytes at first, so that a bad one does not take its neighbours with it.
_SCOPE_LOGS = of(
    {
        1: Field("scope", LENGTH, part=_SCOPE),
        2: Field("logRecords", LENGTH, repeated=True),
        3: Field("schemaUrl", LENGTH, text),
    }
)
_RESOURCE_LOGS = of(
    {
        1: Field("resource", LENGTH, part=_RESOURCE),
        2: Field("scopeLogs", LENGTH, repeated=True, part=_SCOPE_LOGS),
        3: Field("schemaUrl", LENGTH, text),
    }
)
_REQUEST = of({1: Field(otlp.ROOT, LENGTH, repeated=True, part=_RESOURCE_LOGS)})
# A message of OTLP nests this deep before any value begins, and every level of a value takes two messages.
_ENVELOPE_LEVELS = 5


def _read(value: bytes, depth_max: int, surely: bool) -> Batch | Rejected | None:
    """The records of an OTLP export request, each as one flat JSON object.

    On a topic of OTLP fields not known yet are kept and anything else is `Rejected`. Elsewhere the result is
    None where the bytes are anything but a request that holds records.
    """
    levels = _ENVELOPE_LEVELS + 2 * depth_max
    try:
        document = read_message(value, _REQUEST, levels, strict=not surely)
    except (WireError, RecursionError) as error:
        if not surely:
            return None
        return Rejected(Reason.UNDECODABLE, f"not an OTLP request: {error or 'nested too deep'}")

    def read(record: bytes) -> Mapping[str, Any]:
        return read_message(record, _LOG_RECORD, levels, strict=False)

    found = otlp.records({otlp.ROOT: document.get(otlp.ROOT, [])}, otlp.Encoding(read, bytes), depth_max)
    if isinstance(found, Rejected):
        return found if surely else None
    return Batch(OTLP_PROTOBUF.title, found)


# The first field of a request has the number 1 and a length.
OTLP_PROTOBUF = BatchFormat("OTLP, protobuf", b"\n", _read, is_json=False, topic_format="otlp_proto")
