"""Tables that another node commits to as well. Preparing a commit on a state that is not the newest costs
more than asking for the newest one before it, of all tables in one request."""

from dataclasses import dataclass, field

from lake.tenant import TableId

COMMITS = 8


@dataclass
class ContestedTables:
    """Those that lost a commit to somebody lately. `is_shared`: other nodes are at work; else none is noted,
    for a merge now and then is not worth it."""

    is_shared: bool = False
    _left: dict[TableId, int] = field(default_factory=dict)

    def lost(self, table: TableId) -> None:
        """A commit met a conflict: the table is loaded before each of the next ones, for a while."""
        if self.is_shared:
            self._left[table] = COMMITS

    def is_to_be_loaded(self, table: TableId) -> bool:
        """Whether a table that has just been committed to is to be loaded before the next commit."""
        left = self._left.pop(table, 0)
        if left > 1:
            self._left[table] = left - 1
        return left > 0

    def forget(self, table: TableId) -> None:
        """The table is gone."""
        self._left.pop(table, None)
