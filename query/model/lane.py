"""Threads for one kind of work, and the turns in which it gets them: never more turns than threads, so no
turn waits for a thread."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import ParamSpec, TypeVar

from query.model.limits import ConcurrencyLimit

Answer = TypeVar("Answer")
Arguments = ParamSpec("Arguments")


class Lane:
    """`total` threads; `at_once`: how many of them one tenant may have."""

    def __init__(self, name: str, total: int, at_once: int, queue_timeout_s: float) -> None:
        self.at_once = at_once
        self.turns = ConcurrencyLimit(total, queue_timeout_s)
        self.threads = ThreadPoolExecutor(total, thread_name_prefix=name)

    def start(
        self,
        give_back: Callable[[], None],
        work: Callable[Arguments, Answer],
        *arguments: Arguments.args,
        **named: Arguments.kwargs,
    ) -> asyncio.Future[Answer]:
        """Runs work in a thread. Its turn is given back when the thread is done, however long nobody has been
        waiting for it by then."""
        future = self.threads.submit(work, *arguments, **named)
        when_done(future, give_back)
        return _heard(asyncio.wrap_future(future))

    def steps(self, give_back: Callable[[], None], batches: Iterator[bytes]) -> "Steps":
        """What a generator gives, each in a thread, within one turn."""
        return Steps(self.threads, give_back, batches)


class Steps:
    """A generator that is run step by step; between two steps it has no thread."""

    def __init__(
        self, threads: ThreadPoolExecutor, give_back: Callable[[], None], batches: Iterator[bytes]
    ) -> None:
        self._threads = threads
        self._give_back = give_back
        self._batches = batches
        self._last: Future[bytes | None] | None = None

    def next(self) -> asyncio.Future[bytes | None]:
        """The next batch, None at the end."""
        self._last = self._threads.submit(next, self._batches, None)
        return _heard(asyncio.wrap_future(self._last))

    def end(self) -> None:
        """Closes the generator as soon as its last step is done, then gives the turn back."""
        if self._last is None:
            self._give_back()
        else:
            when_done(self._last, self._close)

    def _close(self) -> None:
        when_done(self._threads.submit(getattr(self._batches, "close", _nothing)), self._give_back)


def when_done(future: Future[Answer], then: Callable[[], None]) -> None:
    """Calls back on the running event loop, unless that has ended."""
    loop = asyncio.get_running_loop()

    def call(_: Future[Answer]) -> None:
        with suppress(RuntimeError):  # the process ends
            loop.call_soon_threadsafe(then)

    future.add_done_callback(call)


def _heard(future: asyncio.Future[Answer]) -> asyncio.Future[Answer]:
    """The same future; an error of it that nobody waits for any more is no defect."""
    future.add_done_callback(lambda done: done.cancelled() or done.exception())
    return future


def _nothing() -> None:
    """A list needs no closing."""
