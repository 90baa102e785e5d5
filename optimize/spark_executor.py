"""Where work is executed: bins of merges as Spark jobs, several in flight, each handed back as soon as it is
done; rewrites by procedure."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from types import TracebackType
from typing import Any, Protocol, Self

import structlog

from lake.catalog_client import TableName
from lake.errors import PrerequisiteError, UnavailableError
from lake.settings import OptimizeSettings, StorageSettings
from lake.spark_session import SparkOptions, open_context, open_session
from optimize.compaction import merge_bins
from optimize.equality_deletes import EqualityJob, Turned, turn_all
from optimize.merge_job import Bin, JobResult
from optimize.rewrite_proof import Proof, Rewrite, prove_all
from optimize.spark_rewrite import call, catalog_options, contents_statement, rewrite_statement

log = structlog.get_logger()


class Executor(Protocol):
    """What executes a plan."""

    def slots(self) -> int:
        """How many bins run at the same time."""

    def run(self, bins: Sequence[Bin], halted: Callable[[], bool]) -> Iterator[list[JobResult]]:
        """The results of each bin, as they come; once `halted` says so, bins that have not begun are left
        out."""

    def rewrite(
        self,
        table: TableName,
        hours: Sequence[int],
        *,
        branch: str,
        sort_by: Sequence[str],
        target_bytes: int,
    ) -> Mapping[str, Any]:
        """Rewrites hours on a branch of the table with Spark's procedure; returns its counts. Raises
        FirnError."""

    def contents(
        self, table: TableName, hours: Sequence[int], *, branch: str, columns: Sequence[str]
    ) -> Mapping[str, Any]:
        """What the rows of a branch hold in these hours, as `contents_statement` tells it; the same for the
        same rows. Raises FirnError."""

    def prove(self, rewrites: Sequence[Rewrite]) -> list[Proof]:
        """One proof for each rewrite, in order. Raises UnavailableError."""

    def turn(self, jobs: Sequence[EqualityJob]) -> list[Turned]:
        """The rows that equality deletes are about, one answer for each job, in order."""


class SparkExecutor:
    """Spark, started when the first work comes: a round without work costs no JVM. `lease`: the leader's, for
    Spark's own commits."""

    def __init__(self, settings: OptimizeSettings, lease: str | None = None) -> None:
        self._settings = settings
        self._lease = lease
        self._context: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._context is not None:
            self._context.stop()
            self._context = None

    @property
    def options(self) -> SparkOptions:
        s = self._settings
        return SparkOptions(
            app="firn-optimize",
            master=s.spark.master,
            driver_memory_mb=s.spark.driver_memory_mb,
            jars=s.spark.jars,
            java_home=s.spark.java_home,
            java_options=s.spark.java_options,
            packages=("lake", "optimize"),
            more=s.spark.options,
        )

    @property
    def context(self) -> Any:
        if self._context is None:
            self._context = open_context(self.options)
        return self._context

    def slots(self) -> int:
        return int(self.context.defaultParallelism)

    def run(self, bins: Sequence[Bin], halted: Callable[[], bool]) -> Iterator[list[JobResult]]:
        context = self.context

        def merge(one: Bin) -> list[JobResult]:
            if halted():
                return []
            try:
                return list(context.parallelize([one], 1).mapPartitions(merge_bins).collect())
            except Exception as error:  # noqa: BLE001 - a lost executor must cost this bin alone, whatever Spark raises for it
                log.warning("optimize.bin_failed", tables=len(one.jobs), error=str(error)[:500])
                return [JobResult(job, (), f"Spark: {str(error)[:300]}") for job in one.jobs]

        with ThreadPoolExecutor(max(1, min(len(bins), self.slots() + 1)), thread_name_prefix="bin") as pool:
            # Nothing holds on to results that were handed over: those of a round would fill the memory.
            for future in as_completed([pool.submit(merge, one) for one in bins]):
                yield future.result()

    def rewrite(
        self,
        table: TableName,
        hours: Sequence[int],
        *,
        branch: str,
        sort_by: Sequence[str],
        target_bytes: int,
    ) -> Mapping[str, Any]:
        session, catalog = self._session()
        return call(
            session,
            rewrite_statement(
                catalog, table, hours, branch=branch, sort_by=sort_by, target_bytes=target_bytes
            ),
        )

    def contents(
        self, table: TableName, hours: Sequence[int], *, branch: str, columns: Sequence[str]
    ) -> Mapping[str, Any]:
        session, catalog = self._session()
        return call(session, contents_statement(catalog, table, hours, branch=branch, columns=columns))

    def _session(self) -> tuple[Any, str]:
        """A session with our catalog, and the catalog's name in it. Raises PrerequisiteError."""
        if self._settings.spark.jars is None:
            raise PrerequisiteError(
                "its large or partly deleted hours need rewrite_data_files: set FIRN_OPTIMIZE_SPARK__JARS"
            )
        # Spark keeps a catalog for ever under its name; a new lease needs a new one.
        catalog = "lake" if self._lease is None else f"lake_{self._lease.rpartition(':')[2]}"
        session = open_session(self.options)
        for name, value in catalog_options(
            catalog, self._settings, StorageSettings.load(), self._lease
        ).items():
            # The context's settings too: Spark writes a session's into its events with each job, and hides of
            # these only secrets that stand in the context's. On the JVM's command line they would be seen.
            self.context._conf.set(name, value)
            session.conf.set(name, value)
        return session, catalog

    def prove(self, rewrites: Sequence[Rewrite]) -> list[Proof]:
        if not rewrites:
            return []
        try:
            return list(self.context.parallelize(rewrites, len(rewrites)).mapPartitions(prove_all).collect())
        except Exception as error:
            raise UnavailableError(f"Spark could not check what it wrote: {str(error)[:300]}") from error

    def turn(self, jobs: Sequence[EqualityJob]) -> list[Turned]:
        try:
            work = partial(turn_all, settings=StorageSettings.load())
            return list(self.context.parallelize(jobs, len(jobs)).mapPartitions(work).collect())
        except Exception as error:  # noqa: BLE001 - it must cost this table alone, whatever Spark raises for it
            log.warning("optimize.deletes_not_turned", table=str(jobs[0].table), error=str(error)[:500])
            return [Turned(job, failure=f"Spark: {str(error)[:300]}") for job in jobs]
