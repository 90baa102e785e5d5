"""A tenant gets another name: new records go there, old rows follow by an export."""

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from tests.drills.support.scene import SOON_S, TOPIC, Scene, counted
from tests.faults.crash.identities import rows_of_topics
from tests.faults.crash.record_flow import table_of
from tests.stack.support.parked import numbered
from tests.stack.support.waiting import wait_for

OLD, NEW, STREAM = "Mover", "Moved", "logs"
BEFORE, SINCE = 500, 200


def play(scene: Scene) -> Mapping[str, object]:
    """The new place has every row once, those from before under their place in the file."""
    scene.start()
    scene.api()
    scene.kafka.produce(TOPIC, numbered(OLD, range(BEFORE)))
    scene.kafka.produce(TOPIC, numbered(NEW, range(SINCE)))
    wait_for(
        lambda: (scene.line.rows_written(OLD), scene.line.rows_written(NEW)) == (BEFORE, SINCE),
        SOON_S,
        "the rows of both",
    )
    assert "complete until" in scene.run("python -m ingest status")
    folder, now = scene.folder / "exported", datetime.now(UTC)
    exported = scene.run(
        "python -m query export TENANT FOLDER --stream STREAM --format parquet --from START --to END",
        TENANT=OLD,
        FOLDER=str(folder),
        STREAM=STREAM,
        START=(now - timedelta(days=1)).date().isoformat(),
        END=(now + timedelta(days=1)).date().isoformat(),
    )
    assert f"{BEFORE} rows" in exported
    report = scene.json(
        "python -m ingest backfill files FOLDER/*.parquet --tenant NEW_TENANT --stream STREAM --json",
        FOLDER=str(folder),
        NEW_TENANT=NEW,
        STREAM=STREAM,
    )
    assert (report["rows"], report["dead_letters"], report["failed"]) == (BEFORE, 0, {})
    moved = rows_of_topics(scene.catalog, table_of(NEW))
    live = moved.pop(scene.kafka.topic_id(TOPIC))
    assert (len(live), live.total()) == (SINCE, SINCE)
    (file,) = moved.values()
    assert file == Counter({(0, at): 1 for at in range(BEFORE)})
    found = scene.account()
    scene.run("python -m ingest audit")
    return {**counted(scene.flow, found), "moved": file.total()}
