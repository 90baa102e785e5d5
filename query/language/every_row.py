"""Whether a search is every row by its form alone: `a OR NOT a`, `* OR a`, `timestamp:*`. What only the rows
can tell is not seen here."""

from collections.abc import Mapping

from lake.log_schema import SYSTEM_FIELDS, fold
from query.language.search_language import All, Between, Either, Everything, Exists, Match, Node, Not

# All assignments are tried: a thousand at most.
LEAVES_MAX = 10
_ALWAYS_THERE = frozenset(field["name"] for field in SYSTEM_FIELDS if field["required"])
Leaf = tuple[object, ...]


def is_every_row(node: Node) -> bool:
    """True where the query holds whatever its parts do. False where it does not, or has more than
    `LEAVES_MAX` different parts."""
    leaves = sorted(_leaves(node), key=repr)
    if len(leaves) > LEAVES_MAX:
        return False
    return all(
        _holds(node, {leaf: bool(case >> at & 1) for at, leaf in enumerate(leaves)})
        for case in range(1 << len(leaves))
    )


def _holds(node: Node, values: Mapping[Leaf, bool]) -> bool:
    if isinstance(node, Everything):
        return True
    if isinstance(node, All):
        return all(_holds(child, values) for child in node.children)
    if isinstance(node, Either):
        return any(_holds(child, values) for child in node.children)
    if isinstance(node, Not):
        return not _holds(node.child, values)
    return _is_always_there(node) or values[_leaf(node)]


def _leaves(node: Node) -> frozenset[Leaf]:
    if isinstance(node, All | Either):
        return frozenset().union(*map(_leaves, node.children))
    if isinstance(node, Not):
        return _leaves(node.child)
    return (
        frozenset() if isinstance(node, Everything) or _is_always_there(node) else frozenset((_leaf(node),))
    )


def _is_always_there(node: Exists | Match | Between) -> bool:
    return isinstance(node, Exists) and fold(node.field).lstrip("@") in _ALWAYS_THERE


def _leaf(node: Exists | Match | Between) -> Leaf:
    """The same for two parts that mean the same, wherever in the query they stand."""
    field = None if node.field is None else fold(node.field.strip()).lstrip("@")
    if isinstance(node, Exists):
        return ("exists", field)
    if isinstance(node, Match):
        return (
            "match",
            field,
            tuple(piece.casefold() if isinstance(piece, str) else piece.value for piece in node.pieces),
        )
    return ("between", field, node.low, node.high, node.low_included, node.high_included)
