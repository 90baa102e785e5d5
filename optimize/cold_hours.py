"""Hours and days that became cold, of all tables: the catalog puts their files together by day and month.
What has become one file is in none of its answers, and neither is what would be too large for one.

That is asked once in `cold.interval_s`, and again in the next round while a table of the last answer was not
done. What the planner left as it was is looked at again when its files are others, or once in
`cold.late_cooldown_s`.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from lake.catalog_client import CatalogClient, TableName
from lake.errors import NotFoundError
from lake.extras_client import ExtrasClient, PartitionGroup
from lake.retention import MS_PER_HOUR
from lake.settings import OptimizeSettings
from lake.span import Span, Unit, parse_span_path
from lake.table_layout import PARTITION_FIELD

# Which partitions, by their field, become which spans.
_BECOME = ((PARTITION_FIELD, Unit.DAY), (PARTITION_FIELD, Unit.MONTH), (Unit.DAY.field, Unit.MONTH))
_Key = tuple[TableName, str]


@dataclass(slots=True)
class ColdHours:
    """`spans` at the start of a round, `settle` at its end. `_seen`: groups as they were last looked at, and
    when."""

    catalog: CatalogClient
    settings: OptimizeSettings
    _look_from_ms: int = 0
    _seen: dict[_Key, tuple[PartitionGroup, int]] = field(default_factory=dict)

    def spans(self, now_ms: int) -> Iterator[tuple[Span, PartitionGroup]]:
        """Cold days and months with hours or days that may become one file, each with what these hold. Beside
        a catalog that does not tell there are none."""
        if now_ms < self._look_from_ms:
            return
        cold = self.settings.cold
        self._look_from_ms = now_ms + int(cold.interval_s * 1000)
        before, self._seen = self._seen, {}
        for span, group in self._groups(now_ms):
            key = (group.table, f"{span.unit} {group.name}")
            known, seen_ms = before.get(key, (None, 0))
            is_known = known == group and now_ms - seen_ms < cold.late_cooldown_s * 1000
            self._seen[key] = (group, seen_ms if is_known else now_ms)
            if not is_known:
                yield span, group

    def _groups(self, now_ms: int) -> Iterator[tuple[Span, PartitionGroup]]:
        ended_h = (now_ms - int(self.settings.cold.after_s * 1000)) // MS_PER_HOUR
        bytes_max = self.settings.merge.target_file_bytes
        extras = ExtrasClient(self.catalog)
        try:
            for name, unit in _BECOME:
                before = f"{name}={Span.holding(unit, ended_h)}"  # which is not cold
                for group in extras.partition_groups(before, characters=len(before), bytes_max=bytes_max):
                    span = parse_span_path(f"{unit.field}={group.name.partition('=')[2]}")
                    if span is not None:
                        yield span, group
        except NotFoundError:
            return

    def settle(self, unfinished: Collection[str]) -> None:
        """A round has ended: tables that wait, fail or pause are looked for in the next one."""
        left = [key for key in self._seen if str(key[0]) in unfinished]
        for key in left:
            del self._seen[key]
        if left:
            self._look_from_ms = 0
