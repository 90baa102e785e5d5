"""Walks through the values of a record, and gives the record that is left when all is masked.

Twice: once to find the texts that patterns are asked about, so that each is asked for all messages of a batch
at once; then to put in their places what is left of them.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ingest.decode.column_name import column_name
from ingest.decode.formats.json_object import Json, Pairs, json_text
from ingest.mask.rule_set import Cutters, RuleSet
from lake.settings import MaskRule

# Arrays are JSON text in a record (json_object.py); what is in them is read when it is to be masked.
_read_array = json.JSONDecoder(
    object_pairs_hook=Pairs, parse_int=Json, parse_float=Json, parse_constant=Json, strict=False
).decode


class Texts(Protocol):
    """What becomes of texts that patterns are asked about."""

    def __call__(self, cutters: Cutters, text: str) -> str:
        """A text as it is after these rules."""


class Found:
    """Notes texts, and leaves them as they are."""

    def __init__(self) -> None:
        self.texts: defaultdict[Cutters, set[str]] = defaultdict(set)

    def __call__(self, cutters: Cutters, text: str) -> str:
        if text:
            self.texts[cutters].add(text)
        return text


class Masked:
    """Puts what is left of texts in their places, and counts."""

    def __init__(self, rules: RuleSet, found: Found, counts: Counter[MaskRule]) -> None:
        self._counts = counts
        self._changed: Mapping[Cutters, Mapping[str, tuple[str, Sequence[MaskRule]]]] = {
            cutters: rules.cut(cutters, texts) for cutters, texts in found.texts.items()
        }

    def __call__(self, cutters: Cutters, text: str) -> str:
        changed = self._changed.get(cutters, {}).get(text)
        if changed is None:
            return text
        self._counts.update(changed[1])
        return changed[0]

    @property
    def changes_any(self) -> bool:
        """Whether any of the texts is another one now."""
        return any(self._changed.values())


class Walk:
    """Masks values, and counts by rule. What is not changed is given back itself, so that callers can
    tell."""

    def __init__(self, rules: RuleSet, texts: Texts, counts: Counter[MaskRule]) -> None:
        self._rules, self._texts, self._counts = rules, texts, counts

    def count(self, rule: MaskRule) -> None:
        """Counts a value that a rule has masked."""
        self._counts[rule] += 1

    def members(self, pairs: Pairs, column: str, images: frozenset[str] = frozenset()) -> Pairs:
        """The members of an object that has this column; the empty one is the record itself. `images`:
        members that are not columns but hold the record's own."""
        texts, everywhere, of_column = self._texts, self._rules.everywhere, self._rules.of_column
        after, is_changed = Pairs(), False
        for key, value in pairs:
            name = texts(everywhere, key) if everywhere else key
            own = "" if key in images else column_name(column, key)
            taken, cutters = of_column(own) if own else (None, everywhere)
            if taken is not None:
                self.count(taken)
                is_changed = True
                if taken.action == "drop":
                    continue
                left = self._hashed(value)
            elif type(value) is str:
                left = texts(cutters, value) if cutters else value
            else:
                left = self.value(value, own, cutters)
            if left is not value or name is not key:
                is_changed = True
            after.append((name, left))
        return after if is_changed else pairs

    def change(self, pairs: Pairs, images: frozenset[str]) -> Pairs:
        """A message about a row: columns of the row are named in its `images`, or beside these. What Kafka
        Connect says of their types holds no values."""
        payload = payload_of(pairs)
        if payload is None:
            return self.members(pairs, "", images)
        left = self.members(payload, "", images)
        if left is payload:
            return pairs
        return Pairs((key, left if value is payload else value) for key, value in pairs)

    def value(self, value: Any, column: str, cutters: Cutters) -> Any:
        """A value of a column."""
        if value is None or value is True or value is False:
            return value
        if isinstance(value, Pairs):
            return self.members(value, column)
        if isinstance(value, Json):
            if value.startswith("["):
                items = _read_array(value)
                kept = self._items(items, column, cutters)
                return value if kept is items else Json(_text(kept))
            if value == "{}":
                return value
        elif isinstance(value, list):
            return self._items(value, column, cutters)
        if not cutters:
            return value
        text = str(value) if isinstance(value, Json) else value
        left = self._texts(cutters, text)
        return value if left is text or left == text else left

    def _items(self, items: list[Any], column: str, cutters: Cutters) -> list[Any]:
        left = [self.value(item, column, cutters) for item in items]
        return items if all(new is old for new, old in zip(left, items, strict=True)) else left

    def hashed(self, text: str, rule: MaskRule) -> str:
        """A text of which nothing but its hash is left."""
        self.count(rule)
        return self._rules.hashed(text)

    def _hashed(self, value: Any) -> Any:
        if value is None or value == Json("{}"):
            return value
        if isinstance(value, Pairs):
            return Pairs((key, self._hashed(member)) for key, member in value)
        return self._rules.hashed(str(value))


def payload_of(pairs: Pairs) -> Pairs | None:
    """Returns the payload of a message of Kafka Connect's JSON converter, where it is an object; None of
    another message (ingest/changes/connect_message.py)."""
    members = dict(pairs)
    if len(pairs) != 2 or members.keys() != {"schema", "payload"}:
        return None
    schema, payload = members["schema"], members["payload"]
    is_schema = isinstance(schema, Pairs) and any(name == "type" for name, _ in schema)
    return payload if is_schema and isinstance(payload, Pairs) else None


def _text(value: Any) -> str:
    """The JSON text of a value in an array."""
    if isinstance(value, Pairs):
        return "{" + ",".join(f"{json_text(key)}:{_text(member)}" for key, member in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_text, value)) + "]"
    if value is True or value is False:
        return "true" if value else "false"
    return json_text(value)
