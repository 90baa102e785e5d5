"""The node's lease: one node ingests, others stand by. On the clock of the catalog's database, or of the
control service beside a foreign catalog."""

import threading

import structlog

from lake.catalog_client import CatalogClient
from lake.clock import Clock
from lake.errors import ConflictError, RefusedError, RetryableError, UnavailableError
from lake.settings import IngestSettings

TTL_S = 6.0
RENEW_EVERY_S = 1.5
TRY_EVERY_S = 0.5
log = structlog.get_logger()


def lease_name(settings: IngestSettings) -> str:
    """The lease of the group's active node."""
    return f"ingest.{settings.group}"


def control_of(settings: IngestSettings, catalog: CatalogClient) -> CatalogClient | None:
    """Who holds leases and parked records: the catalog itself, the control service beside a foreign one, or
    nobody."""
    if catalog.has_extras:
        return catalog
    token = settings.control_token
    return (
        CatalogClient(settings.control_uri, token=token.get_secret_value() if token else None, control=True)
        if settings.control_uri
        else None
    )


class NodeLease:
    """A thread renews it; `check` tells the node when it is lost. `control` None: there is nobody to hold a
    lease with.

    `name`: another lease than that of the group's active node. With `still_s`, a node whose main loop stands
    still does not keep its lease: from its first `check` on, it has to go on asking.
    """

    def __init__(
        self,
        control: CatalogClient | None,
        settings: IngestSettings,
        clock: Clock,
        holder: str,
        name: str | None = None,
        still_s: float | None = None,
    ) -> None:
        self._control = control
        self._clock = clock
        self._name = name or lease_name(settings)
        self._path = f"/firn/v1/leases/{self._name}"
        self._holder = holder
        self._still_s = still_s
        self._lost: str | None = None
        self._released = threading.Event()
        self._hurry = threading.Event()
        self._renewer: threading.Thread | None = None
        self._confirmed_s = 0.0
        self._checks = 0
        self.token: int | None = None

    @property
    def name_and_token(self) -> str:
        """As requests name it that count only while it is in force."""
        return f"{self._name}:{self.token}"

    def acquire(self, stopping: threading.Event) -> bool:
        """Waits until the lease is this node's; False where the node is stopped first."""
        while not stopping.is_set():
            try:
                if self._take():
                    return True
            except RetryableError as error:
                log.info("lease.waits", reason=str(error))
            stopping.wait(TRY_EVERY_S)
        return False

    def _take(self) -> bool:
        if self._control is None:
            log.warning(
                "lease.none",
                advice=(
                    "this catalog has no leases and control_uri names none: never start a second node on "
                    "the same group"
                ),
            )
            return True
        sent_s = self._clock.monotonic_s()
        try:
            answer = self._control.post(
                f"{self._path}/acquire", {"holder": self._holder, "ttl-ms": int(TTL_S * 1000)}
            )
        except ConflictError as error:
            log.info("lease.standby", reason=str(error))
            return False
        self.token, self._confirmed_s, self._lost, self._checks = int(answer["token"]), sent_s, None, 0
        self._released = threading.Event()
        self._renewer = threading.Thread(
            target=self._renew, args=(self._control, self._released), name="lease", daemon=True
        )
        self._renewer.start()
        return True

    def _renew(self, control: CatalogClient, released: threading.Event) -> None:
        checks, still = 0, 0
        while not released.is_set():
            if self._hurry.wait(RENEW_EVERY_S):
                self._hurry.clear()
            if released.is_set():
                return
            # Counted by turns of this thread: a process that was paused as a whole has not stood still.
            still = still + 1 if checks == self._checks > 0 else 0
            checks = self._checks
            if self._still_s is not None and still * RENEW_EVERY_S >= self._still_s:
                self._lost = f"its main loop has stood still for {self._still_s:.0f} s"
                log.critical(
                    "lease.given_up",
                    reason=self._lost,
                    advice=(
                        "another node takes over; report this with the output of py-spy dump for this process"
                    ),
                )
                return
            sent_s = self._clock.monotonic_s()
            try:
                control.post(
                    f"{self._path}/renew",
                    {"token": self.token, "ttl-ms": int(TTL_S * 1000)},
                    timeout_s=RENEW_EVERY_S,
                )
            except RefusedError as error:
                self._lost = str(error)
                return
            except RetryableError as error:
                log.warning("lease.not_renewed", reason=str(error))
            else:
                self._confirmed_s = sent_s

    def check(self) -> None:
        """Raises UnavailableError where another node may have taken over."""
        self._checks += 1
        if self._lost is not None:
            raise UnavailableError(f"the node's lease is lost ({self._lost})")

    def held_after(self, moment_s: float) -> bool:
        """Whether the lease was certainly this node's at some time after a monotonic moment."""
        return self._control is None or self._confirmed_s > moment_s

    def confirm_soon(self) -> None:
        """Somebody waits for `held_after`."""
        self._hurry.set()

    def release(self) -> None:
        """Lets a standby take over at once."""
        self._released.set()
        self._hurry.set()
        if self._control is not None and self.token is not None and self._lost is None:
            try:
                self._control.post(f"{self._path}/release", {"token": self.token}, timeout_s=RENEW_EVERY_S)
            except (RetryableError, RefusedError) as error:
                log.info("lease.not_released", reason=str(error))
        self.token = None
