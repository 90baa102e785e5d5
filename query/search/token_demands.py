"""The words that a search demands, by its tree: what the token filters of files are asked.

A doubt demands nothing. NOT, numbers, ranges, `field:*` and columns that are no text are told by no word; the
ends of a text that a wildcard stands at may be parts of longer words.
"""

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np

from lake.log_schema import ERRORS, Column, LogSchema
from lake.token_filter.alphabet import Alphabet, alphabet_of
from lake.token_filter.tokens import Hashes, demanded_hashes
from query.files.file_index import LiveFile
from query.files.token_demand import (
    TOKENS_OF_TEXT_MAX,
    Demand,
    InAnyColumn,
    InColumn,
    Word,
    all_of,
    one_of,
    within_bounds,
)
from query.language.letter_case import simple_lower
from query.language.search_language import All, Either, Match, Node, Not
from query.language.search_sql import columns_of, text_columns

# So many words of a search are looked for in fewer columns where filters tell.
WORDS_MAX = 8


def demand_of(node: Node, schema: LogSchema, files: Sequence[LiveFile]) -> Demand | None:
    """What every row that matches in one of these files has; None: any row may match."""
    demand = _demand(node, schema, files)
    return None if demand is None else within_bounds(demand)


def _demand(node: Node, schema: LogSchema, files: Sequence[LiveFile]) -> Demand | None:
    if isinstance(node, All):
        return all_of([_demand(child, schema, files) for child in node.children])
    if isinstance(node, Either):
        return one_of([_demand(child, schema, files) for child in node.children])
    if not isinstance(node, Match):
        return None
    tokens = tokens_of(node)
    if not len(tokens):
        return None
    if node.field is None:
        return InAnyColumn(tokens, frozenset(column.id for column in text_columns(schema)))
    columns = columns_of(node.field, schema)
    if len(columns) > 1:  # of other types, before or after one was declared
        columns = [column for column in columns if _is_filled(column, files)]
    return one_of(
        [
            InColumn(tokens, column.id) if column.kind == "string" or column.name == ERRORS else None
            for column in columns
        ]
    )


def words_of(node: Node, schema: LogSchema) -> dict[Match, Word]:
    """What is looked for in all text columns, wherever in the search, some of it."""
    columns = frozenset(column.id for column in text_columns(schema))
    found = islice(_anywhere(node), WORDS_MAX)
    return {match: Word(tokens_of(match), columns, _letters_of(match)) for match in found}


def _anywhere(node: Node) -> Iterator[Match]:
    if isinstance(node, All | Either):
        for child in node.children:
            yield from _anywhere(child)
    elif isinstance(node, Not):
        yield from _anywhere(node.child)
    elif isinstance(node, Match) and node.field is None:
        yield node


def _letters_of(node: Match) -> Alphabet | None:
    return alphabet_of(simple_lower("".join(piece for piece in node.pieces if isinstance(piece, str))))


def tokens_of(node: Match) -> Hashes:
    """The tokens of a text, in whichever column it is found."""
    last = len(node.pieces) - 1
    found = [
        demanded_hashes(piece, open_start=at > 0, open_end=at < last)
        for at, piece in enumerate(node.pieces)
        if isinstance(piece, str)
    ]
    tokens: Hashes = np.unique(np.concatenate(found)) if found else np.zeros(0, np.uint64)
    return tokens[:TOKENS_OF_TEXT_MAX]


def _is_filled(column: Column, files: Sequence[LiveFile]) -> bool:
    return not isinstance(column.kind, str) or any(file.filled_rows(column.id) != 0 for file in files)
