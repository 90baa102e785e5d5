"""Erasures as the search API and the optimizer carry them out together, over the catalog's work list."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import count

from lake.catalog_client import CatalogClient
from lake.clock import Clock
from lake.erasure_work import ErasureWork
from lake.errors import FatalError
from lake.storage import AnyStorage
from lake.tenant import TableId
from optimize.erasures import Erasures
from query.erasure.table_search import TableSearch, Tools, Wanted
from query.executors.executor import Executor
from query.files.file_index import FileIndex
from query.model.cancellation import Run

GRACE_S, SEARCH_S, ROUNDS = 3_600.0, 600.0, 10


@dataclass
class Eraser:
    """Takes rows out of tables."""

    catalog: CatalogClient
    storage: AnyStorage
    embedded: Executor
    clock: Clock

    def __post_init__(self) -> None:
        self._numbers = count()

    def erase(
        self, tables: Sequence[TableId], query: str, start: datetime, end: datetime
    ) -> Counter[TableId]:
        """Erases what matches in these tables, together; how many rows of each. Raises FatalError where
        that does not come to an end."""
        tools = Tools(
            self.catalog, self.catalog, self.storage, FileIndex(self.storage), self.embedded, GRACE_S
        )
        searches = {
            table: TableSearch(tools, Wanted(table, start, end, query), Run(SEARCH_S)) for table in tables
        }
        left, erased = dict.fromkeys(tables, None) | {}, Counter[TableId]()
        for _ in range(ROUNDS):
            looks = {table: search.look(left.get(table)) for table, search in searches.items()}
            asked = {
                table: look.request(f"simulated-{next(self._numbers)}", GRACE_S)
                for table, look in looks.items()
                if not look.is_settled
            }
            searches = {table: searches[table] for table in asked}
            if not asked:
                return erased
            work = ErasureWork(self.catalog)
            for request in asked.values():
                work.ask(request)
            Erasures.of(self.catalog, self.storage, self.clock).run()
            for table, request in asked.items():
                answer = work.answer(request.id)
                if answer is None or answer.state != "done":
                    raise FatalError(f"{table} was not erased: {answer}")
                work.drop_answer(request.id)
                erased[table] += answer.rows
                left[table] = answer.snapshot_id
        raise FatalError(f"the erasure did not end: {list(searches)}")
