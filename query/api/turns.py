"""How a request runs: in its turn, in a thread, with a deadline, stopped when the caller leaves."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from fastapi import Request

from lake.errors import FirnError, NotFoundError
from lake.limits import UNBOUND, Bound, Limit
from lake.tenant import TenantId
from query.access.access import Caller, ForbiddenError
from query.api.services import caller_of, services_of
from query.model.cancellation import CancelledError, Run
from query.model.lane import Lane
from query.model.limits import Share
from query.model.problem import BadRequestError
from query.model.search_usage import SearchUsage, Used

Answer = TypeVar("Answer")
NO_LIMITS: Mapping[Limit, Bound] = {}
LOOK_EVERY_S = 0.2  # whether a caller is still there, and what there is to tell it


def payer_of(caller: Caller, tenant: TenantId | None) -> str | None:
    """Whose limits a request counts against: the namespace that its key is bound to, whatever it asks about
    (of several the named one, or else the first); of other keys the named tenant's, None where they name
    none."""
    named, bound = None if tenant is None else tenant.namespace, caller.who.namespaces
    return named if not bound or named in bound else bound[0]


def shares_of(
    caller: Caller, payer: str | None, lane: Lane, limits: Mapping[Limit, Bound] = NO_LIMITS
) -> tuple[Share, ...]:
    """Whose turn a request takes: the payer's; of keys that are bound to no tenant their own, too."""
    holder = Share(
        "callers without a key" if caller.key is None else caller.who.share,
        lane.turns.total // 2,
    )
    if payer is None:
        return (holder,)
    bound = limits.get(Limit.SEARCHES_AT_ONCE, UNBOUND)
    share = Share(f"namespace {payer}", lane.at_once)
    if bound.most is not None:
        share = Share(share.name, bound.most, f", as the {bound.level} says")
    return (share,) if caller.who.namespace is not None else (share, holder)


@dataclass(frozen=True, slots=True)
class Turn:
    """Leave to run one request. What is `counted_as` a search of a stream counts as what its payer uses;
    None: it is no search."""

    give_back: Callable[[], None]
    usage: SearchUsage
    payer: str | None
    counted_as: str | None

    def counted(self, ask: Callable[[Run], Answer]) -> Callable[[Run], Answer]:
        """The same question, counted when it is answered, whatever comes of it."""
        if self.payer is None or self.counted_as is None:
            return ask

        def ask_and_count(current: Run) -> Answer:
            before_s = current.worked_s
            with self._counting(current, lambda: current.worked_s - before_s):
                return ask(current)

        return ask_and_count

    def counted_batches(self, batches: Callable[[Run], Iterator[bytes]]) -> Callable[[Run], Iterator[bytes]]:
        """The same of an answer in batches; the time between two of them, when its caller reads, counts for
        nothing."""
        if self.payer is None or self.counted_as is None:
            return batches

        def batches_and_count(current: Run) -> Iterator[bytes]:
            found, busy_s = iter(batches(current)), 0.0
            with self._counting(current, lambda: busy_s):
                while True:
                    before_s = current.worked_s
                    batch = next(found, None)
                    busy_s += current.worked_s - before_s
                    if batch is None:
                        return
                    yield batch

        return batches_and_count

    @contextmanager
    def _counting(self, current: Run, seconds: Callable[[], float]) -> Iterator[None]:
        """Counts what happens inside, unless it is refused: else whoever makes names up would fill the
        disk."""
        try:
            yield
        except (NotFoundError, ForbiddenError, BadRequestError):
            raise
        except BaseException:
            self._count(current, seconds())
            raise
        self._count(current, seconds())

    def _count(self, current: Run, seconds: float) -> None:
        assert self.payer is not None
        self.usage.add(self.payer, self.counted_as or "", Used(1, seconds, current.read_bytes))


async def _turn(
    request: Request, current: Run, tenant: TenantId | None, lane: Lane, counted_as: str | None
) -> Turn:
    """Waits for a turn of the run. Raises BusyError, DailyLimitError."""
    services, caller = services_of(request), caller_of(request)
    payer = payer_of(caller, tenant)
    limits = NO_LIMITS if payer is None else await services.limits_of(payer)
    if payer is not None and counted_as is not None:
        services.usage.check(payer, limits)
    give_back = await lane.turns.take(*shares_of(caller, payer, lane, limits))
    request.state.run = current
    return Turn(give_back, services.usage, payer, counted_as)


async def run(
    request: Request,
    ask: Callable[[Run], Answer],
    *,
    timeout_s: float,
    tenant: TenantId | None = None,
    lane: Lane | None = None,
    counted_as: str | None = None,
) -> Answer:
    """Runs a blocking question in a turn and a thread of a lane; when its caller disconnects the engine is
    told to stop.

    `tenant`: whom it is about; `counted_as`: the stream of which it is a search. The turn ends with the
    thread, not with the caller's patience. Raises BusyError.
    """
    lane = lane or services_of(request).requests
    current = Run(timeout_s)
    turn = await _turn(request, current, tenant, lane, counted_as)
    return await _answer_of(request, lane.start(turn.give_back, turn.counted(ask), current), current)


async def stream(
    request: Request,
    batches: Callable[[Run], Iterator[bytes]],
    *,
    timeout_s: float,
    tenant: TenantId | None = None,
    counted_as: str | None = None,
) -> AsyncIterator[bytes]:
    """The batches that a blocking generator gives, all within one turn. The first is there when this returns,
    so that what goes wrong before it is an error's answer. When the caller leaves the engine is told to
    stop."""
    lane = services_of(request).requests
    current = Run(timeout_s)
    turn = await _turn(request, current, tenant, lane, counted_as)
    steps = lane.steps(turn.give_back, turn.counted_batches(batches)(current))
    try:
        first = await _answer_of(request, steps.next(), current)
    except BaseException:
        _leave(current)
        steps.end()
        raise

    async def all_of_them() -> AsyncIterator[bytes]:
        try:
            batch = first
            while batch is not None:
                yield batch
                batch = await steps.next()
        finally:
            _leave(current)
            steps.end()

    return all_of_them()


async def watch(
    request: Request,
    ask: Callable[[Run], bytes],
    told: Callable[[Run], bytes],
    failed: Callable[[FirnError | BadRequestError], bytes],
    *,
    timeout_s: float,
    tenant: TenantId,
    counted_as: str | None = None,
) -> AsyncIterator[bytes]:
    """As `run`, and while the question runs what it has to tell, some times a second; its answer comes last.

    What goes wrong before there is anything to tell is an error's answer, later it is what `failed` makes of
    it.
    """
    lane = services_of(request).requests
    current = Run(timeout_s)
    turn = await _turn(request, current, tenant, lane, counted_as)
    future = lane.start(turn.give_back, turn.counted(ask), current)
    first = await _until_told(request, future, lambda: told(current), current)
    if first is None:
        future.result()  # an error is an error's answer

    async def all_of_it() -> AsyncIterator[bytes]:
        try:
            yield first or b""
            while not future.done():
                await asyncio.wait({future}, timeout=LOOK_EVERY_S)
                yield told(current)
            yield future.result()
        except (FirnError, BadRequestError) as error:
            yield failed(error)
        finally:
            if not future.done():
                _leave(current)

    return all_of_it()


async def _answer_of(request: Request, future: asyncio.Future[Answer], current: Run) -> Answer:
    await _until_told(request, future, lambda: b"", current)
    return future.result()


async def _until_told(
    request: Request, future: asyncio.Future[Answer], told: Callable[[], bytes], current: Run
) -> bytes | None:
    """The first that there is to tell; None where the future is done before. Raises CancelledError where the
    caller leaves."""
    try:
        while not future.done():
            await asyncio.wait({future}, timeout=LOOK_EVERY_S)
            if not future.done() and await request.is_disconnected():
                _leave(current)
                raise CancelledError("the caller has gone; the query was stopped")
            if not future.done() and (said := told()):
                return said
    except asyncio.CancelledError:
        _leave(current)
        raise
    return None


def _leave(current: Run) -> None:
    """Tells the engine to stop, in a thread of its own: telling it is a request too, and an engine that hangs
    answers none."""
    threading.Thread(target=current.cancel, name="leave", daemon=True).start()
