"""What is done daily or weekly: retention, purge of dropped tables, orphan files. When each was done last is kept in the catalog."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog

from lake.catalog_client import CatalogClient, TableName
from lake.clock import epoch_ms
from lake.errors import FirnError, NotFoundError
from optimize.commit_round import Fate, Pending
from optimize.history import Entry
from optimize.inventory import AllTables, NamedTables
from optimize.maintenance import Maintenance
from optimize.orphan_files import Orphans, delete_orphans, find_orphans
from optimize.planner import MS_PER_HOUR
from optimize.purge import Dropped, purge, purgeable
from optimize.retention import PROPERTY, Expired, expired_files, parse_retention
from optimize.table_view import load_view

KIND = "optimize.duty"
PATH = "/firn/v1/tasks"
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Duties:
    """The duties over the parts of a maintenance."""

    maintenance: Maintenance

    def run_due(self) -> None:
        """Runs every duty whose interval is over; one that fails does not stop the others, and is tried again at the next round."""
        s = self.maintenance.settings
        works: dict[str, tuple[float, Callable[[], object]]] = {
            "retention": (s.retention_interval_s, lambda: list(self.retention())),
            "purge": (s.retention_interval_s, lambda: list(self.purge())),
            "orphans": (s.orphan_interval_s, lambda: list(self.orphans(delete=True))),
        }
        for name, (interval_s, work) in works.items():
            version, last_ms = self._last(name)
            now_ms = epoch_ms(self.maintenance.clock.now())
            if now_ms - last_ms < interval_s * 1000 or self.maintenance.halted():
                continue
            try:
                work()
                self._done(name, version, now_ms)
            except FirnError as error:
                log.warning("optimize.duty_failed", duty=name, error=str(error))

    def retention(self, *, dry_run: bool = False) -> Iterator[tuple[Expired, str]]:
        """Takes hours past their retention from every table that has one; gives what went (or would go), and why not where it failed."""
        m = self.maintenance
        for table in self._tables():
            try:
                view = load_view(m.catalog, m.storage, table)
                if view is None or view.state.head is None or (hours := parse_retention(view.property(PROPERTY))) is None:
                    continue
                expired = expired_files(table, view.partitions().values(), hours, epoch_ms(m.clock.now()))
            except (FirnError, ValueError) as error:
                log.warning("optimize.retention_failed", table=str(table), error=str(error))
                yield Expired(table, (), 0, None), str(error)
                continue
            if not expired.files:
                continue
            reason = ""
            if not dry_run:
                one = Pending(view, remove=expired.files)
                m.commits.commit([one])
                reason = "" if one.fate is Fate.COMMITTED else one.reason
                m.history.write([self._entry(expired, reason)])
                log.info("optimize.retention", table=str(table), files=len(expired.files), rows=expired.rows, outcome=reason or "done")
            yield expired, reason

    def _entry(self, expired: Expired, reason: str) -> Entry:
        return Entry(str(expired.table), "retention", reason or "done", len(expired.files), 0, expired.size_bytes, expired.rows)

    def purge(self, *, dry_run: bool = False) -> Iterator[tuple[Dropped, int]]:
        """Purges dropped tables whose time is over; gives each with the number of files deleted."""
        m = self.maintenance
        for dropped in list(purgeable(m.catalog)):
            files = 0 if dry_run else purge(m.catalog, m.storage, dropped, m.commits.deletions.throttle)
            if not dry_run and not dropped.refusal:
                m.history.write([Entry(dropped.name, "purge", files_before=files)])
            yield dropped, files

    def orphans(self, *, delete: bool) -> Iterator[tuple[Orphans, str]]:
        """Looks for orphan files below every table, and deletes them where asked to; gives what was found, and why it stays."""
        m = self.maintenance
        for table in self._tables():
            if m.halted():
                return
            try:
                found = find_orphans(m.catalog, m.storage, table, age_min_s=m.settings.orphan_age_min_s, now=m.clock.now())
                if found is None or not found.files:
                    continue
                if delete:
                    count = delete_orphans(m.catalog, m.storage, found, m.commits.deletions.throttle)
                    m.history.write([Entry(str(table), "orphans", files_before=count, size_bytes=found.size_bytes)])
                yield found, ""
            except (FirnError, ValueError) as error:
                log.warning("optimize.orphans_kept", table=str(table), reason=str(error))
                yield Orphans(table, 0, (), 0), str(error)

    def _tables(self) -> Iterator[TableName]:
        """All tables (or those named on the command line): retention and orphans concern tables that nobody writes to as well."""
        named = self.maintenance.inventory
        source = named if isinstance(named, NamedTables) else AllTables(self.maintenance.catalog)
        return (candidate.table for candidate in source.candidates())

    def _last(self, name: str) -> tuple[int, int]:
        """Version of the entry and when the duty was done last, ms since 1970."""
        catalog: CatalogClient = self.maintenance.catalog
        if not catalog.has_extras:
            return 0, 0
        try:
            tasks = catalog.get(PATH, kind=KIND)["tasks"]
        except NotFoundError:
            return 0, 0
        return next(((t["version"], int(t["record"]["at-ms"])) for t in tasks if t["id"] == f"{KIND}:{name}"), (0, 0))

    def _done(self, name: str, version: int, now_ms: int) -> None:
        if self.maintenance.catalog.has_extras:
            task = {"id": f"{KIND}:{name}", "kind": KIND, "state": "done", "version": version, "record": {"at-ms": now_ms}}
            self.maintenance.catalog.post(PATH, {"tasks": [task]})


def moment(hour: int) -> str:
    """An hour since 1970 as a person reads it."""
    return f"{datetime.fromtimestamp(hour * MS_PER_HOUR / 1000, UTC):%Y-%m-%d %H:00} UTC"
