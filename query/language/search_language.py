"""The search language: Lucene's syntax, read by luqum into a small tree of our own.

    refused                       the word, in any case, in any text field
    "connection refused"          the words side by side
    status:500  path:"/api"       the word in one field; numbers, booleans and times compare as such
    conn*  10.0.?.1               * is any run of characters but blanks, ? is one
    status:[500 TO 599}  bytes:>=1024  timestamp:<2026-11-21
    field:*   _errors:*           the field has a value
    a b   a AND b   a OR b   NOT a   -a   !a   ( )   field:(a OR b)
    \\: \\* \\"                      a backslash takes its meaning from the next character

A word matches where it is not a part of a longer word: `time` finds `time=3` and not `timeout`.
Precedence: NOT, AND, OR, and last a mere blank, which means AND.
"""

import re
from dataclasses import dataclass
from enum import Enum

from luqum import tree
from luqum.exceptions import IllegalCharacterError, ParseSyntaxError
from luqum.thread import parse as luqum_parse

from query.model.problem import refuse

CHARACTERS_MAX = 4_000
TERMS_MAX = 200
DEPTH_MAX = 40


class Wildcard(Enum):
    """A part of a pattern that is not text."""

    ANY = "*"
    ONE = "?"


Piece = str | Wildcard


@dataclass(frozen=True, slots=True)
class Span:
    """Where in the query text something stands."""

    position: int
    length: int


@dataclass(frozen=True, slots=True)
class Everything:
    """Every row."""


@dataclass(frozen=True, slots=True)
class All:
    """Rows that all children match."""

    children: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Either:
    """Rows that at least one child matches."""

    children: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Not:
    """Rows that the child does not match; a missing value is no match."""

    child: "Node"


@dataclass(frozen=True, slots=True)
class Exists:
    """Rows where the field has a value."""

    field: str
    span: Span


@dataclass(frozen=True, slots=True)
class Match:
    """Rows where the text occurs; `field` None: in any text column."""

    field: str | None
    pieces: tuple[Piece, ...]
    is_phrase: bool
    span: Span

    @property
    def text(self) -> str:
        """The text as it was meant, wildcards as they are typed."""
        return "".join(piece if isinstance(piece, str) else piece.value for piece in self.pieces)


@dataclass(frozen=True, slots=True)
class Between:
    """Rows whose value lies in a range; a bound of None is open."""

    field: str
    low: str | None
    high: str | None
    low_included: bool
    high_included: bool
    span: Span


Node = Everything | All | Either | Not | Exists | Match | Between

_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_AT_POSITION = re.compile(r"at position (\d+)")
_QUOTE_IT = 'to search for such characters put the text in double quotes: "..."'


def parse_search(text: str) -> Node:
    """Parses a query; an empty one is everything. Raises BadRequestError with the position of what is
    wrong."""
    if len(text) > CHARACTERS_MAX:
        raise refuse(
            f"the query has {len(text):,} characters, at most {CHARACTERS_MAX:,} are allowed; search for "
            "less at a time"
        )
    if "\x00" in text or any(0xD800 <= ord(character) <= 0xDFFF for character in text):
        raise refuse(
            "the query contains characters that no text can hold (NUL or half a surrogate pair); remove them"
        )
    if not text.strip():
        return Everything()
    normal, origins = _normalise(text)
    try:
        parsed = luqum_parse(normal)
    except (ParseSyntaxError, IllegalCharacterError) as error:
        raise _syntax_error(text, str(error), origins) from error
    return _Reader(origins).read(parsed, None, 0)


def field_names(node: Node) -> frozenset[str]:
    """The fields a query names, as they are typed."""
    if isinstance(node, All | Either):
        return frozenset().union(*(field_names(child) for child in node.children))
    if isinstance(node, Not):
        return field_names(node.child)
    return frozenset() if isinstance(node, Everything) or node.field is None else frozenset((node.field,))


def _normalise(text: str) -> tuple[str, list[int]]:
    """What luqum does not know, in its words: `&&`, `||`, `!`, a slash or apostrophe that is meant as itself.
    Also each character's origin."""
    out: list[str] = []
    origins: list[int] = []
    quoted, at = False, 0

    def put(replacement: str, width: int) -> int:
        out.append(replacement)
        origins.extend([at] * len(replacement))
        return at + width

    while at < len(text):
        character, starts = text[at], at == 0 or text[at - 1].isspace() or text[at - 1] in "(:"
        if character == "\\" and at + 1 < len(text):
            out.append(text[at : at + 2])
            origins.extend((at, at + 1))
            at += 2
        elif character == '"':
            quoted = not quoted if quoted or starts or text[at - 1] in "+-![{<>=" else quoted
            at = put('"', 1)
        elif quoted:
            at = put(character, 1)
        elif character in "/'" or (
            character == "-" and at > 0 and text[at - 1] in "<>=" and text[at + 1 : at + 2].isdigit()
        ):
            at = put("\\" + character, 1)
        elif starts and text[at : at + 2] in ("&&", "||") and text[at + 2 : at + 3].isspace():
            at = put("AND" if character == "&" else "OR", 2)
        elif starts and character == "!" and at + 1 < len(text) and not text[at + 1].isspace():
            at = put("-", 1)
        else:
            at = put(character, 1)
    origins.append(len(text))
    return "".join(out), origins


def _syntax_error(text: str, message: str, origins: list[int]) -> Exception:
    found = _AT_POSITION.search(message)
    if found is None:
        return refuse(
            "the query ends too early: something is missing at its end (a word after a colon or operator, or "
            "a closing parenthesis)",
            position=len(text),
        )
    position = origins[min(int(found[1]), len(origins) - 1)]
    rest = text[position:]
    if rest.startswith('"'):
        return refuse(
            "this double quote is never closed",
            position=position,
            length=1,
            suggestion='add a closing " or write \\" for the character itself',
        )
    if rest.startswith("\\"):
        return refuse(
            "a backslash at the end takes the meaning from nothing",
            position=position,
            length=1,
            suggestion="write \\\\ for the character itself",
        )
    what = rest.split()[0][:20] if rest.split() else ""
    return refuse(
        f"did not expect {what!r} here", position=position, length=max(1, len(what)), suggestion=_QUOTE_IT
    )


class _Reader:
    """Turns luqum's tree into ours and counts what it meets."""

    def __init__(self, origins: list[int]) -> None:
        self._origins = origins
        self._terms = 0

    def read(self, item: tree.Item, field: str | None, depth: int) -> Node:
        if depth > DEPTH_MAX:
            raise refuse(
                f"the query is nested more than {DEPTH_MAX} levels deep; write it flatter",
                position=self._span(item).position,
            )
        if isinstance(item, tree.BaseGroup):
            return self.read(item.children[0], field, depth + 1)
        if isinstance(item, tree.OrOperation):
            return Either(tuple(self.read(child, field, depth + 1) for child in item.children))
        if isinstance(item, tree.AndOperation | tree.UnknownOperation):
            return _all(tuple(self.read(child, field, depth + 1) for child in item.children))
        if isinstance(item, tree.Not | tree.Prohibit):
            return Not(self.read(item.children[0], field, depth + 1))
        if isinstance(item, tree.Plus):
            return self.read(item.children[0], field, depth + 1)
        if isinstance(item, tree.SearchField):
            return self._field(item, field, depth)
        return self._leaf(item, field)

    def _field(self, item: tree.SearchField, outer: str | None, depth: int) -> Node:
        span = self._span(item)
        if outer is not None:
            raise refuse(
                f"a field inside the field {outer!r}",
                position=span.position,
                length=span.length,
                suggestion="put the value in double quotes",
            )
        name = _plain(pieces_of(item.name))
        if name == "*":
            return self.read(item.expr, None, depth + 1)
        expression = item.expr
        if (
            isinstance(expression, tree.Prohibit)
            and isinstance(expression.children[0], tree.Word)
            and _NUMBER.fullmatch(expression.children[0].value)
        ):
            self._count(span)
            return Match(name, (f"-{expression.children[0].value}",), True, span)
        if isinstance(
            expression, tree.SearchField
        ):  # host:10.0.0.1:8080 and time:12:30:00 mean what they look like
            return self._colons(name, expression, span)
        return self.read(expression, name, depth + 1)

    def _colons(self, name: str, value: tree.SearchField, span: Span) -> Node:
        pieces: list[Piece] = []
        inner: tree.Item = value
        while isinstance(inner, tree.SearchField):
            pieces += (*pieces_of(inner.name), ":")
            inner = inner.expr
        if not isinstance(inner, tree.Word):
            raise refuse(
                "a colon inside a value",
                position=span.position,
                length=span.length,
                suggestion="put the value in double quotes",
            )
        self._count(span)
        return Match(name, _joined([*pieces, *pieces_of(inner.value)]), False, span)

    def _leaf(self, item: tree.Item, field: str | None) -> Node:
        span = self._span(item)
        self._count(span)
        if isinstance(item, tree.Word):
            pieces = pieces_of(item.value)
            if pieces == (Wildcard.ANY,):
                return Everything() if field is None else Exists(field, span)
            return Match(field, pieces, False, span)
        if isinstance(item, tree.Phrase):
            return Match(field, (re.sub(r"\\(.)", r"\1", item.value[1:-1], flags=re.DOTALL),), True, span)
        if isinstance(item, tree.Range):
            low, high = _bound(item.low), _bound(item.high)
            return self._between(field, low, high, bool(item.include_low), bool(item.include_high), span)
        if isinstance(item, tree.From):
            return self._between(field, _bound(item.children[0]), None, bool(item.include), False, span)
        if isinstance(item, tree.To):
            return self._between(field, None, _bound(item.children[0]), False, bool(item.include), span)
        what = {
            tree.Fuzzy: "~ (similar words)",
            tree.Proximity: "~ (words near each other)",
            tree.Boost: "^ (weights; there is no ranking)",
        }.get(type(item))
        raise refuse(
            f"{what or 'this'} is not supported",
            position=span.position,
            length=span.length,
            suggestion="use wildcards: conn*, or quotes",
        )

    def _between(
        self,
        field: str | None,
        low: str | None,
        high: str | None,
        low_included: bool,
        high_included: bool,
        span: Span,
    ) -> Node:
        if field is None:
            raise refuse(
                "a range needs a field",
                position=span.position,
                length=span.length,
                suggestion="write field:[1 TO 5] or field:>5; " + _QUOTE_IT,
            )
        if low is None and high is None:
            return Exists(field, span)
        return Between(field, low, high, low_included, high_included, span)

    def _count(self, span: Span) -> None:
        self._terms += 1
        if self._terms > TERMS_MAX:
            raise refuse(
                f"the query has more than {TERMS_MAX} terms; search for less at a time",
                position=span.position,
            )

    def _span(self, item: tree.Item) -> Span:
        start = min(item.pos or 0, len(self._origins) - 1)
        end = min(start + (item.size or 0), len(self._origins) - 1)
        return Span(self._origins[start], max(1, self._origins[end] - self._origins[start]))


def _all(children: tuple[Node, ...]) -> Node:
    wanted = tuple(child for child in children if not isinstance(child, Everything))
    return All(wanted) if len(wanted) > 1 else wanted[0] if wanted else Everything()


def _bound(item: tree.Item) -> str | None:
    """The text of a range's end; None where it is open."""
    if isinstance(item, tree.Prohibit):
        return f"-{_plain(pieces_of(item.children[0].value))}"
    if isinstance(item, tree.Phrase):
        return re.sub(r"\\(.)", r"\1", item.value[1:-1], flags=re.DOTALL)
    return None if item.value == "*" else _plain(pieces_of(item.value))


def pieces_of(word: str) -> tuple[Piece, ...]:
    """Text and wildcards of a word, its backslashes resolved."""
    pieces: list[Piece] = []
    at = 0
    while at < len(word):
        if word[at] == "\\" and at + 1 < len(word):
            pieces.append(word[at + 1])
            at += 2
        else:
            pieces.append({"*": Wildcard.ANY, "?": Wildcard.ONE}.get(word[at], word[at]))
            at += 1
    return _joined(pieces)


def _joined(pieces: list[Piece]) -> tuple[Piece, ...]:
    joined: list[Piece] = []
    for piece in pieces:
        last = joined[-1] if joined else None
        if isinstance(piece, str) and isinstance(last, str):
            joined[-1] = last + piece
        elif not (piece is Wildcard.ANY and last is Wildcard.ANY):
            joined.append(piece)
    return tuple(joined)


def _plain(pieces: tuple[Piece, ...]) -> str:
    return "".join(piece if isinstance(piece, str) else piece.value for piece in pieces)
