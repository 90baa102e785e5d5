"""Values that a source did not send: Debezium puts a placeholder where PostgreSQL's logical decoding leaves
out a large value that an update did not touch (TOAST)."""

import base64
import hashlib
import json
import uuid
from functools import lru_cache
from typing import Any

from ingest.decode.formats.json_object import Pairs

DEFAULT_PLACEHOLDER = "__debezium_unavailable_value"


class Placeholder:
    """The forms that a placeholder takes by the type of its column: text, its bytes in base64 or hexadecimal
    digits, an array of text, of base64, of the codes of its bytes, or of a uuid made of it, a map of it to
    itself. `texts`: those that are text."""

    def __init__(self, text: str) -> None:
        encoded = text.encode()
        base64_text = base64.b64encode(encoded).decode()
        url_safe = base64.urlsafe_b64encode(encoded).decode()
        self._lists: tuple[list[Any], ...] = ([text], [base64_text], list(encoded), [_name_uuid(encoded)])
        self._map = {text: text}
        map_text = json.dumps(self._map, separators=(",", ":"))
        self.texts = frozenset((text, base64_text, url_safe, encoded.hex(), map_text))
        self._pairs = [(text, text)]
        texts = [json.dumps(items, separators=(",", ":")) for items in self._lists]
        self._json_texts = self.texts.union(texts)

    def stands_for(self, value: Any) -> bool:
        """Whether a value of JSON that was decoded to Python's types is the placeholder."""
        if isinstance(value, str):
            return value in self.texts
        if isinstance(value, list):
            return value in self._lists
        return isinstance(value, dict) and value == self._map

    def stands_for_untyped(self, value: Any) -> bool:
        """Whether a value of `parse_object` (str, Json or Pairs) is the placeholder."""
        return value == self._pairs if isinstance(value, Pairs) else value in self._json_texts


@lru_cache(maxsize=64)
def placeholder(text: str) -> Placeholder:
    """The placeholder of a text, made once."""
    return Placeholder(text)


def _name_uuid(name: bytes) -> str:
    """The uuid that Java's UUID.nameUUIDFromBytes makes of a name: its MD5, marked as version 3."""
    return str(uuid.UUID(bytes=hashlib.md5(name, usedforsecurity=False).digest(), version=3))
