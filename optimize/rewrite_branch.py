"""Hours that Spark's rewrite_data_files merges: on a branch, so that nothing of it counts before it is
proven.

    branch    `firn-rewrite` is set to what is the head of main
    contents  number and hashes of the rows that the branch holds in these hours, delete files applied
    CALL      Spark rewrites the hours on the branch, whatever comes to main meanwhile
    contents  are the same after it: no row less, none twice, no value changed
    compare   what the branch has and the head had not are the new files, the other way round the old ones
    proof     of each new file, on executors, `rewrite_proof.py`
    commit    to main like any other merge, against writers that never stop; the branch goes in the same
              commit

A branch that a killed leader left behind holds its snapshot until the next commit of maintenance to the table
takes it away."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import structlog

from lake.catalog_client import CatalogClient, CommitStatus
from lake.commit import state_of
from lake.data_file import DataFile
from lake.errors import UnavailableError
from lake.settings import StorageSettings
from lake.storage import AnyStorage
from optimize.bins import Work, to_job
from optimize.merge_job import FileLayout, JobResult, Merged, MergeGroup, MergeJob
from optimize.replacement import REWRITE_BRANCH
from optimize.rewrite_proof import Rewrite
from optimize.spark_executor import Executor
from optimize.table_view import TableView, load_view

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A rewrite ready to be committed to main, or refused. `view`: the version of the table it was made
    from."""

    result: JobResult
    view: TableView


@dataclass(frozen=True, slots=True)
class RewriteBranch:
    """Rewrites hours of tables on a branch of theirs."""

    catalog: CatalogClient
    storage: AnyStorage
    executor: Executor

    def rewrite(self, work: Work, view: TableView, layout: FileLayout) -> Rewritten | None:
        """Rewrites, compares and proves; None where the table or its old files are gone. Raises FirnError."""
        before = load_view(self.catalog, self.storage, view.name, view)
        if before is None or before.state.head is None or before.state.uuid != view.state.uuid:
            return None
        self._open(before, before.state.head)
        hours = sorted({each for merge in work.merges if isinstance(each := merge.partition, int)})
        had = self._contents(before, hours)
        counts = self.executor.rewrite(
            view.name,
            hours,
            branch=REWRITE_BRANCH,
            sort_by=layout.sort_by,
            target_bytes=work.plan.target_bytes,
        )
        log.info("optimize.rewritten", table=str(view.name), hours=len(hours), **counts)
        has = self._contents(before, hours)
        after = self._on_branch(before)
        if after is None or after.state.head is None:
            return None
        changes = _changes(before, after, hours)
        job = replace(to_job(work, before, layout), groups=tuple(group for group, _, _ in changes))
        if has != had:
            refused = JobResult(
                job,
                (),
                f"the rows read differently after rewrite_data_files: {dict(has)}, before {dict(had)}",
                is_refused=True,
            )
            return Rewritten(refused, before)
        return Rewritten(self._proven(job, changes), before)

    def _open(self, view: TableView, head: int) -> None:
        """Sets the branch. Raises UnavailableError."""
        request = {
            "identifier": view.name.to_json(),
            "requirements": [{"type": "assert-table-uuid", "uuid": view.state.uuid}],
            "updates": [
                {
                    "action": "set-snapshot-ref",
                    "ref-name": REWRITE_BRANCH,
                    "type": "branch",
                    "snapshot-id": head,
                }
            ],
        }
        (result,) = self.catalog.commit_all([request])
        if result.status is not CommitStatus.COMMITTED:
            raise UnavailableError(
                f"the branch {REWRITE_BRANCH} of {view.name} cannot be set: {result.status.value} "
                f"{result.message}"
            )

    def _contents(self, view: TableView, hours: Sequence[int]) -> Mapping[str, Any]:
        """Of the columns that the version has: those that come meanwhile are in no row of these hours yet."""
        columns = [
            field["name"] for field in view.state.schema.json["fields"] if not _holds_map(field["type"])
        ]
        return self.executor.contents(view.name, hours, branch=REWRITE_BRANCH, columns=columns)

    def _on_branch(self, before: TableView) -> TableView | None:
        """The table as its branch has it."""
        now = load_view(self.catalog, self.storage, before.name, before)
        ref = None if now is None else now.metadata.get("refs", {}).get(REWRITE_BRANCH)
        if now is None or ref is None:
            return None
        metadata = {**now.metadata, "current-snapshot-id": ref["snapshot-id"]}
        return replace(now, state=state_of(metadata, now.name, self.storage), metadata=metadata)

    def _proven(self, job: MergeJob, changes: "Sequence[_Change]") -> JobResult:
        settings = StorageSettings.load()
        rewrites = [
            Rewrite(group, outputs, untouched, job.schema, settings) for group, outputs, untouched in changes
        ]
        proofs = self.executor.prove(rewrites)
        refusals = [proof.refusal for proof in proofs if proof.refusal]
        if refusals:
            return JobResult(job, (), refusals[0], is_refused=True)
        merged = (
            Merged(group, outputs, proof.checksums)
            for (group, outputs, _), proof in zip(changes, proofs, strict=True)
        )
        return JobResult(job, tuple(merged))


def _holds_map(kind: Any) -> bool:
    """Whether a type (Iceberg's JSON) is or contains a map, which Spark does not hash."""
    if isinstance(kind, str):
        return False
    inner = [kind.get("element"), *(field["type"] for field in kind.get("fields", ()))]
    return kind["type"] == "map" or any(_holds_map(one) for one in inner if one is not None)


_Change = tuple[MergeGroup, tuple[DataFile, ...], tuple[str, ...]]


def _changes(before: TableView, after: TableView, hours: Sequence[int]) -> list[_Change]:
    """Per hour what was rewritten, into what, and the URIs of its data files that stayed; hours where nothing
    changed are left out."""
    old, new, deletes = before.partitions(hours), after.partitions(hours), before.delete_files()
    found = []
    for hour in hours:
        had = {file.uri: file for file in old[hour].files} if hour in old else {}
        has = {file.uri: file for file in new[hour].files} if hour in new else {}
        inputs = tuple(file for uri, file in had.items() if uri not in has)
        outputs = tuple(file for uri, file in has.items() if uri not in had)
        # Every row that these delete files name is of a file that was rewritten, as the proof shows: they
        # have nothing to delete any more.
        group = MergeGroup(hour, inputs, tuple(deletes.get(hour, ())))
        if inputs or group.deletes:
            found.append((group, outputs, tuple(uri for uri in had if uri in has)))
    return found
