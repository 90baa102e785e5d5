"""What is left of an erasure's query when the erasure has ended: a keyed hash, by which the same query is
known again, and none of its words.

While an erasure runs it needs its query; its file then is readable by the owner alone.
"""

import hmac
import os
import re
import secrets
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from query.language.search_language import (
    All,
    Between,
    Either,
    Everything,
    Exists,
    Match,
    Node,
    Not,
    parse_search,
)
from query.model.problem import BadRequestError

KEY_FILE, KEY_BYTES = "hash-key", 32
HIDDEN = "…"
# Shorter ones say nothing of anybody, and stand in every sentence.
WORD_CHARACTERS_MIN = 3


def query_hash(folder: Path, query: str) -> str:
    """The hash of a query under the folder's own key, which is made where there is none."""
    path = folder / KEY_FILE
    if not path.exists():
        write_private(path, secrets.token_bytes(KEY_BYTES))
    return (
        "hmac-sha256:"
        + hmac.digest(path.read_bytes(), query.encode("utf-8", "surrogatepass"), "sha256").hex()
    )


def write_private(path: Path, content: bytes) -> None:
    """Writes a file that nobody but its owner ever could read, whole or not at all."""
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
    temporary.rename(path)


def without_words(sentence: str, query: str) -> str:
    """A sentence with none of the query's words in it: services may quote in their errors what they were
    asked."""
    words = {query}
    with suppress(BadRequestError):
        words |= set(_words(parse_search(query)))
    for word in sorted(words, key=len, reverse=True):
        if len(word) >= WORD_CHARACTERS_MIN:
            sentence = re.sub(re.escape(word), HIDDEN, sentence, flags=re.IGNORECASE)
    return sentence


def _words(node: Node) -> Sequence[str]:
    if isinstance(node, All | Either):
        return [word for child in node.children for word in _words(child)]
    if isinstance(node, Not):
        return _words(node.child)
    if isinstance(node, Match):
        return [node.text, *(piece for piece in node.pieces if isinstance(piece, str))]
    if isinstance(node, Between):
        return [bound for bound in (node.low, node.high) if bound is not None]
    assert isinstance(node, Everything | Exists)
    return []
