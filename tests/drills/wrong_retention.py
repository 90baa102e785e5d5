"""A tenant's retention is set to an hour, and maintenance runs before anybody sees it."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import orjson

from tests.drills.support.scene import PARTITIONS, SOON_S, TOPIC, Scene, counted
from tests.faults.crash.identities import Identity, rows
from tests.faults.crash.record_flow import table_of
from tests.query.support.processes import run
from tests.stack.support.kafka_topics import Record
from tests.stack.support.waiting import wait_for

TENANT = "bravo"
TABLE = table_of(TENANT)
OLD, LATE = 500, 300


def play(scene: Scene) -> Mapping[str, object]:
    """The table goes back to before; what came since is read again, late or not, and nothing is there
    twice."""
    scene.start()
    scene.api()
    old = _produce(scene, OLD, hours_ago=5)
    wait_for(lambda: _rows_of(scene, old) == OLD, SOON_S, "the old rows")
    _take_too_much(scene)
    assert _rows_of(scene, old) == 0
    late = _produce(scene, LATE, hours_ago=3)
    scene.sees("FirnDeadLettersRise")
    scene.run("python -m query hold set TENANT --reason wrong-retention", TENANT=TENANT)
    scene.run("python -m query retention TENANT --stream STREAM --set 30d", TENANT=TENANT, STREAM=TABLE.name)
    _move_back(scene)
    scene.sees("FirnTableNeedsPerson")
    scene.run("sleep 61")
    names = {"NAMESPACE": TABLE.namespace, "TABLE": TABLE.name}
    assert "rolled_back" in scene.run("python -m ingest parked list")
    scene.run("python -m ingest resolve NAMESPACE.TABLE --reread", **names)
    scene.wait_for_rows()
    wait_for(lambda: _rows_of(scene, late) == LATE, SOON_S, "the late rows")
    told = scene.run(
        "python -m ingest dead-letters replay --reason past_retention --tenant TENANT", TENANT=TENANT
    )
    assert f"already a row: {LATE}" in told
    scene.run("python -m ingest dead-letters erase --reason past_retention --tenant TENANT", TENANT=TENANT)
    hold = scene.json("python -m query hold list TENANT", TENANT=TENANT)["id"]
    scene.run("python -m query hold lift TENANT HOLD", TENANT=TENANT, HOLD=hold)
    found = scene.account()
    scene.run("python -m ingest audit")
    return {**counted(scene.flow, found), "brought_back": _rows_of(scene, old), "late": len(late)}


def _produce(scene: Scene, count: int, hours_ago: int) -> set[Identity]:
    """So many records of the tenant that happened then; returns where they are."""
    then = (datetime.now(UTC) - timedelta(hours=hours_ago)).isoformat()
    records = [
        Record(
            orjson.dumps({"n": n, "timestamp": then}),
            headers=(("tenant", TENANT.encode()),),
            partition=n % PARTITIONS,
        )
        for n in range(count)
    ]
    places = {(place.partition, place.offset) for place in scene.kafka.produce(TOPIC, records)}
    scene.flow.good[TABLE] |= places
    return places


def _rows_of(scene: Scene, places: set[Identity]) -> int:
    return len(rows(scene.catalog, TABLE, scene.kafka.topic_id(TOPIC)).keys() & places)


def _take_too_much(scene: Scene) -> None:
    """Somebody's mistake, and maintenance as it comes by."""
    for room, *words in (
        ("query", "retention", TENANT, "--stream", TABLE.name, "--set", "1h"),
        ("optimize", "retention"),
    ):
        done = run(room, scene.environment, *words)
        assert done.returncode == 0, done.stdout + done.stderr


def _move_back(scene: Scene) -> None:
    """To the snapshot before the one that took rows away."""
    names = {"CATALOG": scene.stack.address("catalog"), "NAMESPACE": TABLE.namespace, "TABLE": TABLE.name}
    loaded = scene.json("curl -s CATALOG/v1/namespaces/NAMESPACE/tables/TABLE", **names)
    deletes = [
        snapshot
        for snapshot in loaded["metadata"]["snapshots"]
        if snapshot["summary"]["operation"] == "delete"
    ]
    parent = deletes[0]["parent-snapshot-id"]
    scene.run(
        """curl -s --json '{"requirements": [], "updates": [{"action": "set-snapshot-ref", "ref-name": """
        """"main", "type": "branch", "snapshot-id": SNAPSHOT}]}' """
        """CATALOG/v1/namespaces/NAMESPACE/tables/TABLE""",
        **names,
        SNAPSHOT=str(parent),
    )
