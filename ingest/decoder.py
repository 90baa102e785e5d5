"""Bytes of a message to fields: JSON objects and text lines, exactly, or a `Rejected` that says why not.

This is the exact path: what is not text keeps the characters the record spells it with, duplicate keys are seen, NaN and Infinity pass as
the numbers they claim to be. Most records take the fast path (`shape`), which gives the same fields or none.
"""

import json
import re
from collections.abc import Callable
from json.decoder import scanstring  # type: ignore[attr-defined]
from json.scanner import make_scanner
from typing import Any, Literal, cast

from lake.errors import Reason, Rejected


class Json(str):
    """The JSON text of a value that is neither text nor object, as the record spells it: a number, true, false, an array, `{}`."""

    __slots__ = ()


class Pairs(list[tuple[str, Any]]):
    """A JSON object as its members in order, duplicate keys included; a value is str, Json, Pairs or None."""

    __slots__ = ()


Fields = Pairs | str  # a JSON object, or a line of text
_scan = cast("Callable[[str, int], tuple[Any, int]]", make_scanner(cast("Any", json.JSONDecoder(strict=False))))
_blank = re.compile(r"[ \t\r\n]*").match
_EDGE = "\ufeff \t\r\n"


def decode(value: bytes | None, form: Literal["auto", "json", "text"], depth_max: int) -> Fields | Rejected:
    """Decodes one message: a JSON object gives `Pairs`, a text line gives str."""
    if not value:
        return Rejected(Reason.EMPTY, "the message has no value")
    try:
        text = value.decode()
    except UnicodeDecodeError as error:
        return Rejected(Reason.UNDECODABLE, f"not UTF-8: byte {error.start} is {value[error.start]:#04x}")
    if form == "text" or (form == "auto" and text.lstrip(_EDGE)[:1] != "{"):
        line = text.rstrip("\r\n")
        return line if line.strip() else Rejected(Reason.EMPTY, "the message is blank")
    return _decode_json(text.strip(_EDGE), depth_max)


def _decode_json(text: str, depth_max: int) -> Pairs | Rejected:
    if text[:1] != "{":
        return Rejected(Reason.UNDECODABLE, f"not a JSON object: {text[:40]!r}")
    try:
        pairs, end = _members(text, 1, depth_max)
        if end != len(text):
            return Rejected(Reason.UNDECODABLE, f"not JSON: something follows the object at character {end}")
    except (json.JSONDecodeError, StopIteration, IndexError) as error:
        where = error.pos if isinstance(error, json.JSONDecodeError) else error.value if isinstance(error, StopIteration) else len(text)
        return Rejected(Reason.UNDECODABLE, f"not JSON: broken at character {where}")
    except RecursionError:
        return Rejected(Reason.TOO_DEEP, f"nested deeper than {depth_max} levels")
    return pairs


def _members(text: str, at: int, levels: int) -> tuple[Pairs, int]:
    """The members of an object whose brace stands before `at`, and where it ends."""
    if levels <= 0:
        raise RecursionError
    pairs = Pairs()
    at = _skip(text, at)
    if text[at] == "}":
        return pairs, at + 1
    while True:
        if text[at] != '"':
            raise json.JSONDecodeError("a key is missing", text, at)
        key, at = scanstring(text, at + 1, False)
        at = _skip(text, at)
        if text[at] != ":":
            raise json.JSONDecodeError("a colon is missing", text, at)
        value, at = _value(text, _skip(text, at + 1), levels)
        pairs.append((key, value))
        at = _skip(text, at)
        if text[at] == "}":
            return pairs, at + 1
        if text[at] != ",":
            raise json.JSONDecodeError("a comma is missing", text, at)
        at = _skip(text, at + 1)


def _value(text: str, at: int, levels: int) -> tuple[Any, int]:
    first = text[at]
    if first == '"':
        value, end = scanstring(text, at + 1, False)
        return value, end
    if first == "{":
        pairs, end = _members(text, at + 1, levels - 1)
        return pairs or Json("{}"), end
    parsed, end = _scan(text, at)
    if first == "[" and text.count("[", at, end) + text.count("{", at, end) >= levels and _depth(parsed) >= levels:
        raise RecursionError
    return None if parsed is None else Json(text[at:end]), end


def _skip(text: str, at: int) -> int:
    match = _blank(text, at)
    assert match is not None
    return match.end()


def _depth(document: Any) -> int:
    deepest, level = 0, [document]
    while level:
        deepest += 1
        level = [child for node in level for child in (node.values() if isinstance(node, dict) else node) if isinstance(child, list | dict)]
    return deepest


def json_text(value: str | Pairs | None) -> str:
    """The JSON text of a decoded value."""
    if isinstance(value, Pairs):
        return "{" + ",".join(f"{json_text(key)}:{json_text(member)}" for key, member in value) + "}"
    if isinstance(value, Json):
        return str(value)
    quoted = json.dumps(value, ensure_ascii=False)
    return quoted if is_text(quoted) else json.dumps(value)


def is_text(value: str) -> bool:
    """Whether the string can be written as UTF-8 (a lone surrogate cannot)."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
