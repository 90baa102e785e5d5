"""Rows taken out of one table, as a request of the search API names them: the files they are in are written
anew without them, and no snapshot that reaches the old ones is left.

1. load the table; write those files of the request that are live anew, durable before the commit. Rows that
  position deletes hide stay away as well
2. load the table again, for its newest version; note the snapshots that go, so that what only they reach is
  deleted also when this process dies
3. one commit: old files out, new ones in, all other snapshots away; where somebody was faster (ingestion
  commits all the time), back to 2
4. what only those snapshots reached is queued for deletion, after the readers' grace

Files that come meanwhile are not looked at: who asked searches the one snapshot that is left, and asks again.
A file that is not live any more, because a merge took its rows along, is found there under its new name.
"""

import random
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import IO, Any

import structlog
from pyroaring import BitMap64

from lake.catalog_client import CatalogClient, CommitStatus
from lake.clock import Clock, epoch_ms
from lake.data_file import ROW_LINEAGE
from lake.deletes.dead_rows import DeleteFiles, LoadedDeletes, load_dead_rows
from lake.erasure_work import ErasureAnswer, ErasureRequest
from lake.errors import NotFoundError, ProtocolError, RefusedError
from lake.extras_client import ExtrasClient, UnreachedFile
from lake.holds import TableHolds
from lake.metrics import OPTIMIZE_FOREIGN_FILES
from lake.storage import AnyStorage
from lake.table_files import check_ordinary
from lake.table_layout import data_file_uri
from lake.table_version import Manifests, Version, load_version
from optimize.erased_version import Change, Left, prepare_change, reached_files, unreached_files
from optimize.rewritten_file import write_without

ROUNDS = 20
ATTEMPTS = 40
BACKOFF_S = 0.05
COMMIT_TIMEOUT_S = 30.0
TELL_EVERY_S = 2.0
QUEUED_AT_ONCE = 1_000
TOO_FAST = "the table changes faster than rows can be erased; erase again when less is written to it"
log = structlog.get_logger()


class HaltedError(Exception):
    """Maintenance ends or has lost its lease: the request stays for whoever leads then."""


class _Outcome(StrEnum):
    """What became of a change: it is in, the files have to be written again, others were always faster."""

    LANDED = "landed"
    AGAIN = "again"
    IN_VAIN = "in vain"


@dataclass(frozen=True, slots=True)
class Tools:
    """What rows are erased with. `lease`: the leader's, `name:token`; `halted`: whether to stop;
    `token_filter`: whether files that are written anew get a filter of their words."""

    catalog: CatalogClient
    storage: AnyStorage
    clock: Clock
    lease: str | None = None
    halted: Callable[[], bool] = lambda: False
    token_filter: bool = True


@dataclass(slots=True)
class RowErasure:
    """One request. `save` keeps the answer as it stands, before each commit and as files are written, and
    gives its new version.

    `answer`: what somebody noted who began with the request before. `written`: what is left of files that
    were written anew; `loaded`: delete files that were read.
    """

    tools: Tools
    request: ErasureRequest
    answer: ErasureAnswer
    save: Callable[[ErasureAnswer], int]
    written: dict[str, Left] = field(default_factory=dict)
    loaded: LoadedDeletes = field(default_factory=dict)
    told_s: float = float("-inf")
    manifests: Manifests = field(init=False)

    def __post_init__(self) -> None:
        self.manifests = Manifests(self.tools.storage)

    def erase(self) -> ErasureAnswer:
        """Takes the rows away and queues what nobody reaches; what came of it. Raises FirnError,
        HaltedError."""
        done = self._erased()
        if done.noted:
            queued = self._queue_unreached(done.noted)
            done = replace(done, queued=tuple(queued), files_queued=len(queued), noted=())
        return replace(done, state="done")

    def _erased(self) -> ErasureAnswer:
        if self._landed_before():
            return self.answer
        self.answer = ErasureAnswer(self.answer.id, noted=self.answer.noted, version=self.answer.version)
        for _ in range(ROUNDS):
            version = self._load()
            if version is None:
                return self.answer  # who asked finds that out
            problem = self._unfit(version)
            if problem is not None:
                return replace(self.answer, problem=problem)
            live = [uri for uri in self.request.rows if uri in version.data]
            if not live and not version.expirable:
                return replace(self.answer, snapshot_id=version.state.head)
            written = self._write(version, live)
            outcome = self._commit(written)
            if outcome is _Outcome.LANDED:
                return self.answer
            if outcome is _Outcome.IN_VAIN:
                break
        return replace(self.answer, problem=TOO_FAST)

    def _landed_before(self) -> bool:
        """Whether somebody who died after the commit has done what the answer notes."""
        if self.answer.snapshot_id is None:
            return False
        version = self._load()
        if version is None or not version.has_snapshot(self.answer.snapshot_id):
            return False
        lists = {s["manifest-list"] for s in version.metadata.get("snapshots", ())}
        return lists.isdisjoint(self.answer.noted)

    def _load(self) -> Version | None:
        """The table as it is now; None where it is gone, or another has its name."""
        version = load_version(self.tools.catalog, self.manifests, self.request.table)
        return None if version is None or version.state.uuid != self.request.table_uuid else version

    def _unfit(self, version: Version) -> str | None:
        """Why rows of this version cannot be taken away; None where they can."""
        if version.has_equality_deletes:
            return "the table has equality deletes: run a round of maintenance, then erase again"
        foreign = [uri for uri in self.request.rows if uri in version.data and not version.is_ours(uri)]
        if not foreign:
            return None
        named = f"{len(foreign)} files, {foreign[0]} for one"
        return f"{named}, are in no partition of Firn's and cannot be rewritten"

    # ---- writing

    def _write(self, version: Version, uris: Sequence[str]) -> dict[str, Left]:
        """What is left of each file (1), durable."""
        dead = self._dead(version, uris)
        written = {}
        for uri in uris:
            self._check()
            written[uri] = self._written(version, uri, dead.get(uri, BitMap64()))
            self._progress(len(uris))
        self.tools.storage.sync([left.file.uri for left in written.values() if left.file is not None])
        return written

    def _written(self, version: Version, uri: str, dead: BitMap64) -> Left:
        """What is left of a file; written once, however many attempts the commit takes."""
        if uri in self.written:
            return self.written[uri]
        entry, places = version.data[uri], BitMap64(self.request.places(uri))
        gone = places | dead
        if gone and gone.max() >= entry.file.rows:
            raise ProtocolError(
                f"the request names row {gone.max()} of {uri}, which has {entry.file.rows} rows"
            )
        left = None
        if len(gone) < entry.file.rows:
            assert entry.file.partition is not None
            new_uri = data_file_uri(version.state.location, entry.file.partition)
            keeps_row_ids = version.state.version >= ROW_LINEAGE
            with self._open(version, uri) as source:
                left = write_without(
                    self.tools.storage,
                    source,
                    new_uri,
                    entry,
                    gone,
                    keeps_row_ids=keeps_row_ids,
                    token_filter=self.tools.token_filter,
                )
        self.written[uri] = Left(left, gone, len(places))
        return self.written[uri]

    def _dead(self, version: Version, uris: Sequence[str]) -> dict[str, BitMap64]:
        """Rows by file that are deleted by position: they must not come back in a new file."""
        wanted = [(uri, version.data[uri].sequence_number) for uri in uris]
        index, storage = DeleteFiles.of(version.deletes), self.tools.storage
        return load_dead_rows(storage, index, wanted, version.state.table_location, self.loaded)

    def _open(self, version: Version, uri: str) -> IO[bytes]:
        """A file of the table, of which it is certain that it is the table's own. Raises ForeignFileError."""
        check_ordinary(version.state.table_location, uri, set())
        return self.tools.storage.open(uri)

    def _progress(self, files: int) -> None:
        """Tells every few seconds how far it is."""
        now_s = self.tools.clock.monotonic_s()
        if now_s - self.told_s >= TELL_EVERY_S:
            self.told_s = now_s
            self._keep(replace(self.answer, files=files, files_written=len(self.written)))

    # ---- committing

    def _commit(self, written: Mapping[str, Left]) -> _Outcome:
        """Steps 2 and 3, again and again until nobody was faster; only what has to lie between loading and
        commit is done there. Rows that were deleted meanwhile stay deleted in the new files."""
        for attempt in range(ATTEMPTS):
            self._check()
            version = self._load()
            if version is None or version.has_equality_deletes:
                return _Outcome.AGAIN
            replaced = {uri: left for uri, left in written.items() if uri in version.data}
            reached_files(self.manifests, version)  # a file of another ends the erasure here, not after it
            dead = self._dead(version, list(replaced))
            change = prepare_change(
                version, replaced, dead, epoch_ms(self.tools.clock.now()), self._asserts() if replaced else ()
            )
            self.tools.storage.write_all(list(change.files))
            landed = self._after(version, replaced, change)
            before = self.answer
            self._keep(landed)
            if self._lands(version, change):
                return _Outcome.LANDED
            self._take_back(before)
            threading.Event().wait(BACKOFF_S * attempt * random.random())  # noqa: S311 - spreads rivals, guards nothing
        return _Outcome.IN_VAIN

    def _asserts(self) -> Sequence[Mapping[str, Any]]:
        """That no hold is set until the commit. Raises RefusedError where there is one on any of the rows."""
        name, catalog = self.request.table, self.tools.catalog
        holds = TableHolds.of(name.name, catalog.namespace_properties(name.namespace))
        hold = holds.on_range(self.request.start, self.request.end)
        if hold is not None:
            raise RefusedError(f"nothing is erased in {name}: {hold} is on it")
        return (holds.requirement(),) if catalog.has_extras else ()

    def _after(self, version: Version, replaced: Mapping[str, Left], change: Change) -> ErasureAnswer:
        """The answer if the change lands (2)."""
        snapshot_id = version.state.head if change.snapshot_id is None else change.snapshot_id
        return replace(
            self.answer,
            rows=sum(left.asked for left in replaced.values()),
            files_rewritten=sum(left.file is not None for left in replaced.values()),
            files_removed=sum(left.file is None for left in replaced.values()),
            snapshots_expired=len(change.expired),
            snapshot_id=snapshot_id,
            noted=tuple(dict.fromkeys((*self.answer.noted, *change.lists))),
        )

    def _take_back(self, before: ErasureAnswer) -> None:
        """The change did not land. What it noted stays noted: what is reached is not deleted for it."""
        self.answer = replace(before, noted=self.answer.noted, version=self.answer.version)

    def _lands(self, version: Version, change: Change) -> bool:
        """Sends the commit. While nobody knows what became of it, the identical request again, as long as the
        head it was made for stands."""
        while True:
            (result,) = self.tools.catalog.commit_all([change.request], timeout_s=COMMIT_TIMEOUT_S)
            if result.status is CommitStatus.COMMITTED:
                return True
            if result.status in (CommitStatus.INVALID, CommitStatus.NOT_FOUND, CommitStatus.DELETED):
                raise RefusedError(
                    f"the catalog refuses the erasure in {version.state.name}: "
                    f"{result.message or result.status.value}"
                )
            if result.status is not CommitStatus.UNKNOWN:
                return False
            self._check()
            threading.Event().wait(BACKOFF_S)
            now = self._load()
            if now is None:
                return False
            if _is_in(now, change):
                return True
            if now.state.head != version.state.head:
                return False

    # ---- afterwards

    def _queue_unreached(self, lists: Sequence[str]) -> list[str]:
        """Queues what only the snapshots of these lists reached for deletion after the grace (4); gives it
        back.

        Beside a catalog without a queue it is left to the orphan remover.
        """
        version = self._load()
        if version is None:
            return []  # the purge takes all there is
        gone = unreached_files(self.manifests, version, lists)
        not_before_ms = epoch_ms(self.tools.clock.now()) + self.request.grace_ms
        record = {"table": str(version.state.name), "table-uuid": version.state.uuid, "why": "erasure"}
        for at in range(0, len(gone), QUEUED_AT_ONCE):
            files = [UnreachedFile(uri, not_before_ms, record) for uri in gone[at : at + QUEUED_AT_ONCE]]
            with suppress(NotFoundError):
                refused = ExtrasClient(self.tools.catalog).queue_deletions(files, lease=self.tools.lease)
                if refused:
                    OPTIMIZE_FOREIGN_FILES.inc(len(refused))
                    log.warning("optimize.deletions_refused", files=len(refused), first=refused[0])
        return gone

    def _keep(self, answer: ErasureAnswer) -> None:
        self.answer = replace(answer, version=self.save(answer))

    def _check(self) -> None:
        if self.tools.halted():
            raise HaltedError


def _is_in(now: Version, change: Change) -> bool:
    """Whether a change is part of this version."""
    if change.snapshot_id is not None:
        return now.has_snapshot(change.snapshot_id)
    return not any(map(now.has_snapshot, change.expired))
