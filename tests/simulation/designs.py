"""What grows by design in the simulated months, and up to where."""

from collections.abc import Mapping
from typing import Any

from lake.settings import OptimizeSettings
from tests.simulation.growth import Design
from tests.simulation.world import DAY_H, Plan

# A tenant that keeps everything: hours of a week, days until their month is cold, months.
_HOURS_UNTIL_COLD = 7 * DAY_H
_DAYS_UNTIL_MONTH = 31 + 7 + 1
_HISTORY_DAYS = 90
_BYTES_OF_A_MANIFEST = 7_000  # one of the large table has 5,500 to 6,500 with its share of all else
_FILES_MARGIN = 1.5  # late rows bring a second file to an hour or day for a while


def designs(plan: Plan) -> list[Design]:
    """The list for a plan. Lists of what waits are in it because their lengths depend on the moment."""

    def most_files(week: Mapping[str, Any]) -> float:
        months = int(week["week"]) * plan.week_h // (28 * DAY_H) + 2
        return _FILES_MARGIN * (_HOURS_UNTIL_COLD + _DAYS_UNTIL_MONTH + months)

    return [
        Design(
            "tables.for_ever.files.max",
            "the data of a tenant without retention",
            "a file for each hour of a week, each day of an unfinished month, each month",
            most_files,
        ),
        Design(
            "tables.drifting.columns.max",
            "columns of tenants whose records keep bringing new fields",
            "one a week here, and the setting limits.columns_max",
            lambda week: 30 + week["week"] + 1,
        ),
        Design(
            "tables.level.snapshots.max",
            "between two expiries a table gains snapshots",
            "the setting snapshots.count_max",
            lambda _: float(OptimizeSettings().snapshots.count_max),
        ),
        Design(
            "tables.level.manifests.max",
            "between two gatherings a table gains a manifest with each commit",
            "the setting merge.manifests_max",
            lambda _: float(OptimizeSettings().merge.manifests_max),
        ),
        Design(
            "tables.level.metadata_bytes.max",
            "the manifests of that table, with their list and the metadata file",
            f"{_BYTES_OF_A_MANIFEST:,} bytes for each manifest that the setting merge.manifests_max allows",
            lambda _: float(_BYTES_OF_A_MANIFEST * OptimizeSettings().merge.manifests_max),
        ),
        Design(
            "system_table.files",
            "what maintenance did, kept for 90 days (firn.retention of firn_system.maintenance)",
            "a file for each hour of a week, and each of 90 days",
            lambda _: _FILES_MARGIN * (_HOURS_UNTIL_COLD + _HISTORY_DAYS),
        ),
        Design(
            "database.file_bytes",
            "SQLite's file stays as large as it ever had to be; what is in use is judged",
            "twice what is in use",
            lambda week: 2.0 * week["database"]["used_bytes"],
        ),
        Design(
            "kept.watch_tables",
            "tables that have changed within three hours and have gained a file since they were looked at",
            "all tables, that of maintenance among them",
            lambda _: plan.tenants + 1.0,
        ),
        Design(
            "kept.watch_rooms",
            "tables that have changed within three hours and were looked at",
            "all tables, that of maintenance among them",
            lambda _: plan.tenants + 1.0,
        ),
        Design(
            "kept.resting_tables",
            "tables that were asked for and had nothing to do, until they change or a day is over",
            "all tables, that of maintenance among them",
            lambda _: plan.tenants + 1.0,
        ),
        Design(
            "kept.cold_groups",
            "days and months that the last look has found to become cold; a look is every six hours",
            "those of two days, of all tables",
            lambda _: 2 * plan.tenants,
        ),
        Design(
            "database.rows_deletions",
            "files that nobody reaches any more, until the readers' grace of six hours is over",
            "twice what is deleted in a day; it goes up and down",
            lambda week: 2 * week["done"].get("deleted", 0) / (week["week"] * plan.week_h / DAY_H),
        ),
        Design(
            "database.rows_dropped_tables",
            "tables that were dropped, until they are purged, after three days",
            "twice what is dropped in four days, and some; it goes up and down",
            lambda week: 5 + 8 * week["done"].get("tenants_gone", 0) / (week["week"] * plan.week_h / DAY_H),
        ),
        Design(
            "database.rows_tasks",
            "a note of each table whose files are gone, kept for 90 days (lake/purged_tables.py)",
            "tables dropped in 90 days, and some tens of entries",
            lambda week: week["done"].get("tenants_gone", 0) + 50,
        ),
    ]
