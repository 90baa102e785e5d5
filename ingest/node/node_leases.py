"""The leases of a node: of the shares of the input that it reads, and of its place among the nodes.

With one share, as by default, it is the group's lease: whoever holds it works, all others stand by. With
more, nodes work side by side, as many as there are shares at most:

    place    a node that is there holds the lease of one; places are numbered
    plan     what every node derives from the leases in force: nodes, in the order of their places, get the
             shares in turns. While a table is parked, one of them gets all
    share    whoever holds its lease reads its partitions, and nobody else does

A node whose plan changes flushes, gives its shares back, and takes those of the new plan. Where two plans
differ for a moment, the leases decide. A node that dies loses its leases within seconds, and the others plan
anew.
"""

import threading
from dataclasses import dataclass, field

import structlog

from ingest.model.shares import Shares
from lake.catalog_client import CatalogClient
from lake.clock import Clock
from lake.errors import FirnError, RetryableError, SettingsError, UnavailableError
from lake.extras_client import ExtrasClient
from lake.lease import NODE_TIMES, Lease, lease_name, share_leases
from lake.settings import IngestSettings

WATCH_EVERY_S = 1.0
# One who has all shares keeps them for so long after the last table was released: it may be parked again.
CALM_S = 10.0
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Plan:
    """What this node is to hold. `of_others`: shares whose leases are in force for others."""

    shares: tuple[int, ...]
    of_others: frozenset[int]
    is_parked: bool


@dataclass
class NodeLeases:
    """One node's. `control` None, or a catalog without leases: with one share nothing guards against a second
    node; more are refused. Where a table is moved back to what one node believes it to be, while another has
    committed since, the first one's commit lands, and nothing shows any more that rows are gone; only Firn's
    catalog has noted it by then. `holder`: who asks. `still_s`: as of `Lease`."""

    settings: IngestSettings
    control: CatalogClient | None
    holder: str
    clock: Clock
    still_s: float
    _shares: list[Lease] = field(init=False)
    _places: list[Lease] = field(init=False)
    _place: Lease | None = None
    _kept: Lease | None = None  # the place of before, still in force
    _held: list[int] = field(default_factory=list)
    _plan: Plan | None = None
    _parked_s: float = float("-inf")  # when something was parked last
    _watched: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._shares = [self._lease(name) for name in share_leases(self.settings)]
        self._places = [self._lease(name) for name in self._place_names] if self._is_shared else []

    def _lease(self, name: str) -> Lease:
        return Lease(
            self.control, name, NODE_TIMES, holder=self.holder, clock=self.clock, still_s=self.still_s
        )

    @property
    def _is_shared(self) -> bool:
        return self.settings.shares > 1

    @property
    def _place_names(self) -> list[str]:
        name, total = lease_name(self.settings), self.settings.shares
        return [f"{name}.place-{place}-of-{total}" for place in range(total)]

    @property
    def shares(self) -> Shares:
        """Those that are held."""
        return Shares(tuple(self._held), self.settings.shares)

    @property
    def token(self) -> int | None:
        """The fencing token of the first share that is held; None where nobody has leases."""
        return self._shares[self._held[0]].token if self._held else None

    @property
    def fencing_tokens(self) -> list[str]:
        """Of all shares that are held, in order, as requests name them; none where nobody has leases."""
        tokens = (self._shares[share].fencing_token for share in self._held)
        return [token for token in tokens if token is not None]

    # ---- getting them

    def acquire(self, stopping: threading.Event) -> bool:
        """Waits until the shares of the plan are this node's, at least one; False where `stopping` is set
        first. Raises SettingsError where shares cannot be had."""
        if not self._is_shared:
            self._held = [0]
            return self._shares[0].acquire(stopping)
        if self.control is None or not self.control.has_extras:
            raise SettingsError(
                "shares above 1 need Firn's own catalog, which notes in one transaction that a table was "
                "moved back; behind another one set shares to 1"
            )
        tell = log.info
        while not stopping.is_set():
            try:
                if self._has_place() and self._has_shares(self.control):
                    self._watch(self.control)
                    log.info("shares.held", shares=self._held, of=self.settings.shares)
                    return True
                tell("shares.standby", shares=self._held, plan=self._plan and self._plan.shares)
            except RetryableError as error:
                tell("shares.wait", reason=str(error))
            tell = log.debug  # a standby waits for days
            stopping.wait(NODE_TIMES.try_every_s)
        return False

    def _has_place(self) -> bool:
        if self._place is None or self._place.lost:
            # One's own is had again at once; taken anew, it counts as not yet asked for.
            places = [self._kept] if self._kept is not None else []
            self._place = next((place for place in [*places, *self._places] if place.try_now()), None)
            self._kept = None
        return self._place is not None

    def _has_shares(self, control: CatalogClient) -> bool:
        """Takes what the plan says, and gives back what it does not."""
        plan = self._plan = self._planned(control)
        lost = [share for share in self._held if self._shares[share].lost]
        for share in {*self._held} - {*plan.shares} | {*lost}:
            self._shares[share].release()
            self._held.remove(share)
        missing = [share for share in plan.shares if share not in self._held]
        self._held = sorted([*self._held, *(share for share in missing if self._shares[share].try_now())])
        if not self._held or tuple(self._held) != plan.shares:
            return False
        # Whether something is parked counts once the leases are held: who parked before has lost them.
        self._plan = self._planned(control)
        return self._plan.shares == plan.shares

    def _planned(self, control: CatalogClient) -> Plan:
        extras, total = ExtrasClient(control), self.settings.shares
        holders = extras.lease_holders()
        nodes = [holders[name] for name in self._place_names if name in holders]
        held_by = [holders.get(name) for name in share_leases(self.settings)]
        of_others = frozenset(share for share, by in enumerate(held_by) if by not in (None, self.holder))
        is_parked = next(extras.parked(), None) is not None
        if is_parked:
            self._parked_s = self.clock.monotonic_s()
            one = held_by[0] if held_by[0] in nodes else next(iter(nodes), None)
            mine = range(total) if one == self.holder else range(0)
        else:
            mine = range(nodes.index(self.holder), total, len(nodes)) if self.holder in nodes else range(0)
        return Plan(tuple(mine), of_others, is_parked)

    # ---- keeping them

    def _watch(self, control: CatalogClient) -> None:
        self._watched = threading.Event()
        args = control, self._watched
        threading.Thread(target=self._keep_planning, args=args, name="shares", daemon=True).start()

    def _keep_planning(self, control: CatalogClient, ended: threading.Event) -> None:
        while not ended.wait(WATCH_EVERY_S):
            try:
                plan = self._planned(control)
            except FirnError as error:
                log.info("shares.not_planned", reason=str(error))
            else:
                if not ended.is_set():
                    self._plan = plan

    def check(self) -> None:
        """Raises UnavailableError where another may hold one of them by now, or one node has to have all."""
        for lease in self._all_held():
            lease.check()
        if self._plan is not None and self._plan.is_parked and not self.shares.are_all:
            raise UnavailableError("a table is parked, so one node has to have all shares")

    @property
    def are_moving(self) -> bool:
        """Whether others are to have some of them, or this node more, which nobody holds."""
        plan, held = self._plan, {*self._held}
        if plan is None or self._is_calming:
            return False
        return bool(held - {*plan.shares} or {*plan.shares} - held - plan.of_others)

    @property
    def _is_calming(self) -> bool:
        return self.shares.are_all and self.clock.monotonic_s() - self._parked_s < CALM_S

    def held_after(self, moment_s: float) -> bool:
        """Whether all shares were certainly this node's at some time after a monotonic moment."""
        return all(self._shares[share].held_after(moment_s) for share in self._held)

    def confirm_soon(self) -> None:
        """Somebody waits for `held_after`."""
        for share in self._held:
            self._shares[share].confirm_soon()

    def _all_held(self) -> list[Lease]:
        place = [] if self._place is None else [self._place]
        return [*place, *(self._shares[share] for share in self._held)]

    # ---- giving them back

    def release(self, *, stays: bool = False) -> None:
        """Lets others have the shares; the place, too, unless the node `stays` to take other shares."""
        self._watched.set()
        for share in self._held:
            self._shares[share].release()
        self._held, self._plan = [], None
        self._place, self._kept = None, self._place or self._kept
        if self._kept is not None and not stays:
            self._kept.release()
            self._kept = None
