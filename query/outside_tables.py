"""What of a tenant lies outside its tables when rows are erased: exports, which go; dead letters, parked records and dropped streams, which are named."""

from dataclasses import dataclass
from datetime import datetime

from lake.catalog_client import CatalogClient
from lake.errors import FirnError, NotFoundError
from lake.tenant import TenantId, from_identifier
from query.cancellation import Run
from query.catalog_lists import entries
from query.erasure import Erasure
from query.executors.executor import Executor
from query.export import ExportJobs
from query.ingest_gateway import IngestGateway
from query.letter_search import find_letters
from query.problem import BadQuestionError
from query.table_view import table_id

LETTERS_TIMEOUT_S = 600.0
NAMED_MAX = 20


@dataclass(frozen=True, slots=True)
class OutsideTables:
    """Looks around the tables of a tenant."""

    exports: ExportJobs
    ingest: IngestGateway
    embedded: Executor
    catalog: CatalogClient

    def remove_exports(self, job: Erasure) -> list[str]:
        """Removes the tenant's exports that may hold erased rows: of the same streams, of times that overlap. Ids of what was removed."""
        removed = []
        for export in self.exports.jobs():
            of_stream = not job.streams or export.stream in job.streams
            overlaps = _time(export.start) < _time(job.end) and _time(export.end) > _time(job.start)
            if export.tenant == job.tenant and of_stream and overlaps:
                self.exports.delete(export.id)
                removed.append(export.id)
        return removed

    def elsewhere(self, job: Erasure) -> list[str]:
        """Sentences about what was not touched; none where there is nothing, or certainly nothing that matches."""
        tenant = table_id(job.tenant, "logs").tenant
        return [*self._letters(tenant, job), *self._parked(tenant), *self._dropped(tenant)]

    def _letters(self, tenant: TenantId, job: Erasure) -> list[str]:
        try:
            run = Run(LETTERS_TIMEOUT_S)
            found = find_letters(self.ingest, self.embedded, tenant, job.query, _time(job.start), _time(job.end), run)
        except (FirnError, BadQuestionError) as error:
            return [f"dead letters were not looked at: {error}"]
        said = []
        if found.ids:
            ids = ", ".join(found.ids[:NAMED_MAX]) + (" and others" if len(found.ids) > NAMED_MAX else "")
            said.append(f"dead letters that match: {len(found.ids)} ({ids}); Kafka keeps them in the dead-letter topic until its records are deleted there")
        if found.more:
            said.append(f"only the newest {found.looked_at:,} dead letters were looked at")
        return said

    def _parked(self, tenant: TenantId) -> list[str]:
        try:
            parked = [e["identifier"]["name"] for e in entries(self.catalog, "/firn/v1/parked", "parked") if e["identifier"]["namespace"] == [tenant.namespace]]
        except NotFoundError:
            return []  # a catalog that keeps no such list
        return [f"the stream {from_identifier(name) or name!r} is parked: records of it wait in Kafka; erase again when it is healed" for name in parked]

    def _dropped(self, tenant: TenantId) -> list[str]:
        try:
            dropped = entries(self.catalog, "/firn/v1/dropped-tables", "dropped-tables")
            names = [e["identifier"]["name"] for e in dropped if e["identifier"]["namespace"] == [tenant.namespace]]
        except NotFoundError:
            return []
        return [f"the stream {from_identifier(name) or name!r} was dropped and can still be brought back: its files stay until its purge" for name in names]


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
