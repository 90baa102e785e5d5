"""Keys in the headers of a message: Debezium names there the other key of a row that moved."""

from collections.abc import Iterable
from typing import NamedTuple

from ingest.changes.change import Cells, ReadOptions
from ingest.changes.message_key import MessageKey, read_header_key
from lake.errors import Rejected

Headers = Iterable[tuple[str, bytes | str | None]]

_OLD_KEY = "__debezium.oldkey"
_NEW_KEY = "__debezium.newkey"


class HeaderKeys(NamedTuple):
    """The key that a row had before, and the one that it has afterwards; None where no header says."""

    old: Cells | None = None
    new: Cells | None = None


NO_KEYS = HeaderKeys()


def find_header_keys(headers: Headers, key: MessageKey, options: ReadOptions) -> HeaderKeys | Rejected:
    """Reads the keys that headers name; `headers` as Kafka's client gives them. KEY_UNUSABLE or KEY_MISSING
    where one cannot be read."""
    found = NO_KEYS
    for name, text in headers:
        if name not in (_OLD_KEY, _NEW_KEY) or not text:
            continue
        other = read_header_key(text.encode() if isinstance(text, str) else text, key, options)
        if isinstance(other, Rejected):
            return other
        found = found._replace(old=other) if name == _OLD_KEY else found._replace(new=other)
    return found
