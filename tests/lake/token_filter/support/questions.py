"""Rows of odd texts, questions cut out of them, and what the filters of the rows say to each question."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lake.log_schema import ERRORS, TOPIC, TOPIC_ID, LogSchema, new_log_schema
from lake.token_filter.block import decode
from lake.token_filter.bloom import block_of, masks
from lake.token_filter.builder import file_block
from lake.token_filter.tokens import Hashes
from query.files.token_demand import Coverage, covered, may_match
from query.language.search_language import All, Either, Match, Node, Not, Piece, Span, Wildcard
from query.language.word_pattern import WILDCARDS_MAX
from query.search.token_demands import demand_of
from tests.lake.token_filter.support.texts import part_of, text

SCHEMA = new_log_schema().with_strings({"path": (101, "/path"), "user": (102, "/user")}, 1)
FIELDS = ("message", "severity", "_overflow", "path", "user", TOPIC, TOPIC_ID, ERRORS)
NOWHERE = Span(0, 1)
HOUR_US = 1_795_210_000_000_000


def rows(count: int, draw: random.Random, schema: LogSchema = SCHEMA) -> pa.Table:
    """Rows whose texts, but for those of the system, are odd; numbered by `_offset`."""

    def value() -> str | None:
        return None if draw.random() < 0.2 else text(draw)

    def errors() -> list[dict[str, str | None]] | None:
        if draw.random() < 0.6:
            return None
        return [{"field": value(), "value": value(), "reason": value()} for _ in range(draw.randint(1, 2))]

    columns: dict[str, list[Any]] = {
        name: [value() for _ in range(count)] for name in ("severity", "message", "_overflow", "path", "user")
    }
    columns |= {name: [text(draw) for _ in range(count)] for name in (TOPIC, TOPIC_ID)}
    columns |= {
        "timestamp": [HOUR_US + at for at in range(count)],
        "observed_timestamp": [HOUR_US] * count,
        "_topic_partition": [0] * count,
        "_offset": list(range(count)),
        "_index": [0] * count,
        ERRORS: [errors() for _ in range(count)],
    }
    return pa.table(
        [pa.array(columns[field.name], field.type) for field in schema.arrow], schema=schema.arrow
    )


def questions(count: int, table: pa.Table, draw: random.Random) -> list[Node]:
    """Texts cut out of values, with and without a field, some of them with wildcards; some put together by
    AND, OR and NOT."""
    texts = {name: _texts(table, name) for name in FIELDS}
    return [_question(texts, draw, 0) for _ in range(count)]


def _question(texts: Mapping[str, Sequence[str]], draw: random.Random, depth: int) -> Node:
    kind = draw.random()
    if kind < 0.1 and depth < 3:
        return All(tuple(_question(texts, draw, depth + 1) for _ in range(2)))
    if kind < 0.2 and depth < 3:
        return Either(tuple(_question(texts, draw, depth + 1) for _ in range(draw.randint(2, 3))))
    if kind < 0.25 and depth < 3:
        return Not(_question(texts, draw, depth + 1))
    while True:
        field = draw.choice(FIELDS)
        pieces = _pieces(part_of(draw.choice(texts[field]), draw), draw)
        asked = field if field in (TOPIC, TOPIC_ID, ERRORS) or draw.random() < 0.4 else None
        if asked or any(piece != "" for piece in pieces):
            return Match(asked, pieces, True, NOWHERE)


class RowFilters:
    """The filters of rows, every row a row group of its own, so that nothing but a match may answer for
    it."""

    def __init__(self, table: pa.Table, schema: LogSchema = SCHEMA) -> None:
        found = decode(file_block(table, 1))
        assert found is not None
        self._schema, self._found = schema, found
        sizes = {len(group.blocks) for group in found.groups}
        self._rows = {
            size: np.array([at for at, group in enumerate(found.groups) if len(group.blocks) == size])
            for size in sizes
        }
        self._blocks = {
            size: np.stack([found.groups[at].blocks for at in at_]) for size, at_ in self._rows.items()
        }

    def may_match(self, question: Node) -> NDArray[np.bool_]:
        """False for each row that cannot match."""
        every = np.ones(len(self._found.groups), bool)
        demand = demand_of(question, self._schema, ())
        asked = None if demand is None else covered(demand, Coverage(self._found.words, self._found.fields))
        return every if asked is None else may_match(asked, self._has)

    def _has(self, tokens: Hashes) -> NDArray[np.bool_]:
        left = np.ones(len(self._found.groups), bool)
        wanted = masks(tokens)
        for size, places in self._rows.items():
            there = (self._blocks[size][:, block_of(tokens, size)] & wanted) == wanted
            left[places] = there.all(axis=(1, 2))
        return left


def _texts(table: pa.Table, name: str) -> list[str]:
    values: Sequence[Any] = table.column(name).drop_null().to_pylist()
    if name == ERRORS:
        values = [
            part for errors in values for entry in errors for part in entry.values() if part is not None
        ]
    return list(values) or ["x"]


def _pieces(asked: str, draw: random.Random) -> tuple[Piece, ...]:
    """A text with some of its characters as wildcards, or with wildcards at its ends."""
    if draw.random() < 0.6:
        return (asked,)
    pieces = list[Piece]()
    at = 0
    while at < len(asked):
        width = draw.randint(1, 6)
        pieces.append(asked[at : at + width])
        at += width
        if draw.random() < 0.5 and len(pieces) < WILDCARDS_MAX:
            pieces.append(draw.choice((Wildcard.ANY, Wildcard.ONE)))
            at += draw.choice((0, 1)) if pieces[-1] is Wildcard.ANY else 1
    if draw.random() < 0.3:
        pieces.insert(0, Wildcard.ANY)
    joined = list[Piece]()
    for piece in pieces:
        if isinstance(piece, str) and joined and isinstance(joined[-1], str):
            joined[-1] += piece
        elif not (piece is Wildcard.ANY and joined and joined[-1] is Wildcard.ANY):
            joined.append(piece)
    return tuple(joined) or (asked,)


@dataclass(slots=True)
class Tally:
    """How many questions were asked, how many matches they have, how many rows were passed over."""

    questions: int = 0
    matches: int = 0
    passed_over: int = 0

    def take(self, question: Node, matched: NDArray[np.bool_], left: NDArray[np.bool_]) -> None:
        """Raises AssertionError where a row that matches would be passed over."""
        hidden = np.flatnonzero(matched & ~left)
        assert not len(hidden), f"{question!r} hides row {hidden[0]}"
        self.questions += 1
        self.matches += int(matched.sum())
        self.passed_over += int((~left).sum())
