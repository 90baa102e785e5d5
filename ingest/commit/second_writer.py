"""A second ingester that writes the same topic into the same tables: harmless to the rows, for the marks
decide, but never meant."""

from collections import defaultdict, deque
from dataclasses import dataclass, field

import structlog

from lake import metrics
from lake.tenant import TableId

# A commit of one's own that landed late after a restart shows once or twice; somebody who is alive shows
# again and again.
REPEATS = 3
WINDOW_S = 600.0
log = structlog.get_logger()


@dataclass
class SecondWriters:
    """Names whoever moves marks on under this node. Times are monotonic seconds. `others`: how the names of
    nodes begin that write to the same tables by right; empty: there are none."""

    others: str = ""
    _seen: dict[tuple[TableId, str], deque[float]] = field(
        default_factory=lambda: defaultdict(lambda: deque(maxlen=REPEATS))
    )
    named: dict[str, TableId] = field(default_factory=dict)  # writer -> a table where it was seen

    def note(self, table: TableId, writer: str, own: str, now_s: float) -> None:
        """Marks were ahead of a flush; `writer` made the snapshot they came with."""
        if not writer or writer == own or (self.others and writer.startswith(self.others)):
            return
        seen = self._seen[table, writer]
        seen.append(now_s)
        if len(seen) == REPEATS and now_s - seen[0] <= WINDOW_S and writer not in self.named:
            self.named[writer] = table
            metrics.SECOND_WRITERS.set(len(self.named))
            log.error(
                "writer.second",
                table=str(table),
                writer=writer,
                own=own,
                advice="two ingesters read the same topic into the same tables; stop one of them",
            )
