"""A tree of the search language as text of the language: what other languages are turned into, so that
limits, pins and the audit trail have the search as anybody would write it.

`parse_search(to_text(node))` is the same tree but for its spans, for every tree that the parser could give.
"""

import re

from query.language.search_language import All, Between, Either, Everything, Exists, Node, Not, Piece

_PLAIN = re.compile(r"[^\W_]")
_EVERYTHING = "*"


def to_text(node: Node) -> str:
    """The text of a tree. Its length may be more than the parser takes."""
    if isinstance(node, Everything):
        return _EVERYTHING
    if isinstance(node, All):
        return " AND ".join(map(_operand, node.children))
    if isinstance(node, Either):
        return " OR ".join(map(_operand, node.children))
    if isinstance(node, Not):
        return f"NOT {_operand(node.child)}"
    if isinstance(node, Exists):
        return f"{_escaped(node.field)}:*"
    if isinstance(node, Between):
        return f"{_escaped(node.field)}:{_range(node)}"
    value = _quoted(node.text) if node.is_phrase else _word(node.pieces)
    return value if node.field is None else f"{_escaped(node.field)}:{value}"


def all_nodes(*nodes: Node) -> Node:
    """Rows that every one matches, as the parser writes it: without what is every row."""
    wanted = tuple(node for node in nodes if not isinstance(node, Everything))
    return All(wanted) if len(wanted) > 1 else wanted[0] if wanted else Everything()


def any_node(*nodes: Node) -> Node:
    """Rows that at least one matches; none of none."""
    if not nodes:
        return NOTHING
    return Either(nodes) if len(nodes) > 1 else nodes[0]


# No row.
NOTHING: Node = Not(Everything())


def _operand(node: Node) -> str:
    text = to_text(node)
    return f"({text})" if isinstance(node, All | Either | Not) else text


def _range(node: Between) -> str:
    low, high = ("*" if bound is None else _quoted(bound) for bound in (node.low, node.high))
    return f"{'[' if node.low_included else '{'}{low} TO {high}{']' if node.high_included else '}'}"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _word(pieces: tuple[Piece, ...]) -> str:
    return "".join(_escaped(piece) if isinstance(piece, str) else piece.value for piece in pieces)


def _escaped(text: str) -> str:
    """Each character for itself: marks lose their meaning, and the first one keeps words like AND from being
    operators."""
    plain = "".join(each if _PLAIN.match(each) or each == "_" else f"\\{each}" for each in text)
    return f"\\{plain}" if text.upper() in ("AND", "OR", "NOT", "TO") else plain
