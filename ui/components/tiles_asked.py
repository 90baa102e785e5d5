"""The answers of a board's tiles, asked for side by side in threads: a slow tile holds up no other. The page
itself draws."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from time import sleep
from typing import Any

from ui.api_client import ApiClient, ApiError
from ui.components import tile

# Half of what a tenant may ask at once by default: others look at its logs, too.
AT_ONCE = 4
TOO_MANY = 429
# A limit that ends within so many seconds is waited for, as often as this.
SHORT_WAIT_S, TRIES = 5, 8
LOOK_EVERY_S = 1.0
Tile = dict[str, Any]
Answer = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked for a tile, and its answer, which may be on its way."""

    question: tuple[str, Tile, tuple[str, str]]
    answer: Future[Answer]


def begin(
    kept: dict[int, Asked],
    client: ApiClient,
    tenant: str,
    tiles: Sequence[Tile],
    range_: tuple[str, str],
    pause: Callable[[float], None] = sleep,
) -> None:
    """Asks for the tiles whose answers are not in `kept`, nor on their way there, and returns at once.
    `kept`: by the tile's place on the board."""
    threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="tiles")
    for at, one in enumerate(tiles):
        question = (tenant, one, range_)
        if at not in kept or kept[at].question != question:
            kept[at] = Asked(question, threads.submit(_patiently, client, *question, pause))
    threads.shutdown(wait=False)  # what it has got is asked for all the same


def as_they_come(kept: dict[int, Asked], wanted: int) -> Iterator[list[int]]:
    """The places of the first so many tiles whose answers have come, as they come; none now and then, so that
    the page can say that it waits."""
    waiting = {kept[at].answer: at for at in range(wanted)}
    while waiting:
        done, _ = wait(waiting, timeout=LOOK_EVERY_S, return_when=FIRST_COMPLETED)
        yield sorted(waiting.pop(answer) for answer in done)


def _patiently(
    client: ApiClient, tenant: str, one: Tile, range_: tuple[str, str], pause: Callable[[float], None]
) -> Answer:
    """Asks again where too much of the tenant or the key runs just now; a limit of the day is told at once.
    Raises ApiError."""
    for _ in range(TRIES - 1):
        try:
            return tile.ask(client, tenant, one, range_)
        except ApiError as error:
            after_s = error.retry_after_s
            if error.status != TOO_MANY or after_s is None or after_s > SHORT_WAIT_S:
                raise
            pause(after_s)
    return tile.ask(client, tenant, one, range_)
