"""Trees of the search language as text."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from query.language.search_language import (
    All,
    Between,
    Either,
    Everything,
    Exists,
    Match,
    Node,
    Not,
    Span,
    Wildcard,
    parse_search,
)
from query.language.search_text import NOTHING, all_nodes, any_node, to_text

HERE = Span(0, 0)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=12)
FIELDS = st.one_of(
    st.sampled_from(["message", "http.status", "@timestamp", "AND", "to", "a b", 'a"b', "a:b", "a*", "-x"]),
    TEXTS.filter(lambda text: text != "*" and text.strip() == text and "\n" not in text),
)
WORDS = st.one_of(
    st.sampled_from(
        ["AND", "or", "NOT", "TO", "&&", "!x", "/a/", "a\\", '"', "'", "<", ">=", "~", "^2", "1"]
    ),
    TEXTS.filter(lambda text: text.strip() == text and "\n" not in text),  # no word has a line's end in it
)


def _joined(parts: list[str | Wildcard]) -> tuple[str | Wildcard, ...]:
    joined: list[str | Wildcard] = []
    for part in parts:
        last = joined[-1] if joined else None
        if isinstance(part, str) and isinstance(last, str):
            joined[-1] = last + part
        elif not (part is Wildcard.ANY and last is Wildcard.ANY):
            joined.append(part)
    return tuple(joined)


PIECES = (
    st.lists(st.one_of(WORDS, st.sampled_from(list(Wildcard))), min_size=1, max_size=4)
    .map(_joined)
    .filter(lambda pieces: pieces != (Wildcard.ANY,))
)
BOUNDS = st.one_of(st.none(), TEXTS)
LEAVES = st.one_of(
    st.builds(Exists, FIELDS, st.just(HERE)),
    st.builds(Match, st.one_of(st.none(), FIELDS), PIECES, st.just(False), st.just(HERE)),
    st.builds(
        Match, st.one_of(st.none(), FIELDS), TEXTS.map(lambda text: (text,)), st.just(True), st.just(HERE)
    ),
    st.builds(Between, FIELDS, BOUNDS, BOUNDS, st.booleans(), st.booleans(), st.just(HERE)).filter(
        lambda node: node.low is not None or node.high is not None
    ),
)
NODES: st.SearchStrategy[Node] = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        inner.map(Not),
        st.lists(inner, min_size=1, max_size=3).map(lambda nodes: all_nodes(*nodes)),
        st.lists(st.one_of(inner, st.just(Everything())), min_size=1, max_size=3).map(
            lambda nodes: any_node(*nodes)
        ),
    ),
    max_leaves=12,
)


def without_spans(node: Node) -> Node:
    """The same tree with every span at the beginning."""
    if isinstance(node, All | Either):
        return type(node)(tuple(map(without_spans, node.children)))
    if isinstance(node, Not):
        return Not(without_spans(node.child))
    return node if isinstance(node, Everything) else replace(node, span=HERE)


@given(NODES)
def test_a_tree_as_text_is_read_as_the_same_tree(node: Node) -> None:
    """Whatever stands in names, words, phrases and bounds."""
    assert without_spans(parse_search(to_text(node))) == node


def test_no_row_and_every_row_have_a_text() -> None:
    """Of nothing all is every row, and any is none."""
    assert parse_search(to_text(all_nodes())) == Everything()
    assert parse_search(to_text(any_node())) == NOTHING
