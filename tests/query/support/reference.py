"""Searches answered in plain Python over the records themselves: what both engines must agree with. And a
generator of queries."""

import json
import random
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from query.language.search_language import (
    All,
    Between,
    Either,
    Everything,
    Exists,
    Match,
    Node,
    Not,
    Wildcard,
)
from query.model.instant import parse_period

TYPES = {"bytes": "long", "ok": "boolean", "took": "double"}
WORDS = [
    "timeout",
    "Refused",
    "GET",
    "/api/v1",
    "50%",
    "it's",
    'say "no"',
    "Ärger",
    "東京",
    "naïve",
    "a_b",
    "x-y",
    "10.0.0.1",
    "back\\slash",
    "tab\there",
    "İx",
    "ΣΙΓΜΑ",
    "emoji💩",
]
_NUMBER = re.compile(r"-?[0-9]{1,30}(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,2})?")
_TEXT_FIELDS = ("message", "severity", "_overflow", "path", "status")
START = datetime(2026, 2, 3, 4, 0, tzinfo=UTC)


def records(count: int, seed: int) -> list[dict[str, Any]]:
    """Records with nulls, unicode, quotes and numbers as text."""
    r = random.Random(seed)
    return [
        {
            "timestamp": START + timedelta(seconds=r.randint(0, 7200), microseconds=r.randint(0, 999_999)),
            "severity": r.choice(["ERROR", "info", None]),
            "message": r.choice(
                [
                    None,
                    " ".join(r.choices(WORDS, k=r.randint(0, 4))),
                    r.choice(WORDS) + r.choice(["", "s", "_1", "!", "\n"]) + r.choice(WORDS),
                ]
            ),
            "path": r.choice([None, "", "/api/v1/items", "/API", "/x y"]),
            "status": r.choice([None, "200", "404", "500", "5e2", "abc", "-1", "0.5"]),
            "bytes": r.choice([None, 0, -5, 10, 2**40]),
            "ok": r.choice([None, True, False]),
            "took": r.choice([None, 0.5, 1e6, -2.25]),
            "_errors": r.choice([None, None, [_error(r)], [_error(r), _error(r)]]),
            "_overflow": r.choice([None, json.dumps({"late": r.choice(WORDS), "n": 7}, ensure_ascii=False)]),
        }
        for _ in range(count)
    ]


def _error(r: random.Random) -> dict[str, str | None]:
    value = r.choice([None, r.choice(WORDS), json.dumps([r.choice(WORDS)], ensure_ascii=False)])
    return {"field": "/" + r.choice(WORDS), "value": value, "reason": "wrong_type"}


def random_query(r: random.Random, depth: int = 0) -> str:
    """A query of the language, most of them matching something."""
    if depth < 3 and r.random() < 0.45:
        one, other = random_query(r, depth + 1), random_query(r, depth + 1)
        return r.choice(
            [f"({one} AND {other})", f"({one} OR {other})", f"(NOT {one})", f"({one} {other})", f"(-{one})"]
        )
    quoted = '"' + r.choice(WORDS).replace("\\", "\\\\").replace('"', '\\"') + '"'
    field = r.choice(["message", "path", "status", "severity"])
    low, high = sorted(r.sample([-5, 0, 10, 200, 404, 500], 2))
    number_field = r.choice(["bytes", "took", "status"])
    return r.choice(
        [
            quoted,
            f"{field}:{quoted}",
            f"{field}:*",
            r.choice(
                [
                    "refus*",
                    "message:r*f*s*d",
                    "message:a*a*?",
                    "*ap*v?*",
                    "time?ut",
                    "*gma",
                    "message:/api*",
                    "naïve",
                    "status:5*",
                    "a?b",
                    "10.0.*.1",
                ]
            ),
            f"{number_field}:[{low} TO {high}]",
            f"{number_field}:{{{low} TO {high}}}",
            f"{number_field}:>={low}",
            f"{number_field}:<{high}",
            "status:[a TO z]",
            f"ok:{r.choice(['true', 'false'])}",
            f"bytes:{r.choice([0, -5, 10, 2**40])}",
            'path:""',
            "_errors:*",
            "timestamp:[2026-02-03T04:10 TO 2026-02-03T05}",
            "timestamp:2026-02-03T04",
            "severity:error",
        ]
    )


def matches(node: Node, row: Mapping[str, Any], *, everywhere: bool = False) -> bool:
    """Whether a record matches. `everywhere`: as an erasure looks for words."""
    if isinstance(node, Everything):
        return True
    if isinstance(node, All):
        return all(matches(child, row, everywhere=everywhere) for child in node.children)
    if isinstance(node, Either):
        return any(matches(child, row, everywhere=everywhere) for child in node.children)
    if isinstance(node, Not):
        return not matches(node.child, row, everywhere=everywhere)
    if isinstance(node, Match) and node.field is None:
        texts = [row.get(name) for name in _TEXT_FIELDS] + (
            [entry["value"] for entry in row.get("_errors") or ()] if everywhere else []
        )
        spellings = [node.pieces, *([_in_json(node.pieces)] if everywhere else [])]
        return any(_text_matches(text, tuple(pieces)) for text in texts for pieces in spellings)
    value = row.get(node.field or "")
    if value is None:
        return False
    if isinstance(node, Exists):
        return True
    return _holds(node, value) if isinstance(node, Match) else _lies_between(node, value)


def _in_json(pieces: Sequence[str | Wildcard]) -> list[str | Wildcard]:
    return [
        json.dumps(piece, ensure_ascii=False)[1:-1] if isinstance(piece, str) else piece for piece in pieces
    ]


def _holds(node: Match, value: Any) -> bool:
    if isinstance(value, bool):
        return value == (node.text.lower() == "true")
    if isinstance(value, int | float):
        return float(value) == float(node.text)
    if isinstance(value, datetime):
        period = parse_period(node.text)
        return period is not None and period.start <= value < period.end
    return _text_matches(value, tuple(node.pieces))


def _lies_between(node: Between, value: Any) -> bool:
    low, high = node.low, node.high
    if isinstance(value, datetime):
        first, last = parse_period(low or "0001-01-02"), parse_period(high or "9999-12-30")
        assert first is not None
        assert last is not None
        return (
            (first.start if node.low_included else first.end)
            <= value
            < (last.end if node.high_included else last.start)
        )
    bounds = [bound for bound in (low, high) if bound is not None]
    if isinstance(value, str) and all(_NUMBER.fullmatch(bound) for bound in bounds):
        if not _NUMBER.fullmatch(value):
            return False
        value = float(value)
    compared: Any = (lambda bound: bound) if isinstance(value, str) else float
    if low is not None and not (value >= compared(low) if node.low_included else value > compared(low)):
        return False
    return high is None or (value <= compared(high) if node.high_included else value < compared(high))


@lru_cache(1 << 18)  # records share their texts, and queries their words
def _text_matches(value: str | None, pieces: tuple[str | Wildcard, ...]) -> bool:
    if value is None:
        return False
    if pieces == ("",):
        return value == ""
    text = lower(value)
    wanted = [piece if isinstance(piece, Wildcard) else lower(piece) for piece in pieces]
    first, last = wanted[0], wanted[-1]
    for start in range(len(text) + 1):
        if isinstance(first, str) and not text.startswith(first, start):
            continue
        if isinstance(first, str) and is_word(first[0]) and start > 0 and is_word(text[start - 1]):
            continue
        if any(
            not (isinstance(last, str) and is_word(last[-1]) and end < len(text) and is_word(text[end]))
            for end in _ends(text, start, wanted)
        ):
            return True
    return False


def _ends(text: str, at: int, pieces: Sequence[str | Wildcard]) -> set[int]:
    ends = {at}
    for piece in pieces:
        following: set[int] = set()
        for end in ends:
            if isinstance(piece, str):
                following |= {end + len(piece)} if text.startswith(piece, end) else set()
            elif piece is Wildcard.ONE:
                following |= {end + 1} if end < len(text) and text[end] not in " \t\n\r\x1f" else set()
            else:
                following.add(end)
                while end < len(text) and text[end] not in " \t\n\r\x1f":
                    end += 1
                    following.add(end)
        ends = following
    return ends


# The letters whose two cases Unicode 16 made known: to some engines they are one letter, so they are to all.
UNICODE_16 = dict(zip("\u1c89\ua7cb\ua7cc\ua7da\ua7dc", "\u1c8a\u0264\ua7cd\ua7db\u019b", strict=True))
UNICODE_16 |= {chr(0x10D50 + at): chr(0x10D70 + at) for at in range(22)}


@lru_cache(1 << 16)
def lower(text: str) -> str:
    """Lower case, character by character."""
    return "".join(UNICODE_16.get(character, character.lower()[0]) for character in text)


def is_word(character: str) -> bool:
    """For characters in lower case."""
    return (
        (character.isascii() and (character.isalnum() or character == "_"))
        or "\u00c0" <= character <= "\u024f"
        or "\u0370" <= character <= "\u052f"
    )
