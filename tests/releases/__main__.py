"""`python -m tests.releases VERSION`: writes what the code of today leaves behind to tests/releases, before
that version is tagged: with the catalog on SQLite, and on PostgreSQL. `tests/releases/test_releases.py` opens
both from then on."""

import random
import shutil
from collections.abc import Mapping
from typing import Annotated

import orjson
import typer

from infra.local.supervisor import Database, Stack
from tests.changes.support.shop import Shop
from tests.drills.support.runbook import Runbook
from tests.drills.support.scene import GROUP, PARTITIONS, SOON_S, TOPIC, Scene
from tests.faults.crash.record_flow import table_of
from tests.query.support.processes import run
from tests.releases import database_dump, orders
from tests.releases.release import ADDRESS, EXPECTED, PLACE, SEARCH, STACK, archive, name_of, pack
from tests.stack.support.parked import location, numbered, unwritable
from tests.stack.support.plain_http import http
from tests.stack.support.waiting import wait_for

PARKED, PARKED_RECORDS = "bravo", 50
EXPORTED = "Acme-Shop"
DATABASES: tuple[Database, ...] = ("sqlite", "postgres")
NO_PAGE = Runbook("", "", (), frozenset(), frozenset())


def write(scene: Scene) -> Mapping[str, object]:
    """Rows, a table that follows a database, dead letters, a saved search, an export, and a table that is
    parked with its records."""
    scene.start()
    followed = _follow(scene)
    api = scene.api()
    scene.account()
    http.put(
        f"{api.address}/v1/saved-searches/{SEARCH}", json={"address": ADDRESS}, timeout=30.0
    ).raise_for_status()
    exported = run("query", scene.environment, "export", EXPORTED, str(PLACE / "export.ndjson"))
    assert exported.returncode == 0, exported.stderr
    (PLACE / "export.ndjson").unlink()
    with unwritable(location(scene.line, PARKED) / "data"):
        places = scene.kafka.produce(TOPIC, numbered(PARKED, range(PARKED_RECORDS), PARTITIONS))
        wait_for(lambda: _is_parked(scene), SOON_S, "the table being parked")
        scene.stack.stop("ingest")
    scene.flow.good[table_of(PARKED)] |= {(place.partition, place.offset) for place in places}
    good = {str(name): sorted(identities) for name, identities in scene.flow.good.items()}
    return {"good": good, "bad": sorted(scene.flow.bad), "orders": followed}


def _follow(scene: Scene) -> Mapping[str, object]:
    """A table with a key and its history; what they have to have."""
    scene.kafka.topic(name=orders.TOPIC, retention_ms="-1")
    scene.set(topics=orjson.dumps([{"name": TOPIC}, orders.SETTING]).decode())
    scene.stack.stop("ingest", "ingest-serve")
    scene.stack.start("ingest", "ingest-serve", environment=scene.settings)
    shop = Shop(orders.TENANT)
    records = orders.first_changes(shop)
    scene.kafka.produce(orders.TOPIC, records)
    ends = scene.kafka.ends(orders.TOPIC)
    wait_for(lambda: scene.kafka.group_offsets(GROUP, orders.TOPIC) == ends, SOON_S, "the orders")
    return {"rows": orders.rows(shop), "history": orders.recorded(records)}


def _is_parked(scene: Scene) -> bool:
    status = http.get(f"{scene.stack.address('ingest')}/v1/status", timeout=10.0).json()
    ends = scene.kafka.ends(TOPIC)
    return bool(status["parked"]) and scene.kafka.group_offsets("firn", TOPIC) == ends


def main(version: Annotated[str, typer.Argument(help="as pyproject.toml has it")]) -> None:
    """Writes a release's archives."""
    for database in DATABASES:
        write_archive(name_of(version, database), database)


def write_archive(name: str, database: Database) -> None:
    """Writes one of them."""
    shutil.rmtree(PLACE, ignore_errors=True)
    PLACE.mkdir(mode=0o700)
    with (
        Stack(PLACE / STACK, tied=True) as stack,
        Scene(stack, PLACE, NO_PAGE, random.Random(1)) as scene,
    ):
        stack.start("kafka", database=database)
        expected = write(scene)
        if database == "postgres":
            database_dump.dump(stack, PLACE)
    if database == "postgres":
        database_dump.forget_database(stack)
    for log in PLACE.glob("*.log"):
        log.unlink()
    (PLACE / EXPECTED).write_bytes(orjson.dumps(expected))
    pack(name)
    typer.echo(f"{archive(name)}: {archive(name).stat().st_size:,} bytes")


if __name__ == "__main__":
    typer.run(main)
