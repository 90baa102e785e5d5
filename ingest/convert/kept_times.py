"""Which records are past the retention of their table: maintenance would delete their rows in its next
round."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ingest.decode.event_time import instant_text
from ingest.model.table_retention import Retentions, TableRetention
from lake.errors import Reason, Rejected
from lake.retention import MS_PER_HOUR, first_hour_kept, spell_retention
from lake.table_layout import US_PER_HOUR
from lake.tenant import TableId


@dataclass(slots=True)
class KeptTimes:
    """The times that a table keeps, as of `now_ms`: whole hours, as maintenance counts them, so that a flush
    that is written again finds the same.

    Asked only where a record is older than the shortest retention there is, an hour. What the table said when
    it was loaded (`said`) may be old: what it says now is asked before a record is turned away, and the more
    lenient of both counts.
    """

    table: TableId
    said: Mapping[str, str]
    retentions: Retentions
    now_ms: int
    _told: TableRetention | None = None
    _first_hour: int | None = None  # before it nothing is kept; None: everything is
    _is_sure: bool = False
    _held: dict[int, bool] = field(default_factory=dict)  # by hour

    def late(self, us: Any) -> Any:
        """Which of these event times (int64 numpy array, µs since 1970) are past it, as an array of booleans;
        None: none is."""
        if not len(us) or us.min() >= (self.now_ms - MS_PER_HOUR) * 1_000:
            return None
        if self._told is None:
            self._decide(anew=False)
        if self._first_hour is None or us.min() >= self._first_hour * US_PER_HOUR:
            return None
        if not self._is_sure:
            self._is_sure = True
            before = self._first_hour
            self._decide(anew=True)
            self._first_hour = None if self._first_hour is None else min(before, self._first_hour)
            return self.late(us)
        late = us < self._first_hour * US_PER_HOUR
        for row in late.nonzero()[0].tolist():
            if self._is_held(int(us[row]) // US_PER_HOUR):
                late[row] = False
        return late if late.any() else None

    def why(self, at_us: int) -> Rejected:
        """Why a record of this time is turned away."""
        assert self._told is not None
        assert self._first_hour is not None
        kept, first = self._told.kept, instant_text(self._first_hour * US_PER_HOUR)
        by = f"{spell_retention(kept.hours)}, as the {kept.level} says"
        detail = f"happened {instant_text(at_us)}; {self.table} keeps rows from {first} on ({by})"
        return Rejected(Reason.PAST_RETENTION, detail)

    def _decide(self, *, anew: bool) -> None:
        self._told = self.retentions.retention(self.table, self.said, anew=anew)
        hours = self._told.kept.hours
        self._first_hour = None if hours is None else first_hour_kept(hours, self.now_ms)

    def _is_held(self, hour: int) -> bool:
        """Whether a hold is on anything of an hour: maintenance leaves such a one."""
        if hour not in self._held:
            assert self._told is not None
            self._held[hour] = any(hold.has_hours(range(hour, hour + 1)) for hold in self._told.holds)
        return self._held[hour]
