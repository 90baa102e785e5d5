"""A lease: a name that one process holds at a time, on the clock of the catalog's database, or of the control
service beside a foreign catalog.

Three uses, one class. The active ingest node and the leader of maintenance wait for theirs (`acquire`), and a
thread renews it; what they change carries its fencing token, so that a holder that was frozen past its lease
changes nothing any more. An act of a person takes one at once or not at all (`held_lease`), and renews it
itself.
"""

import math
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import structlog

from lake.catalog_client import CatalogClient
from lake.clock import Clock, SystemClock
from lake.errors import (
    ConflictError,
    FirnError,
    NotFoundError,
    RefusedError,
    RetryableError,
    UnavailableError,
)
from lake.extras_client import ExtrasClient
from lake.settings import IngestSettings

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Seconds. `ttl_s`: how long it lasts unrenewed; `renew_every_s`, `try_every_s`: how often it is renewed,
    or tried for while another holds it; `timeout_s`: how long a renewal or release may take (None: as long as
    any request)."""

    ttl_s: float
    renew_every_s: float
    try_every_s: float
    timeout_s: float | None = None


NODE_TIMES = LeaseTimes(ttl_s=6.0, renew_every_s=1.5, try_every_s=0.5, timeout_s=1.5)
ACT_TIMES = LeaseTimes(ttl_s=60.0, renew_every_s=15.0, try_every_s=1.0)


def lease_name(settings: IngestSettings) -> str:
    """The lease of the group's active node."""
    return f"ingest.{settings.kafka.group}"


def share_leases(settings: IngestSettings) -> list[str]:
    """The leases of the shares of the group's input, in order; of the first it is the group's own, so that
    nodes that do not agree about the number of shares stand by for each other."""
    name, total = lease_name(settings), settings.shares
    return [name, *(f"{name}.share-{share}-of-{total}" for share in range(1, total))]


def control_of(settings: IngestSettings, catalog: CatalogClient) -> CatalogClient | None:
    """Who holds leases and parked records: the catalog itself, the control service beside a foreign one, or
    nobody."""
    if catalog.has_extras:
        return catalog
    token = settings.control.token
    return (
        CatalogClient(settings.control.uri, token=token.get_secret_value() if token else None, control=True)
        if settings.control.uri
        else None
    )


class Lease:
    """One lease of one holder. `control` None, or a catalog without leases: nothing guards against a second
    holder, and `token` stays None.

    `holder`: who asks; the same one gets its own lease again at once. With `still_s`, a process whose main
    loop stands still does not keep its lease: from its first `check` on, it has to go on asking.
    """

    def __init__(
        self,
        control: CatalogClient | None,
        name: str,
        times: LeaseTimes,
        *,
        holder: str,
        clock: Clock | None = None,
        still_s: float | None = None,
    ) -> None:
        self._control = control
        self._name = name
        self._times = times
        self._holder = holder
        self._clock = clock or SystemClock()
        self._still_s = still_s
        self._extras: ExtrasClient | None = None  # who gave the lease; None where nobody has leases
        self._lost: str | None = None
        self._released = threading.Event()
        self._hurry = threading.Event()
        self._confirmed_s = 0.0
        self._checks = 0
        self.token: int | None = None

    @property
    def fencing_token(self) -> str | None:
        """`name:token`, as requests name it that count only while it is in force."""
        return None if self.token is None else f"{self._name}:{self.token}"

    # ---- getting it

    def take(self) -> None:
        """Takes it now; the holder calls `renew` from then on. Raises ConflictError while another holds it,
        UnavailableError."""
        extras = self._keeper()
        if extras is None:
            log.warning(
                "lease.none",
                lease=self._name,
                advice=(
                    "this catalog has no leases and no ingest.control.uri is set: make sure yourself that "
                    "only one process does this at a time"
                ),
            )
            return
        sent_s = self._clock.monotonic_s()
        self.token = extras.acquire_lease(self._name, self._holder, self._times.ttl_s)
        self._extras, self._confirmed_s, self._lost, self._checks = extras, sent_s, None, 0

    def acquire(self, stopping: threading.Event, wait_s: float = math.inf) -> bool:
        """Waits until the lease is this holder's, and has a thread renew it; False where it is not to be had
        in `wait_s`, or `stopping` is set first. The token is a new one each time."""
        self._keeper()  # a catalog that is not there is told now, not waited for
        self._released.set()  # what renewed the token before ends
        until_s, tell = self._clock.monotonic_s() + wait_s, log.info
        while not stopping.is_set():
            try:
                self.take()
            except ConflictError as error:
                tell("lease.standby", lease=self._name, reason=str(error))
            except RetryableError as error:
                tell("lease.waits", lease=self._name, reason=str(error))
            else:
                self._start_renewing()
                return True
            if self._clock.monotonic_s() >= until_s:
                return False
            tell = log.debug  # a standby waits for days
            stopping.wait(self._times.try_every_s)
        return False

    def try_now(self) -> bool:
        """Takes it where no other has it, and has a thread renew it; whether it did. Raises
        UnavailableError."""
        self._released.set()
        try:
            self.take()
        except ConflictError:
            return False
        self._start_renewing()
        return True

    def _keeper(self) -> ExtrasClient | None:
        """Who gives leases, None: nobody. Raises UnavailableError."""
        if self._control is None or not self._control.has_extras:
            return None
        return ExtrasClient(self._control)

    # ---- keeping it

    def renew(self) -> None:
        """Renews it where that is due; may be called as often as you like. Raises RefusedError where it ran
        out, UnavailableError."""
        is_due = self._clock.monotonic_s() - self._confirmed_s > self._times.renew_every_s
        if self._extras is not None and self.token is not None and is_due:
            self._renew(self._extras, self.token)

    def _renew(self, extras: ExtrasClient, token: int) -> None:
        sent_s = self._clock.monotonic_s()
        extras.renew_lease(self._name, token, self._times.ttl_s, timeout_s=self._times.timeout_s)
        self._confirmed_s = sent_s

    def _start_renewing(self) -> None:
        if self._extras is None or self.token is None:
            return
        log.info("lease.acquired", lease=self._name, token=self.token)
        self._released = threading.Event()
        threading.Thread(
            target=self._keep_renewing,
            args=(self._extras, self.token, self._released),
            name="lease",
            daemon=True,
        ).start()

    def _keep_renewing(self, extras: ExtrasClient, token: int, released: threading.Event) -> None:
        checks, still = 0, 0
        while True:
            if self._hurry.wait(self._times.renew_every_s):
                self._hurry.clear()
            if released.is_set():
                return
            # Counted by turns of this thread: a process that was paused as a whole has not stood still.
            still = still + 1 if checks == self._checks > 0 else 0
            checks = self._checks
            if self._still_s is not None and still * self._times.renew_every_s >= self._still_s:
                self._give_up(self._still_s)
                return
            try:
                self._renew(extras, token)
            except (RefusedError, NotFoundError) as error:
                if not released.is_set():
                    self._lost = str(error)
                    log.warning("lease.lost", lease=self._name, reason=self._lost)
                return
            except FirnError as error:
                log.warning("lease.not_renewed", lease=self._name, reason=str(error))

    def _give_up(self, still_s: float) -> None:
        self._lost = f"its main loop has stood still for {still_s:.0f} s"
        log.critical(
            "lease.given_up",
            lease=self._name,
            reason=self._lost,
            advice="another node takes over; report this with the output of py-spy dump for this process",
        )

    # ---- asking for it

    @property
    def lost(self) -> bool:
        """Whether another may hold it by now."""
        return self._lost is not None

    def check(self) -> None:
        """Raises UnavailableError where another may hold it by now."""
        self._checks += 1
        if self._lost is not None:
            raise UnavailableError(f"the lease {self._name} is lost ({self._lost})")

    def held_after(self, moment_s: float) -> bool:
        """Whether the lease was certainly this holder's at some time after a monotonic moment."""
        return self._extras is None or self._confirmed_s > moment_s

    def confirm_soon(self) -> None:
        """Somebody waits for `held_after`: the thread renews at once."""
        self._hurry.set()

    # ---- giving it back

    def release(self) -> None:
        """Lets the next one take over at once. Raises nothing: unreleased, it runs out by itself."""
        self._released.set()
        self._hurry.set()
        token, self.token = self.token, None
        if self._extras is not None and token is not None and not self.lost:
            try:
                self._extras.release_lease(self._name, token, timeout_s=self._times.timeout_s)
            except FirnError as error:
                log.info("lease.not_released", lease=self._name, reason=str(error))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()


@contextmanager
def held_group(catalog: CatalogClient, settings: IngestSettings, refusal: str) -> Iterator[None]:
    """Holds the leases of all shares of a group for the length of one act. Raises as `held_lease` does."""
    with ExitStack() as held:
        for name in share_leases(settings):
            held.enter_context(held_lease(catalog, name, refusal))
        yield


@contextmanager
def held_lease(catalog: CatalogClient, name: str, refusal: str) -> Iterator[Lease]:
    """Holds a lease for the length of one act, so that two people, or a person and a node, do not do it at
    once. Raises RefusedError with `refusal` where another holds it, UnavailableError."""
    holder = f"{socket.gethostname()}:{os.getpid()}:{name}"
    with Lease(catalog, name, ACT_TIMES, holder=holder) as lease:
        try:
            lease.take()
        except ConflictError as error:
            raise RefusedError(f"{refusal} ({error})") from error
        yield lease
