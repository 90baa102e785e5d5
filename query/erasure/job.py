"""An erasure as a file: what was asked for, how far it is, and its report."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import orjson

from query.erasure.awaited import Awaited
from query.erasure.forgotten_query import write_private
from query.erasure.table_search import TableReport
from query.model.table_view import table_id

SUMS = ("rows", "files_rewritten", "files_removed", "snapshots_expired", "files_queued")


@dataclass(frozen=True, slots=True)
class Asked:
    """What the optimizer was asked for: a request of the catalog's work list, about one stream, at `since`.
    `is_answered`: it is done, and `left` is the only snapshot there was then (None: the table has none)."""

    id: str
    stream: str
    since: str
    is_answered: bool = False
    left: int | None = None


@dataclass(frozen=True, slots=True)
class Erasure:
    """One erasure and what came of it. `streams` empty: all the tenant has. `queued`: files that nobody
    reaches any more and that wait for their deletion.

    `query`: empty when the erasure has ended, `query_hash` is left then. `every_row`: the asker knows that
    the query may be every row. `awaited`: what had reached Kafka and was not in when the first search began,
    None before that; waited for until `wait_until`, which is empty until the first search has ended.
    `searches_again`: the waiting is over; `missing` says what did not come in. `settled`: streams that this
    search is done with; `asked`: what the optimizer does for it. `elsewhere`: what waits outside the tables
    and was not touched, in sentences.
    """

    id: str
    tenant: str
    streams: tuple[str, ...]
    query: str
    start: str
    end: str
    dry_run: bool
    asked_by: str
    created: str
    every_row: bool = False
    query_hash: str = ""
    awaited: tuple[Awaited, ...] | None = None
    wait_until: str = ""
    unknown: str = ""
    state: Literal["running", "done", "incomplete", "failed"] = "running"
    message: str = ""
    finished: str | None = None
    tables: tuple[TableReport, ...] = ()
    exports_removed: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()
    queued: tuple[str, ...] = ()
    searches_again: bool = False
    missing: str = ""
    settled: tuple[str, ...] = ()
    asked: Asked | None = None

    @property
    def rows(self) -> int:
        """Rows of all tables that went, or would go."""
        return sum(table.rows for table in self.tables)

    @property
    def waits_for_optimizer(self) -> bool:
        """Whether the optimizer was asked for something and has not answered."""
        return self.asked is not None and not self.asked.is_answered

    def to_file(self, path: Path) -> None:
        """Writes it where nobody but the owner can read it."""
        write_private(path, orjson.dumps(asdict(self), option=orjson.OPT_INDENT_2))

    @classmethod
    def from_file(cls, path: Path) -> "Erasure":
        """Reads what `to_file` has written."""
        document = orjson.loads(path.read_bytes())
        document.pop("noted", None)  # of older versions, which wrote files anew themselves
        asked, awaited = document.pop("asked", None), document.pop("awaited", None)
        tables = tuple(TableReport(**table) for table in document.pop("tables"))
        lists: dict[str, Any] = {name: tuple(document.pop(name, ())) for name in _LISTS}
        return cls(
            **document,
            **lists,
            tables=tables,
            asked=None if asked is None else Asked(**asked),
            awaited=None if awaited is None else tuple(Awaited(**each) for each in awaited),
        )

    def report_of(self, stream: str) -> TableReport:
        """What is known of a stream so far."""
        table = table_id(self.tenant, stream)
        empty = TableReport(stream, f"{table.tenant.namespace}.{table.table}")
        return next((each for each in self.tables if each.stream == stream), empty)

    def with_report(self, report: TableReport) -> "Erasure":
        """The erasure with another report of one stream."""
        others = tuple(each for each in self.tables if each.stream != report.stream)
        return replace(self, tables=(*others, report))

    def with_done(self, stream: str, sums: Mapping[str, int], problem: str | None) -> "Erasure":
        """The erasure with what was done to a stream, added to what was done to it before."""
        before = self.report_of(stream)
        after = {name: getattr(before, name) + sums[name] for name in SUMS}
        return self.with_report(replace(before, **after, problem=problem))

    def with_settled(self, report: TableReport) -> "Erasure":
        """The erasure with a stream that nothing is left to do in; what was done to it counts too."""
        before = self.report_of(report.stream)
        whole = replace(report, **{name: getattr(before, name) for name in SUMS})
        asked = None if self.asked is not None and self.asked.stream == report.stream else self.asked
        return replace(self.with_report(whole), settled=(*self.settled, report.stream), asked=asked)


_LISTS = ("streams", "exports_removed", "elsewhere", "queued", "settled")
