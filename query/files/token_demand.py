"""Which words a search demands of a row, as tokens (`lake/token_filter/tokens.py`): a tree of ANDs and ORs
that the filter of a row group can be asked."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lake.token_filter.alphabet import Alphabet
from lake.token_filter.tokens import Hashes, in_field

# Of one text so many tokens are asked, and so many of a whole search; the others are left out.
TOKENS_OF_TEXT_MAX = 8
TOKENS_MAX = 64


@dataclass(frozen=True, slots=True)
class InAnyColumn:
    """All tokens in one of these columns."""

    tokens: Hashes
    columns: frozenset[int]


@dataclass(frozen=True, slots=True)
class InColumn:
    """All tokens in this column."""

    tokens: Hashes
    column: int


@dataclass(frozen=True, slots=True)
class Word:
    """A text that is looked for in each of these columns. `letters`: its characters; None: they tell
    nothing."""

    tokens: Hashes
    columns: frozenset[int]
    letters: Alphabet | None

    def may_be_of(self, alphabet: Alphabet | None) -> bool:
        """Whether it may stand in a column that has these characters alone; None: any."""
        return self.letters is None or alphabet is None or not self.letters & ~alphabet


@dataclass(frozen=True, slots=True)
class AllOf:
    """What every child demands."""

    children: tuple["Demand", ...]


@dataclass(frozen=True, slots=True)
class OneOf:
    """What one of the children demands."""

    children: tuple["Demand", ...]


Demand = InAnyColumn | InColumn | AllOf | OneOf


@dataclass(frozen=True, slots=True)
class Coverage:
    """Which columns the filters of a file are about (`lake/token_filter/block.py`)."""

    words: frozenset[int]
    fields: frozenset[int]


# Which of some row groups may have all of these tokens.
HasTokens = Callable[[Hashes], NDArray[np.bool_]]


def all_of(demands: list[Demand | None]) -> Demand | None:
    """An AND. None demands nothing, as everywhere here."""
    known = tuple(demand for demand in demands if demand is not None)
    return known[0] if len(known) == 1 else AllOf(known) if known else None


def one_of(demands: list[Demand | None]) -> Demand | None:
    """An OR, which demands nothing where one part of it does not."""
    known = tuple(demand for demand in demands if demand is not None)
    if len(known) < len(demands) or not known:
        return None
    return known[0] if len(known) == 1 else OneOf(known)


def token_count(demand: Demand) -> int:
    if isinstance(demand, AllOf | OneOf):
        return sum(map(token_count, demand.children))
    return len(demand.tokens)


def within_bounds(demand: Demand) -> Demand | None:
    """The demand, or as much of it as is asked at once."""
    if isinstance(demand, InAnyColumn | InColumn) or token_count(demand) <= TOKENS_MAX:
        return demand
    if isinstance(demand, OneOf):
        return None
    kept, left = list[Demand | None](), TOKENS_MAX
    for child in sorted(demand.children, key=token_count):
        left -= token_count(child)
        if left < 0:
            break
        kept.append(child)
    return all_of(kept)


def covered(demand: Demand, coverage: Coverage) -> Demand | None:
    """What can be asked of filters with this coverage: every column of it is covered one way or the other, or
    nothing is demanded there. All `InColumn` are of `fields` then, and all `InAnyColumn` of `words`."""
    if isinstance(demand, AllOf):
        return all_of([covered(child, coverage) for child in demand.children])
    if isinstance(demand, OneOf):
        return one_of([covered(child, coverage) for child in demand.children])
    if isinstance(demand, InColumn):
        if demand.column in coverage.fields:
            return demand
        return InAnyColumn(demand.tokens, frozenset()) if demand.column in coverage.words else None
    in_fields = [
        InColumn(demand.tokens, each) for each in (demand.columns & coverage.fields) - coverage.words
    ]
    return one_of([InAnyColumn(demand.tokens, frozenset()), *in_fields])


def may_match(demand: Demand, has: HasTokens) -> NDArray[np.bool_]:
    """Which of some row groups may have what a demand, as `covered` gives it, asks for."""
    if isinstance(demand, InAnyColumn):
        return has(demand.tokens)
    if isinstance(demand, InColumn):
        return has(in_field(demand.tokens, demand.column))
    found = may_match(demand.children[0], has)
    for child in demand.children[1:]:
        if isinstance(demand, AllOf):
            found = found & may_match(child, has) if found.any() else found
        else:
            found = found | may_match(child, has)
    return found
