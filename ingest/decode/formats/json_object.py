"""One JSON object to its members, exactly, or a `Rejected` that says why not.

What is not text keeps the characters the record spells it with, duplicate keys are seen, NaN and Infinity
pass as the numbers they claim to be.
"""

import json
import re
from collections.abc import Callable
from json.decoder import scanstring  # type: ignore[attr-defined]
from json.scanner import make_scanner
from typing import Any, cast

from lake.errors import Reason, Rejected


class Json(str):
    """The JSON text of a value that is neither text nor object, as the record spells it: a number, true,
    false, an array, `{}`."""

    __slots__ = ()


class Pairs(list[tuple[str, Any]]):
    """A JSON object as its members in order, duplicate keys included; a value is str, Json, Pairs or None."""

    __slots__ = ()


# What may stand before and after JSON text: blanks and a byte order mark.
BLANKS = "\ufeff \t\r\n"
BLANK_BYTES = BLANKS.encode()
# Numbers are skipped, not read: Python refuses integers of thousands of digits.
_decoder = json.JSONDecoder(strict=False, parse_int=str, parse_float=str)
_scan = cast("Callable[[str, int], tuple[Any, int]]", make_scanner(cast("Any", _decoder)))
_TRUE, _FALSE, _EMPTY = Json("true"), Json("false"), Json("{}")


def _object(pairs: list[tuple[str, Any]]) -> Pairs | Json:
    for at, (key, value) in enumerate(pairs):
        if value is True or value is False:
            pairs[at] = key, _TRUE if value else _FALSE
    return Pairs(pairs) if pairs else _EMPTY


_scan_object = make_scanner(
    cast(
        "Any",
        json.JSONDecoder(
            object_pairs_hook=_object, parse_int=Json, parse_float=Json, parse_constant=Json, strict=False
        ),
    )
)
_blank = re.compile(r"[ \t\r\n]*").match


def parse_object(text: str, depth_max: int) -> Pairs | Rejected:
    """Parses a text that is one JSON object and nothing else, at most `depth_max` levels deep (RFC 8259, and
    the NaN and Infinity of Python and JavaScript)."""
    if text[:1] != "{":
        return Rejected(Reason.UNDECODABLE, f"not a JSON object: {text[:40]!r}")
    if (whole := _parsed_whole(text, depth_max)) is not None:
        return whole
    try:
        pairs, end = _members(text, 1, depth_max)
        if end != len(text):
            return Rejected(Reason.UNDECODABLE, f"not JSON: something follows the object at character {end}")
    except (json.JSONDecodeError, StopIteration, IndexError) as error:
        return Rejected(Reason.UNDECODABLE, f"not JSON: broken at character {_position(error, text)}")
    except RecursionError:
        return Rejected(Reason.TOO_DEEP, f"nested deeper than {depth_max} levels")
    return pairs


def _parsed_whole(text: str, depth_max: int) -> Pairs | None:
    """An object without arrays, whose text only a walk through the members tells, and surely not too deep;
    None where it is another, or none."""
    if "[" in text or text.count("{") > depth_max:
        return None
    try:
        found, end = _scan_object(text, 0)
    except (ValueError, StopIteration, RecursionError):
        return None
    if end != len(text):
        return None
    return found if isinstance(found, Pairs) else Pairs()


def _position(error: Exception, text: str) -> int:
    """Where a text stopped being JSON; its end, where that is missing."""
    if isinstance(error, json.JSONDecodeError):
        return error.pos
    return int(error.value) if isinstance(error, StopIteration) else len(text)


def array_items(text: str, depth_max: int) -> list[str] | None:
    """The items of a text that is one JSON array, as it spells them; None where it is none, or holds items
    deeper than `depth_max` levels."""
    if text[:1] != "[":
        return None
    try:
        items, end = _items(text, _skip(text, 1), depth_max + 1)
    except (json.JSONDecodeError, StopIteration, IndexError, RecursionError):
        return None
    return items if end == len(text) else None


def _items(text: str, at: int, levels: int) -> tuple[list[str], int]:
    items: list[str] = []
    if text[at] == "]":
        return items, at + 1
    while True:
        _, end = _value(text, at, levels)
        items.append(text[at:end])
        at = _skip(text, end)
        if text[at] == "]":
            return items, at + 1
        if text[at] != ",":
            raise json.JSONDecodeError("a comma is missing", text, at)
        at = _skip(text, at + 1)


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
    if (
        first == "["
        and text.count("[", at, end) + text.count("{", at, end) >= levels
        and _depth(parsed) >= levels
    ):
        raise RecursionError
    return None if parsed is None else Json(text[at:end]), end


def _skip(text: str, at: int) -> int:
    if text[at : at + 1] > " ":
        return at
    match = _blank(text, at)
    assert match is not None
    return match.end()


def _depth(document: Any) -> int:
    deepest, level = 0, [document]
    while level:
        deepest += 1
        below = []
        for node in level:
            children = node.values() if isinstance(node, dict) else node
            below += [child for child in children if isinstance(child, list | dict)]
        level = below
    return deepest


def json_text(value: str | Pairs | None) -> str:
    """The JSON text of a decoded value."""
    if isinstance(value, Pairs):
        return "{" + ",".join(f"{json_text(key)}:{json_text(member)}" for key, member in value) + "}"
    if isinstance(value, Json):
        return str(value)
    quoted = json.dumps(value, ensure_ascii=False)
    return quoted if is_text(quoted) else json.dumps(value)


def is_text_value(value: Any) -> bool:
    """Whether a member of `Pairs` is text, not the JSON text of something else."""
    return isinstance(value, str) and not isinstance(value, Json)


def is_text(value: str) -> bool:
    """Whether the string can be written as UTF-8 (a lone surrogate cannot)."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
