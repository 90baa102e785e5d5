"""Takes a text of pipes apart: where a pipe, a comma or a word stands outside of quotes and parentheses."""

from collections.abc import Iterator

from query.model.problem import refuse

_OPEN, _CLOSE = "([{", ")]}"
_DOUBLE, _BOTH = '"', "\"'"


def split_pipes(text: str) -> list[tuple[int, str]]:
    """The search and the stages behind it, each with its place. Two pipes are the OR of a search, in which an
    apostrophe is one; behind it texts may stand in single quotes as well."""
    ends = next(_pipes(text, _DOUBLE), len(text))
    parts, begins = [(0, text[:ends])], ends + 1
    if ends == len(text):
        return parts
    for at in [*_pipes(text[begins:], _BOTH, begins), len(text) - begins]:
        parts.append((begins, text[begins : ends + 1 + at]))
        begins = ends + 2 + at
    return parts


def _pipes(text: str, quotes: str, begins: int = 0) -> Iterator[int]:
    skipped = -1
    for at, character, depth in _outside(text, quotes, begins):
        if character != "|" or depth or at == skipped:
            continue
        if text[at + 1 : at + 2] == "|":
            skipped = at + 1
        else:
            yield at


def split_list(text: str) -> list[str]:
    """The parts between commas, without the blanks around them."""
    parts, begins = list[str](), 0
    for at, character, depth in _outside(text):
        if character == "," and not depth:
            parts.append(text[begins:at].strip())
            begins = at + 1
    return [*parts, text[begins:].strip()]


def split_word(text: str, word: str) -> tuple[str, str | None]:
    """What stands before a word and behind it; None where it does not occur."""
    for at, _, depth in _outside(text):
        ends = at + len(word)
        stands_alone = (not at or text[at - 1].isspace()) and (ends >= len(text) or text[ends].isspace())
        if not depth and stands_alone and text[at:ends].lower() == word:
            return text[:at].strip(), text[ends:].strip()
    return text.strip(), None


def unquoted(text: str) -> str:
    """A text without its double quotes; a backslash takes its meaning from the character behind it. As it is
    where it has none."""
    if len(text) < 2 or text[0] != '"' or text[-1] != '"':
        return text
    made, at = list[str](), 1
    while at < len(text) - 1:
        at += text[at] == "\\"
        made.append(text[at])
        at += 1
    return "".join(made)


def _outside(text: str, quotes: str = _BOTH, begins: int = 0) -> Iterator[tuple[int, str, int]]:
    """Characters outside of quotes, with their places and how many parentheses are open. `begins`: where the
    text stands in the whole, for what is said of it."""
    at, depth, quote, open_at = 0, 0, "", 0
    while at < len(text):
        character = text[at]
        if character == "\\":
            at += 2
            continue
        if quote:
            quote = "" if character == quote else quote
        elif character in quotes:
            quote, open_at = character, at
        else:
            depth += (character in _OPEN) - (depth > 0 and character in _CLOSE)
            yield at, character, depth
        at += 1
    if quote:
        raise refuse(
            "this quote is never closed",
            position=begins + open_at,
            length=1,
            suggestion=f"add a closing {quote}",
        )
