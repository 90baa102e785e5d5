"""The node's main process as a worker sees it (`CommitLink`): notes what it is told and does nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ingest.model.link import WrittenFlush
from ingest.model.trouble import Trouble
from lake.log_schema import WantedColumn
from lake.tenant import TableId


@dataclass
class FakeLink:
    """`asked`: tables to be opened; `submitted`: flushes to be committed; `told`: what could not be
    written."""

    asked: list[TableId] = field(default_factory=list)
    submitted: list[WrittenFlush] = field(default_factory=list)
    told: list[tuple[TableId, Trouble]] = field(default_factory=list)

    def open(self, tables: Sequence[TableId]) -> None:
        self.asked += tables

    def submit(self, flushes: Sequence[WrittenFlush]) -> None:
        self.submitted += flushes

    def stuck(self, table: TableId, trouble: Trouble) -> None:
        self.told.append((table, trouble))

    def grow(self, names: Mapping[TableId, Mapping[str, WantedColumn]]) -> Mapping[TableId, bytes]:
        raise AssertionError(f"nobody hands out columns here: {names}")
