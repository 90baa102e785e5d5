"""Which of many messages bring about an error that nobody foresaw: the others must not suffer."""

from collections.abc import Callable, Sequence

# An error that more messages meet than this has another cause.
CULPRITS_MAX = 64


def find_culprits(
    ordinals: Sequence[int], attempt: Callable[[Sequence[int]], None], first: Exception
) -> dict[int, Exception]:
    """Attempts messages by halves until each that fails has failed alone; its ordinal and its error. What
    does not fail is done.

    `attempt` does all of the messages at some ordinals, or raises and has done nothing. Raises `first`, the
    error of all of them together, where most fail: then it is not a message's.
    """
    found = dict[int, Exception]()
    waiting = [ordinals]
    while waiting:
        some = waiting.pop()
        half = len(some) // 2
        for part in (some[half:], some[:half]) if half else (some,):
            try:
                attempt(part)
            except Exception as error:  # noqa: BLE001 - told by who asked
                if len(part) > 1:
                    waiting.append(part)
                else:
                    found[part[0]] = error
                    if len(found) > min(len(ordinals) - 1, CULPRITS_MAX):
                        raise first from None
    return found
