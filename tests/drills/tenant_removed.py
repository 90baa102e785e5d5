"""A tenant with rows, dead letters and a key leaves, while records of the others flow."""

from collections.abc import Mapping
from datetime import UTC, datetime

import orjson

from lake.storage import local_path
from tests.drills.support.scene import DEAD_LETTERS, PARTITIONS, SOON_S, TOPIC, Scene, counted
from tests.faults.crash.record_flow import table_of
from tests.query.support.processes import run
from tests.stack.support.kafka_topics import Record
from tests.stack.support.waiting import wait_for

TENANT, STREAM = "Leaver", "logs"
TABLE = table_of(TENANT)
ROWS, BROKEN = 300, 20


def play(scene: Scene) -> Mapping[str, object]:
    """No file and no dead letter of it is left; the others have every record."""
    scene.start()
    scene.api()
    _produce(scene)
    key_id = _key_of_tenant(scene)
    folder = local_path(scene.catalog.load_table(TABLE)["metadata"]["location"])
    assert scene.run("python -m query hold list TENANT", TENANT=TENANT).strip() == ""
    scene.run("python -m query stream delete TENANT STREAM --files after-undo", TENANT=TENANT, STREAM=STREAM)
    stream_id = scene.json("python -m query stream deleted TENANT", TENANT=TENANT)["id"]
    scene.run("python -m query stream purge TENANT STREAM_ID --now", TENANT=TENANT, STREAM_ID=str(stream_id))
    scene.run("python -m optimize purge")
    assert [path for path in folder.rglob("*") if path.is_file()] == []
    scene.run("python -m ingest dead-letters erase --tenant TENANT --all", TENANT=TENANT)
    assert key_id in scene.run("python -m catalog key list")
    scene.run("python -m catalog key revoke KEY_ID", KEY_ID=key_id)
    assert scene.json("python -m query tenant remove TENANT", TENANT=TENANT)["removed"] == TENANT
    assert TABLE.namespace not in scene.catalog.namespaces()
    files = scene.json("python -m query stream deleted TENANT", TENANT=TENANT)["files"]
    since = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S")
    scene.wait_for_rows()
    found = scene.account()
    scene.run("python -m ingest dead-letters list --tenant TENANT", TENANT=TENANT)
    assert _letters(scene) == 0
    scene.run("python -m ingest audit --since TIME", TIME=since)
    return {**counted(scene.flow, found), "files_purged": files, "dead_letters_erased": BROKEN}


def _key_of_tenant(scene: Scene) -> str:
    """The id of a key that is bound to the tenant's namespace."""
    words = ("key", "create", "--scope", "read", "--namespace", TABLE.namespace)
    return run("catalog", scene.environment, *words).stdout.split("_")[1]


def _produce(scene: Scene) -> None:
    """Records that become rows, and some that no table can take; returns when they are where they belong."""
    headers = (("tenant", TENANT.encode()),)
    good = [Record(orjson.dumps({"n": n}), headers=headers, partition=n % PARTITIONS) for n in range(ROWS)]
    scene.kafka.produce(TOPIC, [*good, *[Record(b'{"n":', headers=headers)] * BROKEN])
    wait_for(lambda: scene.line.rows_written(TENANT) == ROWS, SOON_S, "the rows of the tenant")
    wait_for(lambda: _letters(scene) == BROKEN, SOON_S, "the dead letters of the tenant")


def _letters(scene: Scene) -> int:
    """How many dead letters are of the tenant."""
    every = scene.kafka.dead_letters(DEAD_LETTERS).values()
    return sum(("tenant", TENANT.encode()) in letter.headers for letter in every)
