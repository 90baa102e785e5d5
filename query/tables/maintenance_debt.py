"""Whether maintenance keeps up, and if not, how far it is behind: for the health page, where nobody has to
know what a round is."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice

import structlog

from lake.catalog_client import CatalogClient
from lake.clock import moment_of
from lake.errors import FirnError
from lake.extras_client import ChangedPartition, ExtrasClient
from lake.table_layout import parse_bucket_path
from query.tables.maintenance_state import LEASE, MAINTENANCE_TASKS, MANY_FILES

log = structlog.get_logger()
ROUND = f"{MAINTENANCE_TASKS}:round"
# Three times the default interval of rounds.
ROUND_AGE_MAX = timedelta(hours=3)
# An hour is not looked at while it is open and some rounds long; late records wait for a merged hour's rest
# (6 hours by default).
SETTLED = timedelta(hours=2)
WAITING_MAX = timedelta(hours=12)
# Larger files on average are as good as merged.
SMALL_FILE_BYTES = 32 * 1024 * 1024
LISTED_MAX = 1_000
# A bucket of a keyed table keeps files of unlike sizes, and some delete files of each: it rests with those.
MANY_IN_BUCKET = 16


@dataclass(frozen=True, slots=True)
class MaintenanceDebt:
    """`last_round` None: there was none. `crowded`: partitions of many files, the open hours among them;
    `waiting`: those of them that maintenance should have merged by now, `oldest`: since when the first of
    them waits. None: the catalog or the key does not tell. Lists end at 1,000."""

    leader: str | None
    last_round: datetime | None
    crowded: int | None
    waiting: int | None
    oldest: datetime | None

    def problem(self, now: datetime) -> str:
        """What is behind, and by how much; empty where maintenance keeps up."""
        problems = []
        if self.last_round is None and self.leader is None:
            problems.append("nobody has ever run it: start `python -m optimize run`")
        elif self.last_round is not None and now - self.last_round > ROUND_AGE_MAX:
            problems.append(
                f"its last round ended {_length(now - self.last_round)} ago"
                + ("" if self.leader else " and nobody runs it now")
            )
        if self.waiting and self.oldest is not None and now - self.oldest > WAITING_MAX:
            number = f"{LISTED_MAX:,} or more" if self.waiting >= LISTED_MAX else f"{self.waiting:,}"
            problems.append(
                f"{number} hours of tables wait to be merged, the longest for {_length(now - self.oldest)}"
            )
        return "; ".join(problems)

    def says(self, now: datetime) -> str:
        """In one line how maintenance stands."""
        if problem := self.problem(now):
            return f"behind: {problem}"
        return (
            "its first round runs"
            if self.last_round is None
            else f"keeps up: its last round ended {_length(now - self.last_round)} ago"
        )


def _length(time: timedelta) -> str:
    seconds = int(time.total_seconds())
    return next(
        (
            f"{seconds // length} {unit}"
            for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60))
            if seconds >= 2 * length
        ),
        f"{max(0, seconds)} s",
    )


def maintenance_debt(room: CatalogClient, caller: CatalogClient, now: datetime) -> MaintenanceDebt | None:
    """As the catalog knows it: who runs maintenance asked with the room's key, partitions with the caller's.
    None beside a catalog without extras."""
    try:
        leader = ExtrasClient(room).lease_holder(LEASE)
        round_ = ExtrasClient(room).find_task(MAINTENANCE_TASKS, ROUND)
    except FirnError as error:
        log.info("maintenance.not_known", error=str(error))
        return None
    last = None if round_ is None else moment_of(int(round_.record["at-ms"]))
    crowded = _crowded(caller)
    late = None if crowded is None else [each for each in crowded if is_waiting(each, now)]
    oldest = min((moment_of(each.changed_ms) for each in late), default=None) if late else None
    return MaintenanceDebt(
        leader,
        last,
        None if crowded is None else len(crowded),
        None if late is None else len(late),
        oldest,
    )


def _crowded(caller: CatalogClient) -> list[ChangedPartition] | None:
    """Partitions of many files, the longest unchanged first; None where the catalog or the key does not
    tell."""
    try:
        return list(islice(ExtrasClient(caller).changed_partitions(files_min=MANY_FILES), LISTED_MAX))
    except FirnError:
        return None


def is_waiting(partition: ChangedPartition, now: datetime) -> bool:
    """Whether maintenance should have merged a partition of many files by now."""
    if parse_bucket_path(partition.path) is not None and partition.data_files < MANY_IN_BUCKET:
        return False
    is_small = partition.size_bytes < SMALL_FILE_BYTES * max(1, partition.data_files)
    return is_small and moment_of(partition.changed_ms) < now - SETTLED
