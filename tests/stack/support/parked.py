"""Tables broken and mended by a test, and what became of their records, by identity."""

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
from typer.testing import CliRunner, Result

from ingest.cli.program import app
from lake.catalog_client import TableName
from lake.errors import NotFoundError
from lake.storage import local_path
from lake.tenant import to_identifier
from tests.stack.support.ingester import Ingester
from tests.stack.support.kafka_topics import Record
from tests.stack.support.line import Line
from tests.stack.support.waiting import pause, wait_for

PARKED_S = 60.0
PARKINGS_MAX = 1_000


def numbered(tenant: str, numbers: Iterable[int], partitions: int = 1) -> list[Record]:
    """Records that say their number, spread over the partitions."""
    return [
        Record(orjson.dumps({"n": n}), headers=(("tenant", tenant.encode()),), partition=n % partitions)
        for n in numbers
    ]


@contextmanager
def flowing(line: Line, topic: str, tenant: str, numbers: range) -> Iterator[None]:
    """Records keep coming, five at a time, until all have come and the body has ended."""

    def produce() -> None:
        for first in numbers[::5]:
            line.kafka.produce(
                topic,
                numbered(tenant, range(first, min(first + 5, numbers.stop)), line.kafka.partitions(topic)),
            )
            pause(0.1)

    thread = threading.Thread(target=produce, name="flowing")
    thread.start()
    try:
        yield
    finally:
        thread.join()


def numbers(line: Line, tenant: str) -> list[int]:
    """The numbers of all rows, sorted; one that is there twice shows twice."""
    return sorted(int(n) for (n,) in line.sql(f"SELECT n FROM {line.table(tenant)}"))


def table_name(tenant: str) -> TableName:
    """The table of a tenant's logs."""
    return TableName(to_identifier(tenant), "logs")


def location(line: Line, tenant: str) -> Path:
    """The folder of a tenant's table."""
    return local_path(line.catalog.load_table(table_name(tenant))["metadata"]["location"])


def snapshots(line: Line, tenant: str) -> list[int]:
    """Those that were ever the head of a tenant's table, oldest first."""
    metadata = line.catalog.load_table(table_name(tenant))["metadata"]
    return [entry["snapshot-id"] for entry in metadata["snapshot-log"]]


def roll_back_by_rest(line: Line, tenant: str, snapshot: int) -> None:
    """As any client of the REST catalog may."""
    update = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": snapshot}
    name = table_name(tenant)
    line.catalog.post(
        f"/v1/namespaces/{name.namespace}/tables/{name.name}", {"requirements": [], "updates": [update]}
    )


@contextmanager
def unwritable(folder: Path) -> Iterator[None]:
    """A folder where nothing can be written: a file lies in its place. (Taking away the right to write would
    not stop root.)"""
    aside = folder.with_name(f"{folder.name}.aside")
    if folder.exists():
        folder.rename(aside)
    folder.write_text("no folder")
    try:
        yield
    finally:
        folder.unlink()
        if aside.exists():
            aside.rename(folder)


def wait_parked(ingester: Ingester, tenant: str, reason: str = "") -> None:
    """Returns when the node has parked the tenant's table."""
    name = str(table_name(tenant))
    ingester.wait_until(lambda: ingester.has_parked(name, reason), PARKED_S, f"{name} being parked")


def wait_released(ingester: Ingester, tenant: str) -> None:
    """Returns when the tenant's table is live again."""
    name = str(table_name(tenant))
    ingester.wait_until(
        lambda: ingester.is_ready() and ingester.takes_rows(name), PARKED_S, f"{name} being released"
    )


def resolve(running: Ingester, *arguments: str) -> None:
    """`python -m ingest resolve` with the settings of an ingester."""
    results: list[Result] = []

    def is_answered() -> bool:
        """Whether the catalog has the parking: the node tells of it a moment before."""
        results.append(CliRunner().invoke(app, ["resolve", *arguments], env=running.environment))
        return not isinstance(results[-1].exception, NotFoundError)

    wait_for(is_answered, PARKED_S, "the parking in the catalog")
    assert results[-1].exit_code == 0, (results[-1].output, results[-1].exception)


def forget_parkings(line: Line) -> None:
    """Every node reads what is parked in the catalog when it starts; parkings of a test that has ended are
    taken away."""
    parked = line.catalog.get("/firn/v1/parked", pageSize=PARKINGS_MAX)["parked"]
    if parked:
        lease = line.catalog.post("/firn/v1/leases/tests/acquire", {"holder": "tests", "ttl-ms": 10_000})
        changes = [
            {"identifier": record["identifier"], "version": record["version"], "record": None}
            for record in parked
        ]
        line.catalog.post("/firn/v1/parked", {"lease": f"tests:{lease['token']}", "changes": changes})
