"""Messages on their way: in threads, so that a receiver that hangs holds up no other and no rule. What became
of each is handed back to the one thread that keeps the states."""

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import structlog

from lake.backoff import Backoff
from lake.clock import Clock
from lake.errors import UnavailableError
from lake.isolation import isolate
from lake.metrics import ALERT_MESSAGES
from lake.tenant import TenantId
from query.alerts.rule_state import Message
from query.alerts.senders import Alertmanager, UnusableError, Webhooks

THREADS = 8
ALERTS_AT_ONCE = 100
PAUSES = Backoff(first_s=1.0, max_s=30.0)
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Sending:
    """A message of a rule. `message.id` is empty for an alert that is only told again."""

    state_id: str
    tenant: TenantId
    rule: str
    message: Message


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of it. `problem` None: its receiver has it; `for_good`: it never will."""

    sending: Sending
    problem: str | None = None
    for_good: bool = False


@dataclass(slots=True)
class _Place:
    """A receiver: whether something is on its way to it, and how often it has failed in a row."""

    is_busy: bool = False
    failures: int = 0
    after_s: float = 0.0


class Delivery:
    """Sends to Alertmanagers, by address, and webhooks. `send` and `outcomes` are for one thread."""

    def __init__(self, alertmanagers: Mapping[str, Alertmanager], webhooks: Webhooks, clock: Clock) -> None:
        self._alertmanagers = alertmanagers
        self._webhooks = webhooks
        self._clock = clock
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="alerts")
        self._places: dict[str, _Place] = {}
        self._done: list[Outcome] = []
        self._lock = threading.Lock()
        self.arrived = threading.Event()  # there are outcomes

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        for each in self._alertmanagers.values():
            each.close()
        self._webhooks.close()

    def takes(self, to: str) -> bool:
        """Whether a receiver may be sent to now."""
        place = self._places.setdefault(to, _Place())
        return not place.is_busy and self._clock.monotonic_s() >= place.after_s

    def send(self, to: str, sendings: Sequence[Sending]) -> int:
        """Sends to a receiver that `takes`: all to an Alertmanager, to a webhook the first; how many these
        are."""
        some = sendings if to in self._alertmanagers else sendings[:1]
        self._places.setdefault(to, _Place()).is_busy = True
        self._threads.submit(self._sent, to, some).add_done_callback(self._note)
        return len(some)

    def outcomes(self) -> list[Outcome]:
        """What became of messages since this was asked last."""
        with self._lock:
            done, self._done = self._done, []
            self.arrived.clear()
        for outcome in done:
            place = self._places[outcome.sending.message.to]
            place.is_busy = False
            if outcome.problem is None or outcome.for_good:
                place.failures, place.after_s = 0, 0.0
                continue
            if place.after_s <= self._clock.monotonic_s():
                place.failures += 1
                place.after_s = self._clock.monotonic_s() + PAUSES.delay_s(place.failures)
        return done

    def _sent(self, to: str, sendings: Sequence[Sending]) -> list[Outcome]:
        kind = "alertmanager" if to in self._alertmanagers else "webhook"
        outcomes = list[Outcome]()
        for at in range(0, len(sendings), ALERTS_AT_ONCE):
            some = sendings[at : at + ALERTS_AT_ONCE]
            told = [Outcome(each, "an error that nobody foresaw; the log says which") for each in some]
            with isolate("alerts.not_sent", to=to):
                told = self._told(to, some)
            outcomes += told
        for outcome in outcomes:
            became = "taken" if outcome.problem is None else "refused" if outcome.for_good else "failed"
            ALERT_MESSAGES.labels(kind, became).inc()
        return outcomes

    def _told(self, to: str, sendings: Sequence[Sending]) -> list[Outcome]:
        try:
            if to in self._alertmanagers:
                self._alertmanagers[to].tell((each.message.kind, each.message.episode) for each in sendings)
            else:
                (one,) = sendings
                self._webhooks.tell(one.tenant, one.rule, one.message)
        except UnavailableError as error:
            return [Outcome(each, str(error)) for each in sendings]
        except UnusableError as error:
            if len(sendings) == 1:
                return [Outcome(sendings[0], str(error), for_good=True)]
            # Alertmanager refuses them all for one of them.
            return [outcome for each in sendings for outcome in self._told(to, [each])]
        return [Outcome(each) for each in sendings]

    def _note(self, future: "Future[list[Outcome]]") -> None:
        if future.cancelled():
            return
        with self._lock:
            self._done += future.result()
            self.arrived.set()
