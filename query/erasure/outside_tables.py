"""What of a tenant lies outside its tables when rows are erased: exports, which go; dead letters, parked
records and dropped streams, which are named."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from lake.catalog_client import CatalogClient
from lake.errors import FirnError, NotFoundError
from lake.extras_client import ExtrasClient, ParkedEntry
from lake.tenant import TenantId, from_identifier
from query.erasure.awaited import Awaited, awaited_now, still_awaited
from query.erasure.job import Erasure
from query.erasure.letter_search import FoundMessage, Kind, find_messages
from query.executors.executor import Executor
from query.export.export import ExportJobs
from query.model.cancellation import Run
from query.model.problem import BadRequestError
from query.model.table_view import table_id
from query.search.ingest_gateway import IngestGateway

LETTERS_TIMEOUT_S = 600.0
NAMED_MAX = 20
_WORDS: dict[Kind, str] = {
    "dead-letters": "dead letters",
    "parked": "parked records",
    "replay": "dead letters that were sent again",
}


@dataclass(frozen=True, slots=True)
class OutsideTables:
    """Looks around the tables of a tenant."""

    exports: ExportJobs
    ingest: IngestGateway
    embedded: Executor
    catalog: CatalogClient

    def remove_exports(self, job: Erasure) -> list[str]:
        """Removes the tenant's exports that may hold erased rows: of the same streams, of times that overlap.
        Ids of what was removed."""
        removed = []
        for export in self.exports.jobs():
            of_stream = not job.streams or export.stream in job.streams
            overlaps = _time(export.start) < _time(job.end) and _time(export.end) > _time(job.start)
            if export.tenant == job.tenant and of_stream and overlaps:
                self.exports.delete(export.id)
                removed.append(export.id)
        return removed

    def elsewhere(self, job: Erasure) -> list[str]:
        """Sentences about what was not touched; none where there is nothing, or certainly nothing that
        matches."""
        tenant = table_id(job.tenant, "logs").tenant
        return [*self._kept(tenant, job), *self._parked(tenant), *self._dropped(tenant)]

    def awaited(self) -> tuple[Awaited, ...]:
        """See `awaited_now`."""
        return awaited_now(self.ingest)

    def still_awaited(self, awaited: Sequence[Awaited]) -> tuple[Awaited, ...]:
        """See there."""
        return still_awaited(self.ingest, awaited)

    def _kept(self, tenant: TenantId, job: Erasure) -> list[str]:
        """What of the tenant Firn's own topics keep and matches, each with where it is and what to do about
        it."""
        run, said = Run(LETTERS_TIMEOUT_S), list[str]()
        tellers: dict[Kind, Callable[[list[FoundMessage]], list[str]]] = {
            "dead-letters": self._letters,
            "parked": self._parked_records,
            "replay": _replayed,
        }
        for kind, tell in tellers.items():
            try:
                found = find_messages(
                    self.ingest, self.embedded, kind, tenant, job.query, _time(job.start), _time(job.end), run
                )
                said += tell([each for each in found if not job.streams or each.stream in ("", *job.streams)])
            except BadRequestError:
                said.append(f"{_WORDS[kind]} were not looked at: the query does not fit them")
            except FirnError as error:
                said.append(f"{_WORDS[kind]} were not looked at: {error}")
        return said

    def _letters(self, found: list[FoundMessage]) -> list[str]:
        how = (
            "Kafka keeps them in the dead-letter topic until `python -m ingest dead-letters erase` with "
            "their ids or --contains erases them there"
        )
        return [f"dead letters that match: {_named(found)}; {how}"] if found else []

    def _parked_records(self, found: list[FoundMessage]) -> list[str]:
        """Those that wait for their table, and copies of those that are in it by now."""
        parkings = {str(entry.record.get("id", "")) for entry in self._parked_entries()}
        waiting, left = (
            [each for each in found if (each.parking in parkings) == waits] for waits in (True, False)
        )
        streams = ", ".join(sorted({each.stream for each in waiting}))
        said = (
            [
                (
                    f"parked records that match: {_named(waiting)}, of {streams}; heal or resolve the table, "
                    "let "
                    "them drain, and erase again"
                )
            ]
            if waiting
            else []
        )
        how = "`python -m ingest parked erase` deletes what no table waits for"
        return (
            [*said, f"copies of parked records that match and that no table waits for: {_named(left)}; {how}"]
            if left
            else said
        )

    def _parked_entries(self) -> list[ParkedEntry]:
        try:
            return list(ExtrasClient(self.catalog).parked())
        except NotFoundError:
            return []  # a catalog that keeps no such list

    def _parked(self, tenant: TenantId) -> list[str]:
        parked = [
            entry.table.name for entry in self._parked_entries() if entry.table.namespace == tenant.namespace
        ]
        return [
            f"the stream {from_identifier(name) or name!r} is parked: records of it wait in Kafka; erase "
            "again when it is healed"
            for name in parked
        ]

    def _dropped(self, tenant: TenantId) -> list[str]:
        try:
            tables = [dropped.table for dropped in ExtrasClient(self.catalog).dropped_tables()]
        except NotFoundError:
            return []
        return [
            f"the stream {from_identifier(name) or name!r} was dropped and can still be brought back: its "
            "files stay until its purge"
            for namespace, name in tables
            if namespace == tenant.namespace
        ]


def _replayed(found: list[FoundMessage]) -> list[str]:
    how = (
        "their rows were erased; Kafka keeps the messages in the replay topic until its records are "
        "deleted (kafka-delete-records.sh)"
    )
    return [f"dead letters that were sent again and match: {_named(found)}; {how}"] if found else []


def _named(found: Sequence[FoundMessage]) -> str:
    """`2 (0:1, 0:7)`: how many, and the partition and offset of each."""
    ids = ", ".join(each.id for each in found[:NAMED_MAX]) + (" and others" if len(found) > NAMED_MAX else "")
    return f"{len(found)} ({ids})"


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
