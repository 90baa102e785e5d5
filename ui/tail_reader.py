"""A live tail as a page looks at it: a thread reads the API's events and keeps the newest ones, whatever the
page does meanwhile."""

import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic

import orjson

from ui.api_client import ApiClient, ApiError
from ui.event_stream import Event, EventStream
from ui.tail_event import UNREADABLE, checked

LINES_MAX = 500
BYTES_MAX = 4 * 1024 * 1024
RATE_OVER_S = 5
# A tab in the background asks once a minute; one that asks less is not there any more.
NOBODY_LOOKS_S = 150.0
TOO_MANY = 429
# The API notices a moment later than we do that the tail before this one has ended.
ONCE_MORE_AFTER_S = 1.0
FORGOTTEN = "The live tail has ended: nobody looked at it for a while. Start it again."
ENDED = "The live tail has ended: the search API closed it. Start it again."
BROKE = (
    "The live tail has ended by an error of this front end that nobody foresaw; its log says which. Start it "
    "again, and report the error where it comes back."
)


@dataclass(frozen=True, slots=True)
class TailView:
    """What a tail has come to. `lines`: the newest events, newest first. `records`: since its start;
    `left_out`: of those that the API had, how many it left out; `unreadable`: events that cannot be read.
    `error`: why it ended, where it did not by somebody's wish."""

    lines: tuple[Event, ...] = ()
    records: int = 0
    left_out: int = 0
    unreadable: int = 0
    per_s: float = 0.0
    is_open: bool = False
    has_ended: bool = False
    error: ApiError | None = None


class TailReader:
    """One tail, from `start` until `stop`, its own end, or until nobody has looked for `NOBODY_LOOKS_S`.
    `asked`: tenant, stream and words."""

    def __init__(
        self,
        client: ApiClient,
        tenant: str,
        stream: str,
        words: str,
        now_s: Callable[[], float] = monotonic,
    ) -> None:
        self._client = client
        self.asked = (tenant, stream, words)
        self._now_s = now_s
        self._lock = threading.Lock()
        self._lines: deque[Event] = deque()
        self._bytes = self._records = self._left_out = self._unreadable = 0
        self._by_second: Counter[int] = Counter()
        self._is_open = False
        self._error: ApiError | None = None
        self._events: EventStream | None = None
        self._began_s = self._looked_s = now_s()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tail", daemon=True)

    def start(self) -> None:
        """Returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """Hangs up and returns at once; the thread ends within a moment."""
        self._stopping.set()
        with self._lock:
            events = self._events
        if events is not None:
            events.hang_up()

    @property
    def is_running(self) -> bool:
        """Whether more may come."""
        return self._thread.is_alive() and not self._stopping.is_set()

    def look(self) -> TailView:
        """How it is now."""
        has_ended = not self.is_running  # before the rest: what came last is in it
        with self._lock:
            self._looked_s = self._now_s()
            return TailView(
                tuple(reversed(self._lines)),
                self._records,
                self._left_out,
                self._unreadable,
                self._per_s(),
                self._is_open,
                has_ended,
                self._error,
            )

    def _per_s(self) -> float:
        """Records a second over the last whole seconds."""
        second = int(self._now_s())
        over_s = min(RATE_OVER_S, max(1, second - int(self._began_s)))
        return sum(self._by_second[second - back] for back in range(1, over_s + 1)) / over_s

    def _run(self) -> None:
        try:
            self._follow(once_more=True)
            if not self._stopping.is_set() and self._error is None:
                self._error = ApiError(0, ENDED)
        except ApiError as error:
            if not self._stopping.is_set():  # else it is our own hanging up
                self._error = error
        except BaseException:  # told here, and by the thread's end in the log
            self._error = ApiError(0, BROKE)
            raise

    def _follow(self, *, once_more: bool) -> None:
        try:
            tenant, stream, words = self.asked
            with self._client.events("/tail", tenant=tenant, stream=stream, words=words) as events:
                with self._lock:
                    self._events = events
                for some in events:
                    self.take(some)
                    if self._stopping.is_set() or self._error is not None or self._is_forgotten():
                        return
        except ApiError as error:
            if error.status != TOO_MANY or not once_more or self._stopping.wait(ONCE_MORE_AFTER_S):
                raise
            self._follow(once_more=False)
        finally:
            with self._lock:
                self._events = None

    def _is_forgotten(self) -> bool:
        if self._now_s() - self._looked_s < NOBODY_LOOKS_S:
            return False
        self._error = ApiError(0, FORGOTTEN)
        return True

    def take(self, events: Sequence[Event]) -> None:
        """Keeps events; the oldest ones go where there are too many, by number or bytes. One that cannot be
        read keeps its place, and the tail goes on."""
        with self._lock:
            second = int(self._now_s())
            for event in map(checked, events):
                if event.kind == "open":
                    self._is_open = True
                elif event.kind == "failed":
                    self._error = ApiError(0, str(orjson.loads(event.data)["message"]))
                else:
                    self._keep(event, second)
            for old in [each for each in self._by_second if each < second - RATE_OVER_S]:
                del self._by_second[old]

    def _keep(self, event: Event, second: int) -> None:
        if event.kind == "record":
            self._records += 1
            self._by_second[second] += 1
        elif event.kind == "dropped":
            self._left_out += int(orjson.loads(event.data)["records"])
        elif event.kind == UNREADABLE:
            self._unreadable += 1
        self._lines.append(event)
        self._bytes += len(event.data)
        while len(self._lines) > LINES_MAX or (self._bytes > BYTES_MAX and len(self._lines) > 1):
            self._bytes -= len(self._lines.popleft().data)
