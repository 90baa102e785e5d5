"""Shapes: what records of a table look like, learned from a few, so that the others decode straight into C
structs.

A shape is a tree of the keys seen so far with the kinds of their values. A record that has an unknown key,
another kind, or anything out of the ordinary does not fit, and takes the exact path (`decoder`, `row`).
Fitting or not never changes what is stored, only how fast. Shapes are shared by signature: ten thousand
tenants of one application have one.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from ingest.decode.column_name import column_name, is_usable, pointer
from ingest.decode.decoder import Json, Pairs, is_text
from ingest.decode.formats.registry import BATCH_ROOTS
from lake.tenant import TableId

TEXT, INTEGER, BOOLEAN, RAW = "text", "integer", "boolean", "raw"
LEAVES_MAX = 1_000
SHARED_MAX = 2_048
TRIED_FIRST = 4
Kinds = frozenset[str]
Tree = dict[str, "Kinds | Tree"]


@dataclass(frozen=True, slots=True)
class Leaf:
    """A value's place: `route` are field positions from the root struct down, `kinds` what it has been."""

    column: str
    path: str
    kinds: Kinds
    route: tuple[int, ...]


@dataclass(frozen=True)
class Shape:
    """A learned shape. `decode` gives structs with None for what is absent, `decode_strictly` with UNSET, to
    tell absent from null."""

    signature: tuple[Any, ...]
    leaves: Sequence[Leaf]
    # Routes of nested objects, parents first, each with its number of members.
    branches: Sequence[tuple[tuple[int, ...], int]]
    decode: Any = field(compare=False)
    decode_strictly: Any = field(compare=False)


def build(tree: Tree) -> Shape:
    """The shape of a tree. Two paths that would share a column: the first stays, records with the other take
    the exact path."""
    pruned = _pruned(tree, "", "", set())
    leaves, branches = _places(pruned)
    loose, strict = _struct(pruned, None), _struct(pruned, msgspec.UNSET)
    return Shape(
        _signature(pruned),
        leaves,
        branches,
        msgspec.json.Decoder(loose).decode,
        msgspec.json.Decoder(strict).decode,
    )


def leaves_of(tree: Tree) -> Sequence[Leaf]:
    """The leaves of a tree, in its order; without those no shape can have."""
    return _places(_pruned(tree, "", "", set()))[0]


def learn(tree: Tree, pairs: Pairs, *, may_grow: bool = True) -> Tree:
    """The tree with one more record in it; the given one stays as it is. `may_grow`: whether it learns new
    keys, too."""
    grown = dict(tree)
    for key, value in pairs:
        before = grown.get(key)
        if before is None and not may_grow:
            continue
        if isinstance(value, Pairs):
            if before is None or before == frozenset() or isinstance(before, dict):
                grown[key] = learn(before if isinstance(before, dict) else {}, value, may_grow=may_grow)
        elif not isinstance(before, dict):
            grown[key] = (before or frozenset()) | _kind(value)
    return grown


def _size(tree: Tree) -> int:
    return sum(1 + (_size(node) if isinstance(node, dict) else 0) for node in tree.values())


def _kind(value: str | None) -> Kinds:
    if value is None:
        return frozenset()
    if not isinstance(value, Json):
        return frozenset((TEXT,))
    if value in ("true", "false"):
        return frozenset((BOOLEAN,))
    return frozenset((INTEGER,)) if value.lstrip("-").isdigit() else frozenset((RAW,))


def _pruned(tree: Tree, prefix: str, path: str, taken: set[str]) -> Tree:
    """The tree without what a struct cannot stand for: keys that need escapes, unusable names, columns that
    another path has, the root of a message with several records."""
    kept: Tree = {}
    for key, node in tree.items():
        if not path and key in BATCH_ROOTS:  # what fits a shape is one record
            continue
        if not is_text(key) or any(c in '"\\' or c < " " for c in key) or len(taken) >= LEAVES_MAX:
            continue
        name, where = column_name(prefix, key), pointer(path, key)
        if isinstance(node, dict):
            kept[key] = _pruned(node, name, where, taken)
        elif is_usable(name) and name not in taken:
            taken.add(name)
            kept[key] = node
    return kept


def _places(pruned: Tree) -> tuple[Sequence[Leaf], Sequence[tuple[tuple[int, ...], int]]]:
    leaves: list[Leaf] = []
    branches: list[tuple[tuple[int, ...], int]] = []
    _place(pruned, "", "", (), leaves, branches)
    return tuple(leaves), tuple(branches)


def _place(
    tree: Tree,
    prefix: str,
    path: str,
    route: tuple[int, ...],
    leaves: list[Leaf],
    branches: list[tuple[tuple[int, ...], int]],
) -> None:
    for at, (key, node) in enumerate(tree.items()):
        name, where, here = column_name(prefix, key), pointer(path, key), (*route, at)
        if isinstance(node, dict):
            branches.append((here, len(node)))
            _place(node, name, where, here, leaves, branches)
        else:
            leaves.append(Leaf(name, where, node, here))


def _signature(tree: Tree) -> tuple[Any, ...]:
    return tuple((key, _signature(node) if isinstance(node, dict) else node) for key, node in tree.items())


def _struct(tree: Tree, absent: Any) -> Any:
    """A msgspec struct of the tree; what is absent has the given value, what is unknown does not decode."""
    names = {f"f{at}": key for at, key in enumerate(tree)}
    fields = [(name, _annotation(tree[key], absent), absent) for name, key in names.items()]
    return msgspec.defstruct("Record", fields, rename=names, forbid_unknown_fields=True, gc=False)


def _annotation(node: Kinds | Tree, absent: Any) -> Any:
    base: Any
    if isinstance(node, dict):
        base = _struct(node, absent)
    elif RAW in node:
        base = msgspec.Raw
    else:
        base = None
        for kind, python in ((TEXT, str), (INTEGER, int), (BOOLEAN, bool)):
            if kind in node:
                base = python if base is None else base | python
    annotation = base if base is None or base is msgspec.Raw else base | None
    if absent is None:
        return annotation
    return msgspec.UnsetType | None if annotation is None else annotation | msgspec.UnsetType


class Shapes:
    """The shapes of all tables, and of each what has been learned. Not thread-safe."""

    def __init__(self) -> None:
        self._of: dict[TableId, tuple[Tree, Shape]] = {}
        self._shared: OrderedDict[tuple[Any, ...], Shape] = OrderedDict()

    def of(self, table: TableId, sample: bytes) -> Shape | None:
        """The table's shape; for a table never met, one of another table that fits its first record."""
        if (known := self._of.get(table)) is not None:
            return known[1]
        for shape in self._recent():
            try:
                shape.decode(sample)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                continue
            self._of[table] = ({}, shape)
            return shape
        return None

    def learn(self, table: TableId, records: Sequence[Pairs]) -> Shape:
        """Teaches the table's shape these records; the same object again where they hold nothing new."""
        tree, old = self._of.get(table, ({}, None))
        tree = tree or (_tree(old) if old is not None else {})
        for pairs in records:
            tree = learn(tree, pairs, may_grow=_size(tree) < LEAVES_MAX)
        new = build(tree)
        shape = self._shared.setdefault(new.signature, new)
        self._shared.move_to_end(new.signature)
        if len(self._shared) > SHARED_MAX:
            self._shared.popitem(last=False)
        self._of[table] = (tree, shape)
        return shape

    def _recent(self) -> Iterator[Shape]:
        for _, shape in zip(range(TRIED_FIRST), reversed(self._shared.values()), strict=False):
            yield shape


def _tree(shape: Shape) -> Tree:
    def grow(signature: Sequence[tuple[str, Any]]) -> Tree:
        return {key: grow(node) if isinstance(node, tuple) else node for key, node in signature}

    return grow(shape.signature)
