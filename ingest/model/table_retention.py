"""What a worker asks of a table's retention, and what it is told."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from lake.holds import Hold
from lake.retention import Retention
from lake.tenant import TableId

FOR_EVER = Retention()


@dataclass(frozen=True, slots=True)
class TableRetention:
    """How long a table keeps its rows, and which legal holds are on it. For ever also where nobody can
    tell."""

    kept: Retention = FOR_EVER
    holds: tuple[Hold, ...] = ()


class Retentions(Protocol):
    """Who tells."""

    def retention(self, table: TableId, said: Mapping[str, str], *, anew: bool) -> TableRetention:
        """That of a table which said this itself (see `lake.retention_policies.said`); `anew`: by what it
        says now, where it is there. What cannot be found out is told as for ever, and never raised."""
