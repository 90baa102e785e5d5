"""Firn's catalog in memory, behind a real `CatalogClient`: leases, parked records, changed partitions, tasks
and tables of one test.

`tests/contracts/test_catalog.py` holds it to what the real one answers. Beyond that a test may have it refuse
what it would grant, and put in what others have written.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import httpx
import orjson

from catalog.commit.table_metadata import new_metadata
from catalog.model.error_response import CatalogError, already_exists, no_such_table
from lake.catalog_client import (
    EXTRAS_PATH,
    EXTRAS_PROPERTY,
    NAMESPACE_SEPARATOR,
    CatalogClient,
    TableName,
)
from lake.clock import Clock, SystemClock, epoch_ms

Json = dict[str, Any]
UNKNOWN_PATH = CatalogError(404, "NotFoundException", "there is no such path")


@dataclass
class _Lease:
    token: int = 0
    holder: str = ""
    ends_s: float = 0.0


@dataclass
class FakeCatalog(httpx.BaseTransport):
    """Answers requests as they leave the client.

    `refuses`: the last word of a path -> what every request to it gets. `unreadable`: tables of which a
    request for many says this. `asked`: those last words, but for the client's first question (the
    configuration).
    """

    has_extras: bool = True
    clock: Clock = field(default_factory=SystemClock)
    refuses: dict[str, CatalogError] = field(default_factory=dict)
    unreadable: dict[TableName, CatalogError] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    namespaces: set[str] = field(default_factory=set)
    tables: dict[TableName, Json] = field(default_factory=dict)
    parked: dict[TableName, Json] = field(default_factory=dict)
    partitions: list[Json] = field(default_factory=list)
    tasks: dict[str, Json] = field(default_factory=dict)
    _leases: dict[str, _Lease] = field(default_factory=dict)

    def client(self) -> CatalogClient:
        """A client of this catalog."""
        return CatalogClient("http://catalog", transport=self)

    # ---- what others have done

    def lease(self, name: str) -> str:
        """Somebody takes a lease for good; its fencing token."""
        made = self._leases[name] = _Lease(self._token(name), "somebody", float("inf"))
        return f"{name}:{made.token}"

    def park(self, table: TableName, reason: str, record: Mapping[str, Any], *, version: int = 1) -> None:
        """Somebody parks a table."""
        self.parked[table] = {
            "identifier": table.to_json(),
            "table-uuid": None,
            "version": version,
            "reason": reason,
            "record": dict(record),
            "changed-ms": self._now_ms(),
        }

    # ---- the wire

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Answers one request, errors in Iceberg's form."""
        path = unquote(request.url.path)
        body = orjson.loads(request.read() or b"{}")
        try:
            if path != "/v1/config":
                word = path.rpartition("/")[2]
                self.asked.append(word)
                if word in self.refuses:
                    raise self.refuses[word]
            return httpx.Response(200, json=self._answer(request, path, body))
        except CatalogError as error:
            return httpx.Response(error.status, json=error.body())

    def _answer(self, request: httpx.Request, path: str, body: Json) -> Json:
        routes: Sequence[tuple[str, Callable[..., Json]]] = (
            (r"GET /v1/config", self._config),
            (r"GET /v1/namespaces", self._list_namespaces),
            (r"POST /v1/namespaces", self._create_namespace),
            (r"POST /v1/namespaces/([^/]+)/tables", self._create_table),
            (r"GET /v1/namespaces/([^/]+)/tables", self._list_tables),
            (r"GET /v1/namespaces/([^/]+)/tables/([^/]+)", self._load_table),
        )
        extras: Sequence[tuple[str, Callable[..., Json]]] = (
            (rf"POST {EXTRAS_PATH}/loads", self._load_tables),
            (rf"GET {EXTRAS_PATH}/tables", self._list_all_tables),
            (rf"GET {EXTRAS_PATH}/leases", self._list_leases),
            (rf"POST {EXTRAS_PATH}/leases/([^/]+)/acquire", self._acquire),
            (rf"POST {EXTRAS_PATH}/leases/([^/]+)/renew", self._renew),
            (rf"POST {EXTRAS_PATH}/leases/([^/]+)/release", self._release),
            (rf"GET {EXTRAS_PATH}/parked", self._list_parked),
            (rf"GET {EXTRAS_PATH}/parked/([^/]+)/([^/]+)", self._find_parked),
            (rf"POST {EXTRAS_PATH}/parked", self._change_parked),
            (rf"GET {EXTRAS_PATH}/dirty-partitions", self._list_partitions),
            (rf"GET {EXTRAS_PATH}/tasks", self._list_tasks),
            (rf"POST {EXTRAS_PATH}/tasks", self._save_tasks),
            (rf"DELETE {EXTRAS_PATH}/tasks/([^/]+)", self._remove_task),
        )
        for pattern, answer in (*routes, *(extras if self.has_extras else ())):
            if found := re.fullmatch(pattern, f"{request.method} {path}"):
                return answer({**request.url.params, **body}, *found.groups())
        raise UNKNOWN_PATH

    def _config(self, _: Json) -> Json:
        return {"defaults": {}, "overrides": {EXTRAS_PROPERTY: "1"} if self.has_extras else {}}

    def _now_ms(self) -> int:
        return epoch_ms(self.clock.now())

    # ---- tables

    def _list_namespaces(self, _: Json) -> Json:
        return {"namespaces": [name.split(NAMESPACE_SEPARATOR) for name in sorted(self.namespaces)]}

    def _create_namespace(self, asked: Json) -> Json:
        name = NAMESPACE_SEPARATOR.join(asked["namespace"])
        if name in self.namespaces:
            raise already_exists("Namespace", name)
        self.namespaces.add(name)
        return {"namespace": asked["namespace"]}

    def _create_table(self, asked: Json, namespace: str) -> Json:
        name = TableName(namespace, asked["name"])
        if name in self.tables:
            raise already_exists("Table", str(name))
        self.tables[name] = new_metadata(
            asked, uuid=asked["table-uuid"], location=asked["location"], now_ms=self._now_ms()
        )
        return self._load_table(asked, *name)

    def _load_table(self, _: Json, namespace: str, table: str) -> Json:
        name = TableName(namespace, table)
        if name not in self.tables:
            raise no_such_table(str(name))
        return {"metadata": self.tables[name], "config": {}}

    def _list_tables(self, _: Json, namespace: str) -> Json:
        return {
            "identifiers": [name.to_json() for name in sorted(self.tables) if name.namespace == namespace]
        }

    def _list_all_tables(self, _: Json) -> Json:
        return {"identifiers": [name.to_json() for name in sorted(self.tables)], "next-page-token": None}

    def _load_tables(self, asked: Json) -> Json:
        return {"results": [self._loaded(identifier) for identifier in asked["identifiers"]]}

    def _loaded(self, identifier: Json) -> Json:
        name = TableName.parse(identifier)
        try:
            if name in self.unreadable:
                raise self.unreadable[name]
            return {"identifier": identifier, "metadata": self._load_table({}, *name)["metadata"]}
        except CatalogError as error:
            return {"identifier": identifier, "error": error.model()}

    # ---- leases

    def _token(self, name: str) -> int:
        return self._leases.setdefault(name, _Lease()).token + 1

    def _is_in_force(self, lease: _Lease) -> bool:
        return lease.ends_s > self.clock.monotonic_s()

    def _list_leases(self, _: Json) -> Json:
        return {
            "leases": [
                {
                    "name": name,
                    "token": lease.token,
                    "holder": lease.holder,
                    "in-force": self._is_in_force(lease),
                }
                for name, lease in sorted(self._leases.items())
            ]
        }

    def _acquire(self, asked: Json, name: str) -> Json:
        token, held = self._token(name), self._leases[name]
        if self._is_in_force(held) and held.holder != asked["holder"]:
            raise CatalogError(409, "LeaseHeldException", f"lease {name} is held by {held.holder}")
        self._leases[name] = _Lease(token, asked["holder"], self._ends_s(asked))
        return {"name": name, "token": token}

    def _ends_s(self, asked: Json) -> float:
        return self.clock.monotonic_s() + float(asked["ttl-ms"]) / 1000

    def _renew(self, asked: Json, name: str) -> Json:
        self._in_force(name, asked["token"]).ends_s = self._ends_s(asked)
        return {"name": name, "token": asked["token"]}

    def _release(self, asked: Json, name: str) -> Json:
        self._in_force(name, asked["token"]).ends_s = 0.0
        return {}

    def _in_force(self, name: str, token: int) -> _Lease:
        held = self._leases.get(name)
        if held is None or held.token != token or not self._is_in_force(held):
            raise CatalogError(403, "StaleLeaseException", f"lease {name}:{token} is not in force")
        return held

    # ---- parked records

    def _list_parked(self, asked: Json) -> Json:
        entries = [entry for _, entry in sorted(self.parked.items())]
        return _page(entries, asked, "parked")

    def _find_parked(self, _: Json, namespace: str, table: str) -> Json:
        found = self.parked.get(TableName(namespace, table))
        if found is None:
            raise CatalogError(404, "NotParkedException", f"{namespace}.{table} is not parked")
        return found

    def _change_parked(self, asked: Json) -> Json:
        name, _, token = asked["lease"].rpartition(":")
        self._in_force(name, int(token))
        return {"results": [self._changed(change) for change in asked["changes"]]}

    def _changed(self, change: Json) -> Json:
        table = TableName.parse(change["identifier"])
        there = self.parked.get(table, {"version": 0})["version"]
        if there != change["version"]:
            error = CatalogError(409, "ParkedVersionException", f"{table} has version {there} by now")
            return {"identifier": change["identifier"], "error": error.model()}
        if change["record"] is None:
            self.parked.pop(table, None)
            return {"identifier": change["identifier"], "version": 0}
        self.park(table, change["reason"], change["record"], version=there + 1)
        return {"identifier": change["identifier"], "version": there + 1}

    # ---- changed partitions

    def _list_partitions(self, asked: Json) -> Json:
        since_ms, files_min = int(asked.get("changed-since-ms", 0)), int(asked.get("min-files", 1))
        most, bytes_min = int(asked.get("max-data-files", 1_000_000)), int(asked.get("min-bytes", 0))
        found = [
            row
            for row in self.partitions
            if row["changed-ms"] >= since_ms
            and row["data-files"] + row["delete-files"] >= files_min
            and row["data-files"] <= most
            and row["bytes"] >= bytes_min
        ]
        return _page(sorted(found, key=lambda row: int(row["changed-ms"])), asked, "partitions")

    # ---- tasks

    def _list_tasks(self, asked: Json) -> Json:
        found = [
            task
            for _, task in sorted(self.tasks.items())
            if all(task[name] == asked.get(name, task[name]) for name in ("kind", "state"))
        ]
        return _page(found, asked, "tasks")

    def _remove_task(self, _: Json, task_id: str) -> Json:
        self.tasks.pop(task_id, None)
        return {}

    def _save_tasks(self, asked: Json) -> Json:
        if lease := asked.get("lease"):
            name, _, token = lease.rpartition(":")
            self._in_force(name, int(token))
        return {"results": [self._saved(task) for task in asked["tasks"]]}

    def _saved(self, task: Json) -> Json:
        there = self.tasks.get(task["id"], {"version": 0})["version"]
        if there != task["version"]:
            error = CatalogError(409, "TaskVersionException", f"task {task['id']} has version {there} by now")
            return {"id": task["id"], "error": error.model()}
        self.tasks[task["id"]] = {**task, "version": there + 1, "changed-ms": self._now_ms()}
        return {"id": task["id"], "version": there + 1}


def _page(entries: Sequence[Json], asked: Json, key: str) -> Json:
    """A page of a list; its token is the place of the next one."""
    start = int(asked.get("pageToken") or 0)
    end = start + int(asked.get("pageSize", 1_000))
    return {key: entries[start:end], "next-page-token": str(end) if end < len(entries) else None}
