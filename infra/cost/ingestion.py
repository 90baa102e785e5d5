"""What ingestion takes: CPU of its workers, its main process and the catalog, and requests to the storage, by
records, bytes, commits and new tables."""

from collections.abc import Mapping
from dataclasses import dataclass

from infra.cost.coefficients import Coefficients

PROCESSES = ("worker", "main", "catalog")
# What CPU goes by: seconds that a process is there, records, bytes of them, commits of tables, new tables,
# and the requests in which commits go together.
CAUSES = ("second", "record", "byte", "commit", "table", "batch")


@dataclass(frozen=True, slots=True)
class Work:
    """What was done in so many seconds."""

    seconds: float
    records: float
    record_bytes: float
    commits: float
    tables: float = 0.0
    files: float = 0.0
    batches: float = 0.0

    @property
    def by_cause(self) -> tuple[float, ...]:
        """In the order of `CAUSES`."""
        return (
            self.seconds,
            self.records,
            self.record_bytes,
            self.commits,
            self.tables,
            self.batches,
        )


def cpu_s(work: Work, coefficients: Coefficients) -> dict[str, float]:
    """CPU seconds by process."""
    return {
        process: sum(
            coefficients[f"cpu.{process}.{cause}"] * amount
            for cause, amount in zip(CAUSES, work.by_cause, strict=True)
        )
        for process in PROCESSES
    }


def requests(work: Work, coefficients: Coefficients) -> Mapping[str, float]:
    """Requests to the storage by kind. A file is one PUT; a commit writes metadata beside its files."""
    return {
        "put": work.files
        + work.commits * coefficients["put.commit"]
        + work.tables * coefficients["put.table"],
        "get": work.commits * coefficients["get.commit"] + work.tables * coefficients["get.table"],
        "list": 0.0,
    }
