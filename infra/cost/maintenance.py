"""What maintenance takes: merges of hours, of cold days and months, and what expires. Its settings are the
defaults."""

from collections.abc import Iterator
from math import ceil, exp

from infra.cost.coefficients import Coefficients
from infra.cost.flushes import RECORD_OVERHEAD_BYTES, Buffer, Flushes
from infra.cost.load import DAY_S, GB
from infra.cost.resources import Resources, total
from lake.settings.optimize import ColdSettings, MergeSettings, OptimizeSpark

DAY_H, MONTH_H, WEEK_H = 24, 730, 168
DAYS_OF_MONTH = 30.0
# Objects of one answer to a LIST.
LISTED = 1_000


def spans(hour_bytes: float, retention_days: float) -> tuple[int, ...]:
    """Hours of each file that the rows of an hour are written to, one after the other: the hour's, and where
    retention and size allow it the day's and the month's. `hour_bytes`: of a merged hour of the table."""
    most_h = retention_days * DAY_H * ColdSettings().span_share_max
    target = MergeSettings().target_file_bytes
    # A month counts from a retention of 310 days on.
    longer = ((DAY_H, DAY_H), (MONTH_H, 31 * DAY_H))
    return (1, *(hours for hours, least_h in longer if least_h <= most_h and hour_bytes * hours < target))


def maintenance(flushes: Flushes, coefficients: Coefficients) -> Resources:
    """What merging, expiry and retention take; memory is what the settings give Spark, and a GiB."""
    merging = total(
        _scaled(_of_table(buffer, flushes, coefficients), count) for count, buffer in flushes.buffers
    )
    return merging + Resources(memory_gib=OptimizeSpark().driver_memory_mb / 1_024 + 1)


def _scaled(each: Resources, count: int) -> Resources:
    return Resources(
        cores=each.cores * count,
        put_per_hour=each.put_per_hour * count,
        get_per_hour=each.get_per_hour * count,
        list_per_hour=each.list_per_hour * count,
        storage_gb_per_hour=each.storage_gb_per_hour * count,
    )


def _of_table(buffer: Buffer, flushes: Flushes, coefficients: Coefficients) -> Resources:
    """Of one table: its merges, and what goes by the day whatever comes."""
    load, workers = flushes.load, flushes.rules.workers
    of_records = load.bytes_per_record / (load.bytes_per_record + RECORD_OVERHEAD_BYTES)
    raw_bytes = buffer.bytes_per_s * workers * of_records * 3_600
    files = buffer.flushes_per_s * workers * 3_600
    merges = total(_merges(raw_bytes, files, load.retention_days, coefficients))
    listings = ceil(_objects(raw_bytes * coefficients["ratio.merged"], load.retention_days) / LISTED)
    return merges + Resources(
        cores=coefficients["cpu.table.day"] / DAY_S,
        put_per_hour=coefficients["put.commit"] / DAY_H,  # retention: a commit a day
        list_per_hour=listings / WEEK_H,  # the search for orphan files
    )


def _merges(
    raw_bytes: float, files: float, retention_days: float, coefficients: Coefficients
) -> Iterator[Resources]:
    """Those of an hour, its share of a day and of a month. `raw_bytes`, `files`: of the records of an hour,
    and how many files they come in on average."""
    merged = raw_bytes * coefficients["ratio.merged"]
    comes_in_two = 1 - exp(-files) * (1 + files)
    inputs, read = max(files, 2.0), raw_bytes * coefficients["ratio.small"]
    for hours in spans(merged, retention_days):
        # What is an hour's only file is merged with others into a day's, not before.
        share = comes_in_two / hours if hours == 1 else (1 - exp(-files * hours)) / hours
        outputs = max(1, ceil(merged * hours / MergeSettings().target_file_bytes))
        yield Resources(
            cores=share
            * (coefficients["cpu.merge.table"] + raw_bytes * hours * coefficients["cpu.merge.byte"])
            / 3_600,
            put_per_hour=share * (coefficients["put.merge"] + outputs),
            get_per_hour=share * inputs * coefficients["get.merge.file"],
            storage_gb_per_hour=share * (read + merged) * hours / GB,
        )
        inputs = min(DAY_H, max(1.0, files * DAY_H)) if hours == 1 else DAYS_OF_MONTH
        read = merged


def _objects(hour_bytes: float, retention_days: float) -> float:
    """Objects of a table, about: a week of hours, and the rest in the longest files that there are."""
    longest_h = spans(hour_bytes, retention_days)[-1]
    hours = retention_days * DAY_H
    recent = min(hours, WEEK_H)
    files = max(1.0, hour_bytes * longest_h / MergeSettings().target_file_bytes)
    return recent + (hours - recent) / longest_h * files
