"""Whose turn it is in a round: tenants get the same share of the work, and tables are loaded some at a time,
in the order of their turns.

Start-time fair queueing: a piece of work begins, on its tenant's own clock, when all the tenant's earlier
pieces have been paid for by their cost; next is always the piece that begins first. So a tenant with one
small table comes right after the first table of one with a thousand.
"""

import heapq
from collections.abc import Iterable, Sequence

from lake.catalog_client import TableName
from optimize.bins import Work, cost_s
from optimize.inventory import Candidate


class Turns:
    """The tables of a round that have not had their turn, or not all of it."""

    def __init__(self, candidates: Iterable[Candidate]) -> None:
        by_tenant: dict[str, list[Candidate]] = {}
        for candidate in candidates:
            by_tenant.setdefault(candidate.table.namespace, []).append(candidate)
        self._heap: list[tuple[float, TableName, Candidate]] = []
        self._begins: dict[TableName, tuple[float, Candidate]] = {}
        for own in by_tenant.values():
            clock_s = 0.0
            for candidate in sorted(own, key=lambda c: (-_files_per_s(c), c.table)):
                self._heap.append((clock_s, candidate.table, candidate))
                clock_s += cost_s(candidate.files, candidate.size_bytes)
        heapq.heapify(self._heap)

    def __bool__(self) -> bool:
        return bool(self._heap)

    def take(self, tables: int) -> list[Candidate]:
        """The next so many tables."""
        taken = [heapq.heappop(self._heap) for _ in range(min(tables, len(self._heap)))]
        self._begins = {table: (begins_s, candidate) for begins_s, table, candidate in taken}
        return [candidate for _, _, candidate in taken]

    def in_order(self, work: Iterable[Work]) -> tuple[list[Work], list[tuple[float, Work]]]:
        """The pieces of the taken tables in their order: those that begin before the next table's turn, and
        the rest with when it begins.

        Within a tenant, what saves most files per second goes first.
        """
        by_tenant: dict[str, list[Work]] = {}
        for one in work:
            by_tenant.setdefault(one.plan.table.namespace, []).append(one)
        order: list[tuple[float, TableName, int, Work]] = []
        for own in by_tenant.values():
            clock_s = min(self._begins[one.plan.table][0] for one in own)
            for at, one in enumerate(
                sorted(own, key=lambda w: -sum(m.saved_files for m in w.merges) / w.cost_s)
            ):
                order.append((clock_s, one.plan.table, at, one))
                clock_s += one.cost_s
        order.sort(key=lambda item: item[:3])
        horizon_s = self._heap[0][0] if self._heap else float("inf")
        mine = [one for begins_s, _, _, one in order if begins_s <= horizon_s]
        return mine, [(begins_s, one) for begins_s, _, _, one in order if begins_s > horizon_s]

    def put_back(self, rest: Sequence[tuple[float, Work]]) -> None:
        """Tables with pieces that had to give way have another turn, when the first of these begins."""
        begins: dict[TableName, float] = {}
        for begins_s, one in rest:
            begins.setdefault(one.plan.table, begins_s)
        for table, begins_s in begins.items():
            heapq.heappush(self._heap, (begins_s, table, self._begins[table][1]))

    def waiting(self) -> list[TableName]:
        """The tables that are left."""
        return sorted(table for _, table, _ in self._heap)


def _files_per_s(candidate: Candidate) -> float:
    return candidate.files / cost_s(candidate.files, candidate.size_bytes)
