"""Everything a route needs, put together once per process."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import structlog
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from catalog.access import key_lifetime
from catalog.access.access import Principal, PrincipalCache, find_by_bearer, forget_old_tokens
from catalog.access.key_uses import KeyUses
from catalog.access.keys import list_keys, note_uses
from catalog.access.tokens import TokenVerifier, is_token
from catalog.commit.commit_inspection import Inspector
from catalog.commit.commit_queue import CommitQueue
from catalog.commit.commits import ATTEMPTS_MAX, Committer
from catalog.commit.idempotency import Reply, RequestKey, forget_old_replies, once
from catalog.commit.partition_counts import count_what_is_uncounted
from catalog.commit.table_changes import read_metadata
from catalog.extras.work_lists import count_tasks, list_tasks
from catalog.model import metrics
from catalog.store import name_journal
from catalog.store.database import SQLITE_PAGE_BYTES, SQLITE_WAL_PAGES, Database, is_passing
from catalog.store.metadata_store import MetadataStore
from lake.audit.event import start_of
from lake.audit.sender import EventSender
from lake.audit.spool import first_free
from lake.audit.trail import AuditTrail
from lake.certificate_ends import CertificateEnds, of_catalog
from lake.clock import Clock, SystemClock, epoch_ms
from lake.errors import FirnError, SettingsError
from lake.isolation import isolate
from lake.private_files import private_folder
from lake.settings import CatalogSettings
from lake.storage import open_storage

log = structlog.get_logger()
T = TypeVar("T")
UPKEEP_INTERVAL_S = 60.0
ROUND_TASK = "optimize.duty:round"  # what maintenance notes at the end of a round
LOG_BYTES_MAX = 2 * SQLITE_WAL_PAGES * SQLITE_PAGE_BYTES  # of SQLite's log: it is emptied before
THREADS = 8


@dataclass(slots=True)
class Services:
    """One process's database, store and queue.

    SQLite is read on the event loop itself: a lookup takes some 50 microseconds, half of what a change of
    threads costs. PostgreSQL is read from threads, because there a lookup waits for the network. What waits
    for the storage has threads of its own: a storage that hangs must not keep anybody from renewing a lease.
    """

    settings: CatalogSettings
    clock: Clock
    database: Database
    store: MetadataStore
    queue: CommitQueue
    database_pool: ThreadPoolExecutor
    storage_pool: ThreadPoolExecutor
    principals: PrincipalCache
    uses: KeyUses
    inspector: Inspector
    trail: AuditTrail | None
    tokens: TokenVerifier | None
    certificate_ends: CertificateEnds

    @classmethod
    def open(cls, settings: CatalogSettings, clock: Clock | None = None) -> "Services":
        """Opens the database (already migrated) and the store. Must run inside the event loop that serves.
        Raises SettingsError."""
        if not settings.warehouse and not settings.control:
            raise SettingsError("no warehouse is set; give --warehouse file:///path or s3://bucket/prefix")
        clock = clock or SystemClock()
        database = Database(settings.database_url.get_secret_value())
        store = MetadataStore(
            open_storage(),
            settings.warehouse,
            allowed_locations=settings.allowed_locations,
            cache_bytes_max=settings.metadata_cache_bytes_max,
            clock=clock,
        )
        queue = CommitQueue(
            Committer(database, store, clock, undo_window_s=settings.undo_window_s),
            rounds_at_once=settings.commit_rounds_at_once,
        )
        pools = (
            ThreadPoolExecutor(THREADS, thread_name_prefix="database"),
            ThreadPoolExecutor(THREADS, thread_name_prefix="storage"),
        )
        trail = _trail(settings)
        return cls(
            settings,
            clock,
            database,
            store,
            queue,
            *pools,
            PrincipalCache(clock),
            KeyUses(),
            Inspector(store),
            trail,
            TokenVerifier(settings.oidc, clock) if settings.oidc.issuer else None,
            CertificateEnds(of_catalog(settings)),
        )

    def now_ms(self) -> int:
        """Milliseconds since the epoch by this machine's clock."""
        return epoch_ms(self.clock.now())

    async def whose(self, bearer: str) -> Principal | None:
        """Whose a key or token is; None: nobody's. Raises CatalogError 401, 503."""
        known, principal = self.principals.get(bearer)
        if known:
            return principal
        if self.tokens is not None and is_token(bearer):
            principal = await self.tokens.person(bearer)
        else:
            now_ms = self.now_ms()
            principal = await self.read(lambda connection: find_by_bearer(connection, bearer, now_ms))
        self.principals.put(bearer, principal)
        return principal

    async def read(self, work: Callable[[Connection], T]) -> T:
        """Runs a lookup."""
        if self.database.is_sqlite:
            return self._read(work)
        return await asyncio.get_running_loop().run_in_executor(self.database_pool, self._read, work)

    def _read(self, work: Callable[[Connection], T]) -> T:
        with self.database.read() as connection:
            return work(connection)

    async def change(self, key: RequestKey | None, work: Callable[[Connection], Reply]) -> Reply:
        """Runs a small change of the database alone, once per key."""
        return await asyncio.get_running_loop().run_in_executor(self.database_pool, self._change, key, work)

    def _change(self, key: RequestKey | None, work: Callable[[Connection], Reply]) -> Reply:
        attempts = 1
        while True:
            try:
                return once(self.database, key, self.now_ms(), work)
            except DBAPIError as error:  # another process was at the same rows
                if attempts == ATTEMPTS_MAX or not is_passing(error):
                    raise
            attempts += 1

    async def change_names(self, key: RequestKey | None, work: Callable[[Connection], Reply]) -> Reply:
        """Runs a change of names; what it says of them is in the warehouse when it returns."""
        reply = await self.change(key, work)
        await self.run(self._flush_names)
        return reply

    def _flush_names(self) -> None:
        try:
            name_journal.flush(self.database, self.store, self.now_ms())
        except (SQLAlchemyError, FirnError) as error:  # they stay in the database and go with the next ones
            log.warning("catalog.names_not_written", error=str(error))

    async def run(self, work: Callable[..., T], *arguments: Any) -> T:
        """Runs work that waits for the storage."""
        return await asyncio.get_running_loop().run_in_executor(self.storage_pool, work, *arguments)

    async def metadata(self, location: str) -> bytes:
        """A metadata file's bytes, from memory or from the storage."""
        data = self.store.cached(location)
        return data if data is not None else await self.run(read_metadata, self.store, location)

    async def upkeep(self) -> None:
        """What has to be done now and then, for as long as the process runs; one task that fails does not
        keep the others from their turn."""
        while True:
            await asyncio.sleep(UPKEEP_INTERVAL_S)
            for task in (
                self._flush_names,
                self._compact_names,
                self._count_partitions,
                self._forget,
                self._checkpoint,
                self._note_maintenance,
                self._note_alert_rules,
                self._note_keys,
                self._note_certificates,
            ):
                failures = metrics.background_task_failures.labels(task.__name__.strip("_"))
                with isolate("catalog.background_task_failed", failures.inc, task=task.__name__):
                    await self.run(task)

    def _compact_names(self) -> None:
        if self.store.warehouse:
            name_journal.compact(self.store, self.now_ms())

    def _count_partitions(self) -> None:
        count_what_is_uncounted(self.database, self.store, self.now_ms())

    def _forget(self) -> None:
        with self.database.write() as connection:
            forget_old_replies(connection, self.now_ms())
            forget_old_tokens(connection, self.now_ms())

    def _note_keys(self) -> None:
        self._note_uses()
        now_ms, keys = self.now_ms(), self._read(list_keys)
        soon = sum(key_lifetime.expires_within(key, now_ms, key_lifetime.SOON_MS) for key in keys)
        metrics.keys_expiring.set(soon)

    def _note_certificates(self) -> None:
        self.certificate_ends.note()

    def _note_uses(self) -> None:
        """Tells the database when keys were used; what it does not take is told again."""
        uses = self.uses.take()
        if not uses:
            return
        try:
            with self.database.write() as connection:
                note_uses(connection, self.database, uses)
        except BaseException:
            self.uses.put_back(uses)
            raise

    def _checkpoint(self) -> None:
        left = self.database.checkpoint()
        metrics.database_log_bytes.set(left)
        if left > LOG_BYTES_MAX:
            log.warning(
                "catalog.log_not_emptied",
                left_bytes=left,
                why="somebody reads the database file for long: a backup, or a tool that was left open",
            )

    def _note_maintenance(self) -> None:
        """Told here because a maintenance that does not run tells nothing."""
        rows = self._read(
            lambda connection: list_tasks(connection, kind="optimize.duty", state=None, after="", limit=100)
        )
        metrics.maintenance_round.set(
            max(
                (float(row["record"].get("at-ms", 0)) / 1000 for row in rows if row["id"] == ROUND_TASK),
                default=0.0,
            )
        )

    def _note_alert_rules(self) -> None:
        """Told here because rules that nobody evaluates are told by nobody else."""
        metrics.alert_rules.set(self._read(lambda connection: count_tasks(connection, "query.alert-rule")))

    async def close(self) -> None:
        """Finishes what runs and closes everything."""
        await self.queue.close()
        with isolate("catalog.key_uses_not_written", lambda: None):
            await self.run(self._note_uses)
        if self.trail is not None:
            self.trail.stop()
        if self.tokens is not None:
            self.tokens.close()
        self.database_pool.shutdown(wait=True)
        self.storage_pool.shutdown(wait=True)
        self.inspector.threads.shutdown(wait=False, cancel_futures=True)
        self.store.close()
        self.database.close()


def _trail(settings: CatalogSettings) -> AuditTrail | None:
    """The audit trail of this process; None where there is none. Raises SettingsError, PrerequisiteError."""
    audit = settings.audit
    if not audit.enabled:
        return None
    if not audit.uri:
        raise SettingsError("audit.enabled needs audit.uri: the trail goes to Kafka by `ingest serve`")
    folder = private_folder(Path(audit.folder))
    trail = AuditTrail(
        first_free(folder, settings.workers, audit.spool_bytes_max),
        EventSender(audit.uri, audit.token.get_secret_value() if audit.token else None),
        required=audit.required,
    )
    trail.note(start_of("catalog", settings))
    trail.start()
    return trail
