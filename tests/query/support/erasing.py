"""Both halves of an erasure in this process: the search that finds rows, and the optimizer's part that takes
them away, with nothing between them but the request."""

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

from lake.catalog_client import CatalogClient
from lake.clock import SystemClock
from lake.erasure_work import ErasureAnswer
from lake.settings import QuerySettings
from lake.storage import local_path, open_storage
from optimize import erase_rows
from optimize.erase_rows import RowErasure
from query.erasure.awaited import Awaited
from query.erasure.job import Erasure
from query.erasure.table_search import TableReport, TableSearch, Tools, Wanted
from query.executors.embedded import EmbeddedExecutor
from query.files.file_index import FileIndex
from query.model.cancellation import Run
from tests.query.support.log_table import LogTable


def search_tools(catalog: CatalogClient, folder: Path) -> Tools:
    """What an erasure searches with; no grace."""
    storage = open_storage()
    paths: Callable[..., list[str]] = lambda uris, _: [str(local_path(uri)) for uri in uris]  # noqa: E731
    embedded = EmbeddedExecutor(QuerySettings(state=str(folder)), paths)
    return Tools(catalog, catalog, storage, FileIndex(storage), embedded, 0.0)


class TwoHalves:
    """Erases rows of one table; `answers` are the optimizer's."""

    def __init__(self, table: LogTable, folder: Path, query: str, start: datetime, end: datetime) -> None:
        self.tools = search_tools(table.catalog, folder)
        self.wanted = Wanted(table.id, start, end, query)
        self.answers: list[ErasureAnswer] = []
        self._positions: dict[str, list[int]] = {}

    def run(self, rounds: int = 10) -> TableReport | None:
        """Searches and erases until a search finds nothing left to do; its report, None where each of so many
        found more."""
        left: int | None = None
        for _ in range(rounds):
            look = TableSearch(self.tools, self.wanted, Run(120.0), self._positions).look(left)
            if look.is_settled:
                return look.report
            request = look.request(f"test-{len(self.answers)}", self.tools.grace_s)
            tools = erase_rows.Tools(self.tools.catalog, self.tools.storage, SystemClock())
            answer = RowErasure(tools, request, ErasureAnswer(request.id), lambda answer: answer.version + 1)
            self.answers.append(answer.erase())
            left = self.answers[-1].snapshot_id
        return None

    @property
    def queued(self) -> list[str]:
        """The files that nobody reaches any more."""
        return [uri for answer in self.answers for uri in answer.queued]


class Nothing:
    """Surroundings in which there is nothing beside the tables."""

    def remove_exports(self, job: Erasure) -> list[str]:
        return []

    def elsewhere(self, job: Erasure) -> list[str]:
        return []

    def awaited(self) -> tuple[Awaited, ...]:
        return ()

    def still_awaited(self, awaited: Sequence[Awaited]) -> tuple[Awaited, ...]:
        return ()
