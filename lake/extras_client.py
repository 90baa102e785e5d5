"""What Firn's catalog offers beyond the REST protocol, under `/firn/v1`, with types: leases, parked records,
tasks, changed partitions, files to delete, dropped tables, legal holds.

The control service beside a foreign catalog offers leases and parked records. Whoever offers none of a kind
answers 404: every method then raises NotFoundError. All raise UnavailableError where nobody answers and
RefusedError for what the key or a stale lease does not allow. Batch commits are `CatalogClient.commit_all`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Any
from urllib.parse import quote

from lake.catalog_client import EXTRAS_PATH, NAMESPACE_SEPARATOR, CatalogClient, TableName, pages
from lake.errors import NotFoundError
from lake.holds import Hold

PAGE_SIZE = 1_000
# Only asked for their status, with keys of others; nobody here reads their answers.
WHOAMI_PATH = f"{EXTRAS_PATH}/whoami"
PERMISSION_PATH = f"{EXTRAS_PATH}/permission"
TENANTS_PATH = f"{EXTRAS_PATH}/tenants"
REPORTS_PATH = f"{EXTRAS_PATH}/metrics-reports"
KEYS_PATH = f"{EXTRAS_PATH}/keys"
_LEASES = f"{EXTRAS_PATH}/leases"
_PARKED = f"{EXTRAS_PATH}/parked"
_TASKS = f"{EXTRAS_PATH}/tasks"
_TABLES = f"{EXTRAS_PATH}/tables"
_PARTITIONS = f"{EXTRAS_PATH}/dirty-partitions"
_GROUPS = f"{EXTRAS_PATH}/partition-groups"
_DELETIONS = f"{EXTRAS_PATH}/deletions"
_QUEUED = f"{_DELETIONS}/queued"
_DROPPED = f"{EXTRAS_PATH}/dropped-tables"
_HOLDS = f"{EXTRAS_PATH}/holds"


@dataclass(frozen=True, slots=True)
class ParkedEntry:
    """A parked table. `version`: for the next compare-and-set; `record`: what ingest wrote, or the catalog;
    `changed_ms`: ms since 1970."""

    table: TableName
    version: int
    reason: str
    record: Mapping[str, Any]
    changed_ms: int


@dataclass(frozen=True, slots=True)
class ParkedChange:
    """A parked record to be written over the version last read (0: there was none); `record` None removes
    it."""

    table: TableName
    version: int
    reason: str
    record: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Task:
    """The state of a piece of work. `version`: the one last read, 0 for a new task; `changed_ms`: ms since
    1970, the catalog sets it."""

    id: str
    kind: str
    state: str
    version: int
    record: Mapping[str, Any]
    changed_ms: int = 0


@dataclass(frozen=True, slots=True)
class ChangedPartition:
    """A partition as the catalog's index has it. `path`: its name, `changed_ms`: its last change, ms since
    1970."""

    table: TableName
    table_id: int
    path: str
    data_files: int
    size_bytes: int
    rows: int
    changed_ms: int


@dataclass(frozen=True, slots=True)
class PartitionGroup:
    """Partitions of a table whose names begin alike. `name`: how."""

    table: TableName
    name: str
    data_files: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class UnreachedFile:
    """A file to delete once `not_before_ms` (since 1970) is over. `record` names its `table` and
    `table-uuid`."""

    uri: str
    not_before_ms: int
    record: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DueDeletion:
    """A file whose time has come. `roots`: prefixes below one of which it has to lie to be deleted; none: it
    is not its table's."""

    id: int
    uri: str
    roots: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DroppedTable:
    """A table that can still be brought back, or waits for its purge. Times are ms since 1970.

    `purge_due_ms` None: nobody asked for a purge. `purge_started_ms` None: it may still come back.
    `shares_location`: a living table lies at, above or below its location (known only of purgeable ones).
    `held_by`: the legal hold that keeps its files, None: there is none; `at_once`: the purge does not wait
    for the time for undo.
    """

    id: int
    table: TableName
    uuid: str
    location: str
    metadata_location: str
    dropped_ms: int
    purge_due_ms: int | None
    purge_started_ms: int | None
    shares_location: bool
    held_by: str | None = None
    at_once: bool = False


class ExtrasClient:
    """Talks to the extras through a catalog client, and with its key; thread-safe, free to make."""

    def __init__(self, client: CatalogClient) -> None:
        self._client = client

    # ---- leases

    def lease_holder(self, name: str) -> str | None:
        """Who holds a lease now; None: nobody."""
        return self.lease_holders().get(name)

    def lease_holders(self) -> dict[str, str]:
        """Who holds which lease now: name -> holder."""
        leases = self._client.get(_LEASES)["leases"]
        return {str(each["name"]): str(each["holder"]) for each in leases if each["in-force"]}

    def acquire_lease(self, name: str, holder: str, ttl_s: float, *, timeout_s: float | None = None) -> int:
        """Takes a lease, or one's own again; its fencing token, larger than all before. Raises ConflictError
        while another holds it."""
        body = {"holder": holder, "ttl-ms": int(ttl_s * 1000)}
        return int(self._client.post(f"{_LEASES}/{name}/acquire", body, timeout_s=timeout_s)["token"])

    def renew_lease(self, name: str, token: int, ttl_s: float, *, timeout_s: float | None = None) -> None:
        """Holds on to a lease. Raises RefusedError where it ran out or passed to another."""
        body = {"token": token, "ttl-ms": int(ttl_s * 1000)}
        self._client.post(f"{_LEASES}/{name}/renew", body, timeout_s=timeout_s)

    def release_lease(self, name: str, token: int, *, timeout_s: float | None = None) -> None:
        """Lets a lease go, so that the next holder need not wait. Raises RefusedError where it is lost."""
        self._client.post(f"{_LEASES}/{name}/release", {"token": token}, timeout_s=timeout_s)

    # ---- parked records

    def parked(self) -> Iterator[ParkedEntry]:
        """All parked tables, by their identifiers."""
        return (_parked(entry) for entry in self._entries(_PARKED, "parked"))

    def find_parked(self, table: TableName) -> ParkedEntry | None:
        """One table's record; None where it is not parked, or nobody keeps such records."""
        path = f"{_PARKED}/{quote(table.namespace, safe='')}/{quote(table.name, safe='')}"
        try:
            return _parked(self._client.get(path))
        except NotFoundError:
            return None

    def change_parked(
        self,
        changes: Sequence[ParkedChange],
        *,
        lease: str,
        timeout_s: float | None = None,
        idempotency_key: str | None = None,
    ) -> list[int | None]:
        """Changes records, each by compare-and-set; the new version of each (0: none), None where somebody
        changed it since. Without changes it asks whether the lease (`name:token`) is in force.

        `idempotency_key`: a UUID, the same one for every repetition after an unknown outcome.
        """
        body = {
            "lease": lease,
            "changes": [
                {
                    "identifier": each.table.to_json(),
                    "version": each.version,
                    "reason": each.reason,
                    "record": each.record,
                }
                for each in changes
            ],
        }
        answer = self._client.post(_PARKED, body, timeout_s=timeout_s, idempotency_key=idempotency_key)
        return [None if "error" in each else int(each["version"]) for each in answer["results"]]

    # ---- tasks

    def tasks(self, kind: str, *, state: str | None = None, page_size: int = PAGE_SIZE) -> Iterator[Task]:
        """All tasks of a kind, or those in one state, by their ids."""
        return (_task(entry) for entry in self._entries(_TASKS, "tasks", page_size, kind=kind, state=state))

    def find_task(self, kind: str, task_id: str) -> Task | None:
        """One task of a kind."""
        return next((task for task in self.tasks(kind) if task.id == task_id), None)

    def save_tasks(self, tasks: Sequence[Task], *, lease: str | None = None) -> list[int | None]:
        """Writes tasks, each over the version last read; the new version of each, None where somebody changed
        it since and it stays as it is. With a lease (`name:token`) that is not in force everything is
        refused."""
        body = [
            {
                "id": task.id,
                "kind": task.kind,
                "state": task.state,
                "version": task.version,
                "record": task.record,
            }
            for task in tasks
        ]
        answer = self._client.post(_TASKS, _under(lease, {"tasks": body}))
        return [None if "error" in each else int(each["version"]) for each in answer["results"]]

    def remove_task(self, task_id: str) -> None:
        """Forgets a task, known or not."""
        self._client.delete(f"{_TASKS}/{task_id}")

    # ---- tables and partitions

    def tables(self) -> Iterator[TableName]:
        """The tables of all namespaces."""
        return (TableName.parse(entry) for entry in self._entries(_TABLES, "identifiers"))

    def changed_partitions(
        self,
        *,
        files_min: int = 1,
        since_ms: int = 0,
        data_files_max: int | None = None,
        bytes_min: int = 0,
        page_size: int = PAGE_SIZE,
    ) -> Iterator[ChangedPartition]:
        """Partitions of at least so many files, data and delete files together, changed since then (ms since
        1970), of at most so many data files and at least so many bytes; the oldest change first."""
        query = {
            "min-files": files_min,
            "changed-since-ms": max(0, since_ms),
            "max-data-files": data_files_max,
            "min-bytes": bytes_min,
        }
        return (_partition(row) for row in self._entries(_PARTITIONS, "partitions", page_size, **query))

    def partition_groups(
        self, before: str, *, characters: int, bytes_max: int, page_size: int = PAGE_SIZE
    ) -> Iterator[PartitionGroup]:
        """Partitions of one field whose names are before `before` (`timestamp_hour=2026-11-14`), put together
        by the first `characters` of their names: groups of less than `bytes_max` bytes, by table."""
        query = {"before": before, "characters": characters, "max-bytes": bytes_max}
        return (
            PartitionGroup(
                TableName.parse(entry["identifier"]),
                str(entry["name"]),
                int(entry["data-files"]),
                int(entry["bytes"]),
            )
            for entry in self._entries(_GROUPS, "groups", page_size, **query)
        )

    # ---- files to delete

    def queue_deletions(self, files: Sequence[UnreachedFile], *, lease: str | None = None) -> list[str]:
        """Queues files; one that is queued already stays as it is. Gives the URIs of those that are not their
        table's: they are not queued."""
        body = [
            {"location": file.uri, "not-before-ms": file.not_before_ms, "record": file.record}
            for file in files
        ]
        return list(self._client.post(_DELETIONS, _under(lease, {"deletions": body})).get("refused", []))

    def due_deletions(self) -> list[DueDeletion]:
        """The first 1,000 files whose time has come. Those that are acknowledged leave the list."""
        entries = islice(self._entries(_DELETIONS, "deletions"), PAGE_SIZE)
        return [
            DueDeletion(int(entry["id"]), str(entry["location"]), tuple(entry.get("places", ())))
            for entry in entries
        ]

    def queued_deletions(self, uris: Sequence[str]) -> set[str]:
        """Those of some files that are queued, due or not."""
        pages = (list(uris[at : at + PAGE_SIZE]) for at in range(0, len(uris), PAGE_SIZE))
        return {uri for page in pages for uri in self._client.post(_QUEUED, {"locations": page})["queued"]}

    def acknowledge_deletions(self, ids: Sequence[int], *, lease: str | None = None) -> None:
        """Says which files are gone."""
        self._client.post(f"{_DELETIONS}/acknowledge", _under(lease, {"ids": list(ids)}))

    # ---- dropped tables

    def undo_window(self) -> timedelta:
        """How long a table that is dropped now can be brought back."""
        return timedelta(milliseconds=int(self._client.get(_DROPPED, pageSize=1)["undo-window-ms"]))

    def dropped_tables(self, *, purgeable: bool = False) -> Iterator[DroppedTable]:
        """All dropped tables, the last one last; with `purgeable` only those whose purge is due."""
        asked = "true" if purgeable else None
        return (_dropped(entry) for entry in self._entries(_DROPPED, "dropped-tables", purgeable=asked))

    def undo_drop(self, table: TableName) -> None:
        """Brings back the last table dropped under this name. Raises ConflictError where the name is taken or
        the purge has begun."""
        self._client.post(f"{_DROPPED}/undo", {"identifier": table.to_json()})

    def request_purge(self, dropped_id: int, *, at_once: bool) -> None:
        """Asks for the purge of a table that was dropped without, or of any without waiting for the time for
        undo. Raises RefusedError for a key that is no administrator's, and where a legal hold is on the
        table."""
        self._client.post(f"{_DROPPED}/{dropped_id}/purge?atOnce={str(at_once).lower()}", {})

    def start_purge(self, dropped_id: int) -> DroppedTable:
        """Closes the way back; the table as it stands. Raises ConflictError before the purge is due."""
        return _dropped(self._client.post(f"{_DROPPED}/{dropped_id}/purge-started", {}))

    def finish_purge(self, dropped_id: int) -> None:
        """Says that a table's files are gone: its name is free."""
        self._client.delete(f"{_DROPPED}/{dropped_id}")

    # ---- retention and legal holds

    def policies(
        self, *, timeout_s: float | None = None, limits_alone: bool = False
    ) -> dict[str | None, dict[str, str]]:
        """What namespaces say of retention, legal holds and limits, by namespace, under the names of their
        properties, as far as they say anything; under None what the lake says. With `timeout_s` each page is
        asked for once; `limits_alone`: none that says nothing of limits."""
        found: dict[str | None, dict[str, str]] = {}
        more = {"only": "limits"} if limits_alone else {}
        for page in pages(lambda token: self._policies_page(token, timeout_s, more)):
            found[None] = dict(page["lake"])
            found |= {
                NAMESPACE_SEPARATOR.join(entry["namespace"]): dict(entry["properties"])
                for entry in page["namespaces"]
            }
        return found

    def _policies_page(self, token: str, timeout_s: float | None, more: Mapping[str, str]) -> dict[str, Any]:
        path, query = f"{EXTRAS_PATH}/policies", {"pageSize": PAGE_SIZE, "pageToken": token, **more}
        if timeout_s is None:
            return self._client.get(path, **query)
        return self._client.get_once(path, timeout_s, query)

    def set_hold(
        self,
        namespace: str,
        *,
        stream: str | None,
        start: datetime | None,
        end: datetime | None,
        reason: str,
    ) -> Hold:
        """Sets a legal hold on a stream of a namespace, None: on all; of event time, None for open."""
        body = {
            "namespace": namespace.split(NAMESPACE_SEPARATOR),
            "stream": stream,
            "from": None if start is None else start.isoformat(),
            "until": None if end is None else end.isoformat(),
            "reason": reason,
        }
        return Hold.of(self._client.post(_HOLDS, body))

    def lift_hold(self, namespace: str, hold_id: str) -> Hold:
        """Lifts a legal hold, and returns it. Raises NotFoundError where there is none of this id."""
        path = f"{_HOLDS}/{quote(namespace, safe='')}/{quote(hold_id, safe='')}"
        return Hold.of(self._client.delete(path))

    def _entries(
        self, path: str, key: str, page_size: int = PAGE_SIZE, **query: Any
    ) -> Iterator[dict[str, Any]]:
        """Every entry of a list, `key` being its name in the answer; asks for a page when it is needed."""
        for page in pages(
            lambda token: self._client.get(path, pageSize=page_size, pageToken=token or None, **query)
        ):
            yield from page[key]


def _under(lease: str | None, body: dict[str, Any]) -> dict[str, Any]:
    return {**body, "lease": lease} if lease else body


def _parked(entry: Mapping[str, Any]) -> ParkedEntry:
    return ParkedEntry(
        TableName.parse(entry["identifier"]),
        int(entry["version"]),
        str(entry["reason"]),
        entry.get("record") or {},
        int(entry["changed-ms"]),
    )


def _task(entry: Mapping[str, Any]) -> Task:
    return Task(
        str(entry["id"]),
        str(entry["kind"]),
        str(entry["state"]),
        int(entry["version"]),
        entry.get("record") or {},
        int(entry["changed-ms"]),
    )


def _partition(entry: Mapping[str, Any]) -> ChangedPartition:
    return ChangedPartition(
        TableName.parse(entry["identifier"]),
        int(entry["table-id"]),
        str(entry["partition"]),
        int(entry["data-files"]),
        int(entry["bytes"]),
        int(entry["records"]),
        int(entry["changed-ms"]),
    )


def _dropped(entry: Mapping[str, Any]) -> DroppedTable:
    due_ms, started_ms = entry.get("purge-due-ms"), entry["purge-started-ms"]
    return DroppedTable(
        int(entry["id"]),
        TableName.parse(entry["identifier"]),
        str(entry["table-uuid"]),
        str(entry["location"]),
        str(entry["metadata-location"]),
        int(entry["dropped-ms"]),
        None if due_ms is None else int(due_ms),
        None if started_ms is None else int(started_ms),
        bool(entry.get("location-shared")),
        entry.get("held-by"),
        bool(entry.get("purge-at-once")),
    )
