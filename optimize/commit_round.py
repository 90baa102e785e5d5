"""Commits changes of many tables against writers that never stop: what was merged stays merged, only the
commit is prepared again.

For each table, until it is settled:

    check       inputs live, new files whole; deletes that came to the inputs are carried over
    prepare     manifests and manifest list, durable before the request
    send        one request for all tables of the bin
    committed   files that nobody reaches any more go to the deletion queue
    conflict    somebody else committed (ingestion does all the time): load, check, prepare again
    unknown     load; our snapshot is there: committed - head as asserted: send the identical request again -
                else: check again
"""

import random
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import structlog

from lake.backoff import Backoff
from lake.catalog_client import CatalogClient, CommitResult, CommitStatus
from lake.clock import Clock, epoch_ms
from lake.data_file import DataFile
from lake.deletes.dead_rows import LoadedDeletes
from lake.errors import FirnError, NotFoundError, RetryableError
from lake.settings import OptimizeSettings
from lake.storage import AnyStorage
from lake.table_loads import load_each
from optimize.deletions import DeletionQueue
from optimize.equality_deletes import Turned, still_complete
from optimize.late_deletes import still_valid
from optimize.merge_job import Merged
from optimize.replacement import Change, Due, prepare_change, still_live
from optimize.snapshots import to_expire
from optimize.table_view import TableView, load_view, view_of
from optimize.verify import ProofFailed, check_whole

RETRIES = Backoff(0.02, 1.0, factor=1.5)
log = structlog.get_logger()


class CommitOutcome(StrEnum):
    """What became of a table's change."""

    COMMITTED = "committed"
    NOTHING = "nothing to do"  # overtaken: the inputs are gone, or deletes came
    GONE = "table is gone"
    FAILED = "failed"


@dataclass(slots=True)
class Pending:
    """A table's change on its way; `remove`, `turned`, `gather` and `asserts` as in
    `optimize.replacement.Due`. `view` is the version it was planned for; `stale`: that is old for certain,
    `is_fresh`: it was just loaded.

    `owns_outputs`: nobody else refers to the merged files, so that they are deleted where the merge is not
    committed. `loaded`: delete files that came meanwhile, as they were read: the next attempt has fewer to
    read.
    """

    view: TableView
    merged: tuple[Merged, ...] = ()
    remove: tuple[DataFile, ...] = ()
    turned: tuple[Turned, ...] = ()
    gather: tuple[str, ...] = ()
    asserts: tuple[Mapping[str, Any], ...] = ()
    stale: bool = False
    is_fresh: bool = False
    owns_outputs: bool = True
    change: Change | None = None
    outcome_unknown: bool = False
    ever_unknown: bool = False
    is_refused: bool = False  # the last proof failed
    attempts: int = 0
    outcome: CommitOutcome | None = None
    reason: str = ""
    committed: Change | None = None
    dropped: list[Merged] = field(default_factory=list)
    loaded: LoadedDeletes = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CommitRound:
    """What commits: the catalog with the leader's lease, the storage, the queue of files to delete."""

    catalog: CatalogClient
    storage: AnyStorage
    deletions: DeletionQueue
    settings: OptimizeSettings
    clock: Clock

    def commit(self, pending: Sequence[Pending]) -> None:
        """Returns when every one has its fate.

        First all together. Who lost a race goes on alone, because from load to commit nobody else may commit:
        that time must be short.
        """
        self._look_again_together(pending)
        self._send([one for one in pending if one.outcome is None and self._is_ready(one)])
        rounds = 0
        while open_ones := [one for one in pending if one.outcome is None]:
            rounds += 1
            spread = random.uniform(0.5, 1.0)  # noqa: S311 - parts rivals, guards nothing
            time.sleep(RETRIES.delay_s(rounds) * spread)
            for one in open_ones:
                self._send([one] if self._is_ready(one) else [])
        self._queue([one for one in pending if one.committed is not None])
        for one in pending:
            # they were kept for the next attempt; with all tables of a round they would fill the memory
            one.view.lists.clear()
            one.view.lines.clear()
            one.view.named_by.clear()

    def _queue(self, committed: Sequence[Pending]) -> None:
        """After the commits, never before: a queued file must be one that nobody reaches. A crash in between
        leaves orphans, which are found."""
        not_before_ms = epoch_ms(self.clock.now()) + int(self.settings.retention.reader_grace_s * 1000)
        unreachable = [
            (uri, one.view.name, one.view.state.uuid)
            for one in committed
            if one.committed is not None
            for uri in one.committed.unreachable
        ]
        self.deletions.add(unreachable, not_before_ms)

    def _is_ready(self, one: Pending) -> bool:
        one.attempts += 1
        if one.attempts > self.settings.commit.attempts_max:
            self._fail(one, one.reason or "the catalog did not take the commit")
            return False
        try:
            return self._prepared(one)
        except RetryableError as error:
            one.reason, one.stale = str(error), True
        except (FirnError, ProofFailed, ValueError) as error:
            one.is_refused = isinstance(error, ProofFailed)
            self._fail(one, f"{type(error).__name__}: {error}")
        return False

    def _prepared(self, one: Pending) -> bool:
        """Loads where the known version is old, checks and prepares; False where it got its fate instead."""
        if (one.stale or self._look_again(one)) and not self._reload(one):
            return False
        if one.change is None:
            carried = still_valid(one.view, one.merged, one.loaded)
            valid = tuple(each.merged for each in carried)
            one.dropped += [merged for merged in one.merged if merged not in valid]
            one.merged = valid
            for merged in valid:
                for output, checksum in zip(merged.outputs, merged.checksums, strict=True):
                    check_whole(self.storage, output, checksum)
            due = Due(
                carried,
                still_live(one.view, one.remove),
                still_complete(one.view, one.turned),
                one.gather,
                one.asserts,
            )
            now_ms, own = epoch_ms(self.clock.now()), self.catalog.has_extras
            one.change = prepare_change(one.view, due, self.settings, now_ms, schemas_too=own)
            if one.change is None:
                self._settle_without_commit(one, CommitOutcome.NOTHING, "others changed the table first")
        return one.change is not None

    def _look_again(self, one: Pending) -> bool:
        """Whether snapshots are to go that somebody may have named since the table was loaded: a tag on one
        of them would be no conflict."""
        if one.attempts > 1 or one.is_fresh:
            return False
        return bool(to_expire(one.view.metadata, self.settings, epoch_ms(self.clock.now()), adding=1))

    def _look_again_together(self, pending: Sequence[Pending]) -> None:
        """Loads what is to be looked at again with few requests; what cannot be read then is loaded once more
        by itself, which says why."""
        due = {one.view.name: one for one in pending if not one.stale and self._look_again(one)}
        for name, loaded in load_each(self.catalog, due):
            one = due[name]
            with suppress(FirnError, ValueError, KeyError):
                if isinstance(loaded, FirnError) and not isinstance(loaded, NotFoundError):
                    raise loaded
                found = None if isinstance(loaded, FirnError) else loaded
                view = None if found is None else view_of(found, name, self.storage, one.view)
                one.is_fresh = True
                self._renew(one, view)

    def _reload(self, one: Pending) -> bool:
        """Whether the table is still there, and nothing has become of the change yet."""
        return self._renew(one, load_view(self.catalog, self.storage, one.view.name, one.view))

    def _renew(self, one: Pending, view: TableView | None) -> bool:
        if view is None or view.state.uuid != one.view.state.uuid:
            self._settle_without_commit(one, CommitOutcome.GONE, "the table was dropped or created again")
            return False
        one.stale = False
        change, before = one.change, one.view.state.head
        one.view = view
        if one.outcome_unknown and change is not None:
            if self._landed(change, view):
                self._committed(one, change)
                return False
            if view.state.head == before:
                return True  # the identical request again
        one.change, one.outcome_unknown = None, False
        return True

    def _landed(self, change: Change, view: TableView) -> bool:
        if change.snapshot_id is not None:
            return view.has_snapshot(change.snapshot_id)
        return not any(view.has_snapshot(snapshot) for snapshot in change.expired)

    def _send(self, ready: Sequence[Pending]) -> None:
        if not ready:
            return
        changes = [one.change for one in ready if one.change is not None]
        try:
            self.storage.write_all([file for change in changes for file in change.files])
        except FirnError as error:
            for one in ready:
                one.reason, one.stale, one.change = str(error), True, None
            return
        results = self.catalog.commit_all(
            [change.request for change in changes], timeout_s=self.settings.commit.timeout_s
        )
        for one, result in zip(ready, results, strict=True):
            self._settle(one, result)

    def _settle(self, one: Pending, result: CommitResult) -> None:
        change = one.change
        assert change is not None
        if result.status is CommitStatus.COMMITTED:
            self._committed(one, change)
            return
        one.stale, one.reason = True, f"{result.status.value}: {result.message}"
        if result.status is CommitStatus.UNKNOWN:
            one.outcome_unknown = one.ever_unknown = True
            return
        one.change = None
        if not one.ever_unknown:
            self._discard([uri for uri, _ in change.files])
        if result.status in (CommitStatus.NOT_FOUND, CommitStatus.DELETED):
            self._settle_without_commit(one, CommitOutcome.GONE, one.reason)
        elif result.status is CommitStatus.INVALID:
            self._fail(one, one.reason)

    def _committed(self, one: Pending, change: Change) -> None:
        one.outcome, one.committed = CommitOutcome.COMMITTED, change
        self._discard_outputs(one, one.dropped)

    def _fail(self, one: Pending, reason: str) -> None:
        self._settle_without_commit(one, CommitOutcome.FAILED, reason)

    def _settle_without_commit(self, one: Pending, outcome: CommitOutcome, reason: str) -> None:
        one.outcome, one.reason = outcome, reason
        if not one.ever_unknown:
            self._discard_outputs(one, (*one.merged, *one.dropped))

    def _discard_outputs(self, one: Pending, merged: Sequence[Merged]) -> None:
        if one.owns_outputs:
            self._discard([file.uri for m in merged for file in m.outputs])

    def _discard(self, uris: Sequence[str]) -> None:
        """Deletes what was written for nothing; certainly nobody refers to it. Where the storage is away, the
        orphan remover finds it."""
        try:
            self.storage.delete(uris)
        except FirnError as error:
            log.info("optimize.leftovers", files=len(uris), error=str(error))
