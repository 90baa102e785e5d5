"""Tables that are due, taken some at a time."""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from itertools import islice
from math import inf

from ingest.model.turns import in_turns
from ingest.route.buffers import Buffers
from lake.tenant import TableId

# Where more are due than are flushed at once, all that wait are looked at again after so long, and for a
# tenth of the time at most. Of a hundred thousand tables, to look for each round took two thirds of the time
# in which it was flushed.
LOOK_S = 1.0
LOOKS_SHARE = 0.1


class DueTables:
    """Those that were due at the last look, with why, as `Buffers.due` tells it; tenants have their turns."""

    def __init__(self, buffers: Buffers) -> None:
        self._buffers = buffers
        self._due = OrderedDict[TableId, str]()  # those that were not taken yet
        self._looked_s = self._again_s = -inf

    def __len__(self) -> int:
        return len(self._due)

    def is_outdated(self, now_s: float) -> bool:
        """Whether it is time to look again."""
        return not self._due or now_s >= self._again_s

    def look(self, due: Mapping[TableId, str], began_s: float, ended_s: float) -> None:
        """Takes note of what is due, by a look that began and ended then."""
        self._due = OrderedDict((table, due[table]) for table in in_turns(due, lambda table: table.tenant))
        self._looked_s = began_s
        self._again_s = ended_s + max(LOOK_S, (ended_s - began_s) / LOOKS_SHARE)

    def take(self, count: int) -> dict[TableId, str]:
        """The next ones, at most so many, with why. Those that were flushed since the look, for another
        reason, are passed over."""
        return dict(islice(self._taken(), count))

    def _taken(self) -> Iterator[tuple[TableId, str]]:
        while self._due:
            table, why = self._due.popitem(last=False)
            if self._buffers.has_since(table, self._looked_s):
                yield table, why
