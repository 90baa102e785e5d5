"""How fast the catalog is: `python -m tests.benchmarks.catalog --tables 100000 --json` prints one JSON object
as its last line.

It starts a server of its own on SQLite and local files, creates the tables in batches, and measures with
whole tables: twenty columns, hour partitions, ten old metadata files kept, snapshots with partition
summaries. Metadata files are durable before the swap in all of it.
"""

import argparse
import http.client
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import orjson
import psutil

Json = dict[str, Any]
BATCH = 1_000
NAMESPACE = "bench"
REPOSITORY = Path(__file__).resolve().parents[2]
COLUMNS = 20
SCHEMA: Json = {
    "type": "struct",
    "fields": [
        {"id": at, "name": f"column_{at}", "type": "timestamptz" if at == 1 else "string", "required": False}
        for at in range(1, COLUMNS + 1)
    ],
}
SPEC: Json = {"spec-id": 0, "fields": [{"source-id": 1, "transform": "hour", "name": "hour"}]}
PROPERTIES = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "10",
}


class Client:
    """One connection; the thinnest client there is, because it shares the processors with the server."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)

    def call(self, method: str, path: str, body: Json | None = None) -> bytes:
        self._connection.request(
            method, path, None if body is None else orjson.dumps(body), {"Content-Type": "application/json"}
        )
        response = self._connection.getresponse()
        data = response.read()
        if response.status >= 300:
            raise RuntimeError(f"{method} {path}: {response.status} {data[:500]!r}")
        return data


class Tables:
    """The tables' heads as the benchmark's clients know them; each table is used by one client at a time."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.heads: dict[int, tuple[int, int]] = {}
        self.locations: dict[int, str] = {}

    def append(self, number: int) -> Json:
        parent, sequence_number = self.heads.get(number, (None, 0))
        snapshot_id = random.getrandbits(62)
        self.heads[number] = (snapshot_id, sequence_number + 1)
        entry = "added-data-files=1,added-records=1000,added-files-size=123456"
        summary = {
            "operation": "append",
            "added-data-files": "1",
            "added-records": "1000",
            "added-files-size": "123456",
            "changed-partition-count": "1",
            "partition-summaries-included": "true",
            "partitions.hour=2026-11-21-10": entry,
            "total-records": "1000",
        }
        snapshot: Json = {
            "snapshot-id": snapshot_id,
            "sequence-number": sequence_number + 1,
            "timestamp-ms": int(time.time() * 1000),
            "manifest-list": f"{self.locations[number]}/metadata/".ljust(154, "x") + ".avro",
            "summary": summary,
            "schema-id": 0,
        }
        if parent is not None:
            snapshot["parent-snapshot-id"] = parent
        updates: list[Json] = [
            {"action": "add-snapshot", "snapshot": snapshot},
            {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": snapshot_id},
            {"action": "set-properties", "updates": {"firn.offsets": f'{{"v":1,"n":{sequence_number}}}'}},
        ]
        if sequence_number >= 10 and parent is not None:  # what maintenance leaves of a table's history
            updates.append({"action": "remove-snapshots", "snapshot-ids": [parent]})
        return {
            "requirements": [{"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": parent}],
            "updates": updates,
        }


def batch(client: Client, commits: list[Json]) -> list[Json]:
    """The results, every one of them a commit."""
    results = json.loads(client.call("POST", "/firn/v1/commits", {"commits": commits}))["results"]
    refused = [result for result in results if result["status"] != "committed"]
    if refused:
        raise RuntimeError(f"{len(refused)} commits were refused, the first: {refused[0]}")
    return list(results)


def identifier(number: int) -> Json:
    return {"namespace": [NAMESPACE], "name": f"table_{number:06d}"}


def create(client: Client, tables: Tables, first: int, last: int) -> None:
    for start in range(first, last, BATCH):
        create_body = {"schema": SCHEMA, "partition-spec": SPEC, "properties": PROPERTIES}
        numbers = range(start, min(last, start + BATCH))
        results = batch(
            client, [{"identifier": identifier(number), "create": create_body} for number in numbers]
        )
        for number, result in zip(numbers, results, strict=True):
            tables.locations[number] = result["metadata-location"].rsplit("/metadata/", 1)[0]


def batched_commits(client: Client, tables: Tables, rounds: int) -> float:
    """Table commits per second."""
    spent_s = 0.0
    size = min(BATCH, tables.count)
    for _ in range(rounds):
        chosen = random.sample(range(tables.count), size)
        commits = [{"identifier": identifier(number), **tables.append(number)} for number in chosen]
        started = time.perf_counter()
        batch(client, commits)
        spent_s += time.perf_counter() - started
    return rounds * size / spent_s


def single_commits(port: int, tables: Tables, clients: int, count: int) -> float:
    """Commits per second of so many clients together, each on its own tables."""
    problems: list[BaseException] = []

    def work(at: int) -> None:
        try:
            client = Client(port)
            for _ in range(count // clients):
                number = random.randrange(at, tables.count, clients)
                client.call(
                    "POST", f"/v1/namespaces/{NAMESPACE}/tables/table_{number:06d}", tables.append(number)
                )
        except (RuntimeError, OSError, http.client.HTTPException) as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(at,)) for at in range(clients)]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise problems[0]
    return count // clients * clients / (time.perf_counter() - started)


def loads(client: Client, tables: Tables, count: int) -> float:
    """Loads per second over all tables."""
    started = time.perf_counter()
    for _ in range(count):
        client.call("GET", f"/v1/namespaces/{NAMESPACE}/tables/table_{random.randrange(tables.count):06d}")
    return count / (time.perf_counter() - started)


def list_all(client: Client, expected: int) -> float:
    """Seconds to list every table by pages."""
    started, token, found = time.perf_counter(), "", 0
    while token is not None:
        page = json.loads(
            client.call("GET", f"/v1/namespaces/{NAMESPACE}/tables?pageToken={token}&pageSize=1000")
        )
        found += len(page["identifiers"])
        token = page["next-page-token"]
    if found != expected:
        raise RuntimeError(f"listed {found} tables of {expected}")
    return time.perf_counter() - started


def run(port: int, server: psutil.Process, count: int, say: Any) -> Json:
    """All measurements, at 1,000 tables first and then at all of them."""
    client, tables = Client(port), Tables(min(BATCH, count))
    create(client, tables, 0, tables.count)
    batched_commits(client, tables, 1)
    small = batched_commits(
        client, tables, 5
    )  # few, because the histories of a few tables grow while those of many hardly do
    say(f"{small:.0f} batched commits/s at {tables.count} tables")
    create(client, tables, tables.count, count)
    tables.count = count
    say(f"{count} tables created")
    batched_commits(client, tables, 2)
    before, rounds = server.cpu_times(), 20
    large = batched_commits(client, tables, rounds)
    after, commits = server.cpu_times(), rounds * min(BATCH, count)
    user_ms, system_ms = (after.user - before.user) * 1_000, (after.system - before.system) * 1_000
    result: Json = {
        "tables": count,
        "batch_commits_per_s": round(large),
        "batch_slowdown": round(small / large, 2),
        "server_cpu_ms_per_commit": round((user_ms + system_ms) / commits, 3),
        # The rest is the file system's: to make a file costs it what others did to the disk before.
        "server_user_ms_per_commit": round(user_ms / commits, 3),
    }
    result["single_commits_per_s_1"] = round(single_commits(port, tables, 1, 2_000))
    result["single_commits_per_s_8"] = round(single_commits(port, tables, 8, 4_000))
    result["loads_per_s"] = round(loads(client, tables, 10_000))
    result["list_s"] = round(list_all(client, count), 3)
    status = Path(f"/proc/{server.pid}/status").read_text()
    result["peak_rss_mb"] = round(
        int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) / 1024
    )
    return result


def main() -> None:
    """Starts a server, measures, and removes what it made."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=10_000)
    parser.add_argument("--json", action="store_true", help="print only the result")
    parser.add_argument("--folder", help="where database and warehouse go; a temporary folder by default")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="firn-catalog-bench-", dir=options.folder))
    flags = [
        "--database-url",
        f"sqlite:///{folder}/catalog.db",
        "--warehouse",
        f"file://{folder}/warehouse",
        "--port",
        "0",
        "--port-file",
        f"{folder}/port",
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "catalog", "serve", "--anonymous", *flags],
        cwd=REPOSITORY,
        env=os.environ,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 60
        while not (folder / "port").exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("the catalog did not start")
            threading.Event().wait(0.05)
        say = (lambda _: None) if options.json else print
        result = run(int((folder / "port").read_text()), psutil.Process(process.pid), options.tables, say)
        sys.stdout.write(json.dumps(result) + "\n")
    finally:
        process.terminate()
        process.wait(60)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
