"""Tables of Firn's own tenant: the columns that are typed from their first row on, because Firn itself knows
what it writes there."""

from collections.abc import Mapping

from lake.audit import event
from lake.tenant import SYSTEM_TENANT

# What of a dead letter is a row (ingest/route/letter_rows.py): nothing that quotes the record.
LETTERS_STREAM = "dead_letters"
LETTER_COLUMNS: Mapping[str, str] = {
    "letter": "string",
    "reason": "string",
    "tenant": "string",
    "stream": "string",
    "record_topic": "string",
    "record_topic_id": "string",
    "record_partition": "long",
    "record_offset": "long",
    "record_until": "long",
    "record_index": "long",
    "record_time": "timestamptz",
    "record_bytes": "long",
    "key_bytes": "long",
    "headers": "long",
    "attempt": "long",
    "in_warehouse": "boolean",
}

_TYPED: Mapping[str, Mapping[str, str]] = {
    event.STREAM: event.TYPED_COLUMNS,
    LETTERS_STREAM: LETTER_COLUMNS,
}


def typed_columns(tenant: str, stream: str) -> Mapping[str, str]:
    """Column -> type, beside the system columns, of a new table; none of other tenants."""
    return _TYPED.get(stream, {}) if tenant == SYSTEM_TENANT.name else {}
