"""The audit trail of a process: events go to its spool, and from there to whoever brings them to Kafka.

Searches never wait for it: their events are appended, nothing more. An act's event is on the disk before the
act begins. A broker or an ingest that does not answer holds up nobody until the spool is full.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Literal

import structlog

from lake.audit import trail_metrics
from lake.audit.event import Fields
from lake.audit.spool import Spool, TrailLostError
from lake.backoff import Backoff
from lake.clock import SYSTEM_CLOCK
from lake.errors import FirnError

log = structlog.get_logger()
SEND_EVERY_S = 1.0
AGAIN = Backoff(first_s=1.0, max_s=30.0)
Kind = Literal["act", "search"]


class AuditTrail:
    """Writes events and has them sent. `send` returns when the topic has the lines, and raises FirnError
    where it perhaps has not. `required`: acts are refused that cannot be told of. Thread-safe."""

    def __init__(self, spool: Spool, send: Callable[[Sequence[bytes]], None], *, required: bool) -> None:
        self._spool, self._send, self._required = spool, send, required
        self._is_losing = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._send_on, name="audit", daemon=True)

    def start(self) -> None:
        """Begins to send."""
        self._thread.start()

    def stop(self) -> None:
        """Ends it; what was not sent is sent after the next start."""
        self._ended.set()
        self._thread.join(timeout=5.0)
        self._spool.close()

    def note(self, fields: Fields) -> None:
        """Tells of a search. One that cannot be told of is counted, and nothing else."""
        self._try(fields, "search")

    def begin_act(self, fields: Fields) -> None:
        """Tells of an act that is about to begin; it is on the disk when this returns. Raises TrailLostError
        where that fails and acts have to be told of."""
        lost = self._try(fields, "act", durable=True)
        if lost is not None and self._required:
            raise TrailLostError(
                f"nothing is changed while nobody can tell who did it: {lost}. Mend that, or set "
                "audit.required to false; searches go on"
            ) from lost

    def end_act(self, fields: Fields) -> None:
        """Tells what became of it."""
        self._try(fields, "act", durable=True)

    def _try(self, fields: Fields, kind: Kind, *, durable: bool = False) -> TrailLostError | None:
        try:
            self._spool.append(fields, for_acts=kind == "act")
            if durable:
                self._spool.sync()
        except TrailLostError as error:
            trail_metrics.LOST.labels(kind).inc()
            if not self._is_losing:
                self._is_losing = True
                log.warning("audit.lost", reason=str(error), action=fields.get("event.action"))
            return error
        if self._is_losing:
            self._is_losing = False
            log.info("audit.written_again")
        trail_metrics.WRITTEN.labels(kind).inc()
        return None

    def _send_on(self) -> None:
        failures, due_s = 0, 0.0
        while not self._ended.wait(SEND_EVERY_S):
            try:
                # Also while nobody takes events: no more than these seconds may be lost, and it shows.
                self._spool.sync()
                trail_metrics.WAITING.set(self._spool.waiting)
                if (now_s := SYSTEM_CLOCK.monotonic_s()) < due_s:
                    continue
                while self.send_batch() and not self._ended.is_set():
                    pass
            except (FirnError, OSError) as error:
                failures += 1
                due_s = now_s + AGAIN.delay_s(failures)
                if failures == 1:
                    log.warning("audit.waits", reason=str(error), events=self._spool.waiting)
                continue
            failures = 0

    def send_batch(self) -> int:
        """Sends the oldest events that wait, and gives their number. One thread at a time. Raises FirnError,
        OSError."""
        batch = self._spool.next_batch()
        if batch.lines:
            self._send(batch.lines)
            self._spool.acknowledge(batch)
        trail_metrics.WAITING.set(self._spool.waiting)
        return len(batch.lines)
