"""Bytes of a message to fields: JSON objects and text lines, exactly, or a `Rejected` that says why not.

JSON is read without loss: numbers keep their text, duplicate keys are seen, NaN and Infinity pass as the numbers they claim to be.
"""

import json
from collections.abc import Sequence
from typing import Any, Literal

from lake.errors import Reason, Rejected


class Number(str):
    """A JSON number (or NaN, Infinity) as the record spells it."""

    __slots__ = ()


class Pairs(list[tuple[str, Any]]):
    """A JSON object as its members in order, duplicate keys included."""

    __slots__ = ()


Fields = Pairs | str  # a JSON object, or a line of text
_JSON = json.JSONDecoder(object_pairs_hook=Pairs, parse_float=Number, parse_int=Number, parse_constant=Number, strict=False)


def decode(value: bytes | None, form: Literal["auto", "json", "text"], depth_max: int) -> Fields | Rejected:
    """Decodes one message. A JSON object gives `Pairs` whose values are str, Number, bool, None, list or Pairs; a text line gives str."""
    if not value:
        return Rejected(Reason.EMPTY, "the message has no value")
    try:
        text = value.decode()
    except UnicodeDecodeError as error:
        return Rejected(Reason.UNDECODABLE, f"not UTF-8: byte {error.start} is {value[error.start]:#04x}")
    if form == "text" or (form == "auto" and text.lstrip()[:1] != "{"):
        line = text.rstrip("\r\n")
        return line if line.strip() else Rejected(Reason.EMPTY, "the message is blank")
    return _decode_json(text.strip("\ufeff \t\r\n"), depth_max)


def _decode_json(text: str, depth_max: int) -> Pairs | Rejected:
    try:
        document = _JSON.decode(text)
    except json.JSONDecodeError as error:
        return Rejected(Reason.UNDECODABLE, f"not JSON: {error.msg} at character {error.pos}")
    except RecursionError:
        return Rejected(Reason.TOO_DEEP, f"nested deeper than {depth_max} levels")
    if not isinstance(document, Pairs):
        return Rejected(Reason.UNDECODABLE, f"JSON, but not an object: {text[:40]!r}")
    if text.count("{") + text.count("[") > depth_max and _depth(document) > depth_max:
        return Rejected(Reason.TOO_DEEP, f"nested deeper than {depth_max} levels")
    return document


def _depth(document: Any) -> int:
    deepest, level = 0, [document]
    while level:
        deepest += 1
        level = [child for node in level for child in _children(node) if isinstance(child, list)]
    return deepest


def _children(node: Any) -> Sequence[Any]:
    return [value for _, value in node] if isinstance(node, Pairs) else node


def json_text(value: Any) -> str:
    """The JSON text of a decoded value: numbers as they came, members in order, no blanks."""
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, Pairs):
        return "{" + ",".join(f"{_quoted(key)}:{json_text(member)}" for key, member in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(json_text, value)) + "]"
    return _quoted(value) if isinstance(value, str) else json.dumps(value)


def _quoted(text: str) -> str:
    quoted = json.dumps(text, ensure_ascii=False)
    return quoted if is_text(quoted) else json.dumps(text)


def is_text(value: str) -> bool:
    """Whether the string can be written as UTF-8 (a lone surrogate cannot)."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
