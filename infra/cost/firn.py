"""What a load takes on Firn, part by part, by measured coefficients."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil

from infra.cost.coefficients import Coefficients
from infra.cost.flushes import MIB, Flushes, Rules, batches_per_s
from infra.cost.ingestion import Work, cpu_s, requests
from infra.cost.load import DAY_S, GB, Load
from infra.cost.maintenance import maintenance
from infra.cost.resources import Resources, total
from infra.cost.sizing_rules import PriceFile
from lake.settings.ingest import FlushSettings
from lake.settings.optimize import MergeSettings, RetentionSettings
from lake.settings.query import EmbeddedSettings

GIB = 1 << 30
WORKERS_MAX = 64
WEEK_S = 7 * DAY_S
BUFFERS_TRIED_MIB = tuple(512 * 2**power for power in range(10))


@dataclass(frozen=True)
class Sizing:
    """Firn for one load. `buffer_bytes`: the setting `flush.buffer_bytes_max`; `storage_ratio`: bytes of
    merged files for one byte of records, where the reader knows it of the own records."""

    load: Load
    coefficients: Coefficients
    price_file: PriceFile
    flush: FlushSettings
    buffer_bytes: float
    storage_ratio: float | None = None

    @cached_property
    def _measured(self) -> Coefficients:
        if self.storage_ratio is None:
            return self.coefficients
        merged = self.coefficients.by_name["ratio.merged"]
        own = replace(merged, value=self.storage_ratio)
        return Coefficients({**self.coefficients.by_name, merged.name: own})

    @property
    def utilisation(self) -> float:
        return self.price_file.assumptions["utilisation"].value

    @cached_property
    def flushes(self) -> Flushes:
        """Those of as many workers as their CPU needs: each worker has buffers of its own, so more of them
        also flush more."""
        workers = 1
        while True:
            rules = Rules.of(
                self.flush,
                small_ratio=self._measured["ratio.small"],
                workers=workers,
                buffer_bytes=self.buffer_bytes,
            )
            found = Flushes(self.load, rules)
            needed = ceil(self._cpu(found)["worker"] / self.utilisation)
            if needed <= workers or workers >= WORKERS_MAX:
                return found
            workers = min(needed, WORKERS_MAX)

    def _work(self, flushes: Flushes) -> Work:
        """Of one second."""
        return Work(
            1.0,
            self.load.records_per_second,
            self.load.bytes_per_s,
            flushes.per_s,
            0.0,
            flushes.per_s * flushes.files_per_flush,
            batches_per_s(flushes.per_s),
        )

    def _cpu(self, flushes: Flushes) -> Mapping[str, float]:
        found = cpu_s(self._work(flushes), self._measured)
        idle = self._measured["cpu.worker.second"]
        return {**found, "worker": found["worker"] + idle * (flushes.rules.workers - 1)}

    @cached_property
    def cpu(self) -> Mapping[str, float]:
        """Cores that ingestion keeps busy, by process."""
        return self._cpu(self.flushes)

    @property
    def keeps_up(self) -> bool:
        """Whether one node can do it: its main process has one core, and it has so many workers at most."""
        return self.cpu["main"] <= 1 and self.cpu["worker"] <= self.flushes.rules.workers

    @property
    def warnings(self) -> tuple[str, ...]:
        """What such a load would not run with, or not well."""
        found = []
        if self.cpu["main"] > self.utilisation:
            found.append(
                f"the node's one main process would need {self.cpu['main']:.1f} cores for its commits: raise "
                "flush.buffer_bytes_max or flush.interval_s, or divide the topics among groups"
            )
        if self.cpu["worker"] > self.flushes.rules.workers * self.utilisation:
            found.append(f"a node has {WORKERS_MAX} workers at most: divide the topics among groups")
        if self.flushes.is_bounded_by_memory:
            found.append(
                f"tables are flushed before their time, since flush.buffer_bytes_max is "
                f"{self.buffer_bytes / MIB:,.0f} MiB"
            )
        return tuple(found)

    @cached_property
    def parts(self) -> dict[str, Resources]:
        """What each part takes. Cores are what is busy on average divided by the utilisation that the price
        file aims at."""
        found = {
            "Kafka": self.price_file.kafka.taken(self.load, self.price_file.shared),
            "ingest": self._ingest(),
            "catalog": self._catalog(),
            "maintenance": maintenance(self.flushes, self._measured),
            "search": self._search(),
            "tables": self._tables(),
        }
        return {
            name: replace(each, cores=each.cores / (1.0 if name == "Kafka" else self.utilisation))
            for name, each in found.items()
        }

    @property
    def taken(self) -> Resources:
        return total(self.parts.values())

    @property
    def month(self) -> float:
        """What a month costs."""
        return self.price_file.prices.month_sum(self.taken)

    def _ingest(self) -> Resources:
        work, measured = self._work(self.flushes), self._measured
        asked = requests(work, measured)
        written = self.load.bytes_per_s * measured["ratio.small"]
        written += work.commits * measured["put.commit"] * measured["bytes.metadata"]
        memory = measured["memory.node"] + self.load.tenants * measured["memory.node.table"]
        return Resources(
            cores=self.cpu["worker"] + self.cpu["main"],
            memory_gib=(memory + self.buffer_bytes) / GIB,
            put_per_hour=asked["put"] * 3_600,
            get_per_hour=asked["get"] * 3_600,
            storage_gb_per_hour=written * 3_600 / GB,
        )

    def _catalog(self) -> Resources:
        memory = self._measured["memory.catalog"] + self.load.tenants * self._measured["memory.catalog.table"]
        return Resources(cores=self.cpu["catalog"], memory_gib=memory / GIB)

    def _search(self) -> Resources:
        """A search reads what the measured mix reads of a week of its table, up to what the engine in process
        reads at most: of more, pages come newest first and end early. No file that is kept from an earlier
        search is counted."""
        measured, each_s = self._measured, self.load.searches_per_day / DAY_S
        week = self.load.bytes_per_s * self.load.searched_share * WEEK_S * measured["ratio.merged"]
        embedded, share = EmbeddedSettings(), measured["bytes.search.week"]
        week = min(week, embedded.scan_bytes_max / share) if share else week
        read = measured["bytes.search"] + week * share
        files = max(1.0, read / MergeSettings().target_file_bytes) * measured["files.search"]
        return Resources(
            cores=each_s * (measured["cpu.search"] + week * measured["cpu.search.week"]),
            memory_gib=(embedded.memory_bytes + measured["memory.search"]) / GIB if each_s else 0.0,
            ssd_gb=embedded.file_cache_bytes_max / GB if each_s else 0.0,
            get_per_hour=each_s * 3_600 * (files + ceil(read / MIB)),
            storage_gb_per_hour=each_s * 3_600 * read / GB,
        )

    def _tables(self) -> Resources:
        """Bytes that stay: merged files for as long as the retention says; those that are not merged yet, and
        the merged away ones for as long as a query may read them; metadata."""
        measured, merge, retention = self._measured, MergeSettings(), RetentionSettings()
        kept = self.load.bytes_per_s * self.load.retention_days * DAY_S * measured["ratio.merged"]
        small_s = 3_600 + merge.closed_after_s + retention.reader_grace_s
        small = self.load.bytes_per_s * small_s * measured["ratio.small"]
        metadata = self.load.tenants * measured["bytes.metadata.table"]
        return Resources(object_gb=(kept + small + metadata) / GB)


def cheapest_buffer(sizing: Sizing) -> Sizing:
    """The same with as much memory for waiting records as makes the month cheapest."""
    tried = [replace(sizing, buffer_bytes=float(mib * MIB)) for mib in BUFFERS_TRIED_MIB]
    return min(tried, key=lambda each: each.month)
