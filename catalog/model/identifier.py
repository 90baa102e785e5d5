"""Names of namespaces, tables and views as they cross the wire, and the one text by which the database finds
them.

Names are stored exactly as they come or refused; nothing is folded. Levels are joined by U+001F, the
separator of the REST specification, which no level can contain because control characters are refused.
"""

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_to_bytes

from catalog.model.error_response import bad_request

SEPARATOR = "\x1f"
NAME_BYTES_MAX = 255
NAMESPACE_BYTES_MAX = 1_000
LEVELS_MAX = 16
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Identifier:
    """A table or view: the namespace's levels joined by U+001F, and the name in it."""

    namespace: str
    name: str

    @property
    def key(self) -> str:
        """One text per identifier, the database's unique key."""
        return f"{self.namespace}{SEPARATOR}{self.name}"

    def json(self) -> dict[str, Any]:
        """The identifier as the REST specification writes it."""
        return {"namespace": levels(self.namespace), "name": self.name}

    def __str__(self) -> str:
        return f"{dotted(self.namespace)}.{self.name}"


def levels(namespace: str) -> list[str]:
    """The levels of a joined namespace."""
    return namespace.split(SEPARATOR)


def dotted(namespace: str) -> str:
    """A namespace as people write it, for messages."""
    return namespace.replace(SEPARATOR, ".")


def parse_name(name: object, what: str) -> str:
    """Checks one name: text, not empty, at most 255 bytes of UTF-8, no control characters, nothing a path
    drops. Raises CatalogError 400."""
    if not isinstance(name, str) or not name:
        raise bad_request(f"{what} must be a text that is not empty")
    if _CONTROL.search(name):
        raise bad_request(f"{what} contains control characters; use a name without them")
    if name in (".", ".."):  # clients take them out of a path before they send it
        raise bad_request(f"{what} must not be {name!r}; use another name")
    if len(name.encode()) > NAME_BYTES_MAX:
        raise bad_request(f"{what} is longer than {NAME_BYTES_MAX} bytes of UTF-8; use a shorter name")
    return name


def parse_namespace(raw: object) -> str:
    """Checks a namespace given as a JSON list of levels and joins it. Raises CatalogError 400."""
    if not isinstance(raw, list) or not raw:
        raise bad_request("namespace must be a list with at least one level, each a text")
    if len(raw) > LEVELS_MAX:
        raise bad_request(f"namespace has more than {LEVELS_MAX} levels")
    namespace = SEPARATOR.join(parse_name(level, "a namespace level") for level in raw)
    if len(namespace.encode()) > NAMESPACE_BYTES_MAX:
        raise bad_request(f"namespace is longer than {NAMESPACE_BYTES_MAX} bytes of UTF-8; use shorter names")
    return namespace


def parse_identifier(raw: object) -> Identifier:
    """Checks {"namespace": [...], "name": "..."}. Raises CatalogError 400."""
    if not isinstance(raw, dict):
        raise bad_request('an identifier must be an object {"namespace": [...], "name": "..."}')
    return Identifier(parse_namespace(raw.get("namespace")), parse_name(raw.get("name"), "the name"))


def decode_segment(segment: str) -> str:
    """One path segment: percent-decoded once, `+` being a space as Iceberg's Java client encodes it. Raises
    CatalogError 400."""
    try:
        return unquote_to_bytes(segment.replace("+", " ")).decode()
    except UnicodeDecodeError as error:
        raise bad_request("a name in the path is not valid UTF-8; percent-encode its UTF-8 bytes") from error


def namespace_from_path(segment: str) -> str:
    """A namespace from a path or query: percent-encoded levels joined by %1F. Raises CatalogError 400."""
    return parse_namespace(decode_segment(segment).split(SEPARATOR))


def identifier_from_path(namespace: str, name: str) -> Identifier:
    """A table or view from two path segments. Raises CatalogError 400."""
    return Identifier(namespace_from_path(namespace), parse_name(decode_segment(name), "the name"))
