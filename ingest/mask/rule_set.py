"""The rules that hold for some messages: what becomes of a field, a header, a key."""

import hashlib
import hmac
import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ingest.decode.column_name import column_name
from ingest.decode.formats.json_object import is_text
from ingest.mask.patterns import Cut, cuts_of, search_of
from lake.settings import MaskRule

HASHED = "hmac-sha256:"
_IS_HASHED = re.compile(r"hmac-sha256:[0-9a-f]{64}", re.ASCII).fullmatch
COLUMNS_MAX = 65_536
Cutters = tuple[int, ...]  # numbers of rules


class Fate(NamedTuple):
    """What becomes of a value: the rule that drops or hashes it, and those that cut it."""

    taken: MaskRule | None
    cutters: Cutters


class RuleSet:
    """Rules, in their order.

    `key`: of hashes. `keeps_hashes`: what is a hash already stays one, which is for messages that have been
    masked; of others anybody could write one in front of what is to be hidden.
    """

    def __init__(
        self, topic: str, rules: Sequence[MaskRule], key: bytes, *, keeps_hashes: bool = False
    ) -> None:
        self.rules = rules
        self._key = key
        self._keeps_hashes = keeps_hashes
        self._cuts: Sequence[Sequence[Cut]] = [cuts_of(rule, topic) for rule in rules]
        self._fields = [[_parts(name) for name in rule.fields] for rule in rules]
        self._fates: dict[str, Fate] = {}
        self.has_fields = any(rule.fields for rule in rules)
        self.cuts = any(rule.action == "cut" for rule in rules)
        self.takes = any(rule.action != "cut" for rule in rules)
        self._search = search_of(rules)
        self.everywhere: Cutters = tuple(
            at for at, rule in enumerate(rules) if rule.action == "cut" and not rule.is_told
        )
        self.of_key = self._fate(lambda _, rule: rule.key)

    def may_cut(self, texts: Sequence[str | None]) -> list[bool]:
        """Returns of texts, whole messages, whether they may hold anything to be cut; of None one does not
        know."""
        if not self.cuts or self._search is None:
            return [self.cuts] * len(texts)
        found = pc.match_substring_regex(pa.array(texts, pa.string()), self._search).to_pylist()
        return [does is not False for does in found]

    def of_column(self, column: str) -> Fate:
        """Returns what becomes of the value of a column."""
        fate = self._fates.get(column)
        if fate is None:
            if len(self._fates) >= COLUMNS_MAX:
                self._fates.clear()
            fate = self._fates[column] = self._fate(
                lambda at, _: any(_matches(column, parts) for parts in self._fields[at])
            )
        return fate

    def of_header(self, name: str) -> Fate:
        """Returns what becomes of a header."""
        return self._fate(lambda _, rule: name in rule.headers)

    def _fate(self, is_told: Callable[[int, MaskRule], bool]) -> Fate:
        told = [(at, rule) for at, rule in enumerate(self.rules) if is_told(at, rule)]
        taken = next((rule for _, rule in told if rule.action != "cut"), None)
        cutting = {at for at, rule in told if rule.action == "cut"}
        return Fate(taken, tuple(sorted(cutting | set(self.everywhere))))

    def hashed(self, text: str) -> str:
        """Returns what stands in place of a text."""
        if self._keeps_hashes and _IS_HASHED(text):
            return text
        return digest(self._key, text.encode("utf-8", "surrogatepass"))

    def cut(self, cutters: Cutters, texts: Iterable[str]) -> dict[str, tuple[str, Sequence[MaskRule]]]:
        """Returns the texts that rules change, each as it is then and with the rules that did it."""
        before = list(texts)
        # A lone surrogate is no character, and no pattern asks for one.
        now = [text if is_text(text) else text.encode("utf-8", "replace").decode() for text in before]
        did: dict[int, list[MaskRule]] = {}
        for number in cutters:
            then = now
            for cut in self._cuts[number]:
                then = cut(then)
            for at, (old, new) in enumerate(zip(now, then, strict=True)):
                if old != new:
                    did.setdefault(at, []).append(self.rules[number])
            now = then
        return {before[at]: (now[at], rules) for at, rules in did.items()}


def digest(key: bytes, data: bytes) -> str:
    """Returns the hash of bytes, as masking writes it."""
    return HASHED + hmac.digest(key, data, hashlib.sha256).hex()


def _parts(name: str) -> list[str]:
    """The parts of a field's name between its stars, spelled as columns are."""
    return column_name("", name).split("*")


def _matches(column: str, parts: Sequence[str]) -> bool:
    """Whether a column has the parts one behind the other, from its beginning to its end."""
    first, last = parts[0], parts[-1]
    if len(parts) == 1:
        return column == first
    if not column.startswith(first) or not column.endswith(last) or len(column) < len(first) + len(last):
        return False
    at, end = len(first), len(column) - len(last)
    for part in parts[1:-1]:
        found = column.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True
