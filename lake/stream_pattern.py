"""Which streams a key reaches, by name or pattern: one rule for the catalog, which decides, and for the
search API.

A pattern is a stream's name as its records carry it, with at most one `*` for any text, also none. Names are
compared character by character: nothing is folded or normalised, so `web*` is neither `Web` nor a name that
looks like `web` in another script.
"""

from collections.abc import Sequence

from lake.errors import Rejected
from lake.tenant import from_identifier, parse_stream

ANY = "*"
PATTERNS_MAX = 100


def problem_of(patterns: Sequence[object]) -> str | None:
    """Why these are no patterns of streams, in a sentence; None where they are."""
    if not patterns:
        return "name at least one stream, or leave the streams out"
    if len(patterns) > PATTERNS_MAX:
        return f"a key takes at most {PATTERNS_MAX} streams and patterns"
    for pattern in patterns:
        if not isinstance(pattern, str) or pattern.count(ANY) > 1:
            return f"{str(pattern)[:100]!r} is no stream's name with at most one {ANY}"
        if isinstance(parsed := parse_stream(pattern), Rejected):
            return f"{pattern[:100]!r} can be no stream: {parsed.detail}"
    return None


def fits(pattern: str, stream: str) -> bool:
    """Whether a stream is one that a pattern names."""
    start, star, end = pattern.partition(ANY)
    if not star:
        return stream == pattern
    return len(stream) >= len(start) + len(end) and stream.startswith(start) and stream.endswith(end)


def reaches(patterns: Sequence[str] | None, stream: str) -> bool:
    """Whether a stream is among those of the patterns; None: all are."""
    return patterns is None or any(fits(pattern, stream) for pattern in patterns)


def reaches_table(patterns: Sequence[str] | None, table: str) -> bool:
    """The same of a table by its name in the catalog. One whose name is no stream's is reached by keys
    alone that reach all."""
    if patterns is None:
        return True
    stream = from_identifier(table)
    return stream is not None and reaches(patterns, stream)
