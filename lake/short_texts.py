"""What is kept of texts that strangers send: of those alone that are short.

`lru_cache` bounds how many results are kept, not how long the texts are by which they are found: 65,536 names
as long as messages would take a process all its memory.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache, wraps
from typing import Any, ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")

# A name that is met again, or the path to it, is shorter.
LENGTH_MAX = 256


def kept_of_short_texts(
    maxsize: int, length: Callable[[Sequence[Any]], int] = lambda texts: sum(map(len, texts))
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Keeps the last `maxsize` results of a function of texts that are together at most LENGTH_MAX characters
    or bytes long. `length`: of the texts among its arguments, where not all of these are texts."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        kept = cast(Callable[P, R], lru_cache(maxsize=maxsize)(function))

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            is_short = not kwargs and length(args) <= LENGTH_MAX
            return kept(*args, **kwargs) if is_short else function(*args, **kwargs)

        return call

    return decorate
