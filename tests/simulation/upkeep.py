"""What maintenance does in the simulation: its look at crowded tables each hour, its rounds, and what is due
daily and weekly after them."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from lake.catalog_client import CatalogClient
from lake.clock import epoch_ms, moment_of
from lake.errors import FatalError
from optimize.inventory import DirtyPartitions
from optimize.maintenance import RoundReport
from optimize.maintenance_tasks import DAILY, WEEKLY, MaintenanceTasks, interval_begin_ms
from optimize.snapshot_watch import SnapshotWatch
from optimize.spark_executor import Executor
from tests.optimize.support.maintained import maintenance
from tests.simulation.counted import Costs, CountedStorage, Meter
from tests.simulation.moved_clock import SharedClock
from tests.simulation.traffic import START

SECONDS_OF_AN_HOUR = 600.0  # that the machine takes for an hour at most


@dataclass(frozen=True, slots=True)
class Hour:
    """What is to be done at the end of an hour. `round_of_hours`: a round, and how many hours it stands for;
    0: none. `counts`: whether costs are counted."""

    round_of_hours: int
    counts: bool


@dataclass(slots=True)
class Did:
    """What was done in an hour. `retained_at`: the moment as of which retention was carried out
    last."""

    retained_at: datetime = START
    counted: Counter[str] = field(default_factory=Counter)


class Upkeep:
    """Maintenance of all tables of a catalog."""

    def __init__(
        self,
        catalog: CatalogClient,
        storage: CountedStorage,
        clock: SharedClock,
        meter: Meter,
        settings: Mapping[str, Any],
        executor: Executor,
    ) -> None:
        # The storage is a local disk, which nobody has to spare; a pause of the throttle would be the
        # machine's time.
        # What is done weekly is done at the same hour, and not in the next round for some seconds.
        more = {
            "retention__storage_requests_per_s_max": 1e9,
            "retention__orphan_interval_s": 7 * 86_400.0 - SECONDS_OF_AN_HOUR,
            # With the week of production, folders that the search walks through level off in the fourth week.
            "retention__orphan_age_min_s": 86_400.0,
            **settings,
        }
        self._maintenance = maintenance(catalog, clock=clock, storage=storage, executor=executor, **more)
        self._tasks, self._clock = MaintenanceTasks(self._maintenance), clock
        self._watch = SnapshotWatch(catalog, self._maintenance.settings)
        self.costs = Costs(meter)

    def live(self, hour: Hour) -> Did:
        """Does what is due after an hour. Raises FatalError where maintenance fails."""
        self.costs.counts = hour.counts
        self._look()
        done = Did()
        if hour.round_of_hours:
            self._round(hour.round_of_hours, done)
        interval_s, last_ms = (
            self._maintenance.settings.retention.interval_s,
            self._tasks._last("retention")[1],
        )
        done.retained_at = moment_of(interval_begin_ms(interval_s, last_ms))
        return done

    def _look(self) -> None:
        with self.costs.of("snapshot_watch") as done:
            crowded = self._watch.crowded(epoch_ms(self._clock.now()))
            done.append(1)
        if crowded:
            with self.costs.of("expire") as done:
                self._watch.note(self._maintenance.expire(crowded).snapshots_left)
                done.append(len(crowded))

    def _round(self, hours: int, did: Did) -> None:
        with self.costs.of("round", with_executors=True) as done:
            report = self._maintenance.run()
            _check(report)
            self._tasks.note_round()
            done.append(hours)
        did.counted.update(
            rounds=1,
            merges=report.merged_tables,
            merged_files=report.files_before,
            deleted=report.files_deleted,
        )
        for name, tasks in (("daily_tasks", DAILY), ("weekly_tasks", WEEKLY)):
            with self.costs.of(name, with_executors=True) as done:
                self._tasks.run_due(tasks)
                done.append(1)

    def kept(self) -> dict[str, int]:
        """How much maintenance remembers between rounds."""
        inventory = self._maintenance.inventory
        assert isinstance(inventory, DirtyPartitions)
        return {
            "watch_partitions": len(self._watch._files),
            "watch_tables": len(self._watch._gained),
            "watch_rooms": len(self._watch._room),
            "cold_groups": len(inventory.cold_hours._seen),
            "crowded_partitions": len(inventory._crowded),
            "resting_tables": len(inventory._resting),
        }


def _check(report: RoundReport) -> None:
    if report.failures:
        raise FatalError(f"maintenance failed: {next(iter(report.failures.items()))}")
