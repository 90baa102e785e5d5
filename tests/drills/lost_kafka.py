"""The brokers' disk is lost: an empty Kafka comes in its place."""

import shutil
from collections import Counter
from collections.abc import Mapping

from lake.catalog_client import TableName
from tests.drills.support.scene import PARTITIONS, TOPIC, Scene, counted
from tests.faults.crash.identities import Identity, compare, rows_of_topics
from tests.faults.crash.record_flow import RecordFlow

FLUSH_S = "5"


def play(scene: Scene) -> Mapping[str, object]:
    """What was committed stays, what was not is lost, and no new record is taken for an old one."""
    scene.start(flush__interval_s=FLUSH_S, flush__visibility_max_s=FLUSH_S)
    before, topic_id = scene.flow, scene.kafka.topic_id(TOPIC)
    before.end()
    committed = _rows(scene, topic_id)
    _lose(scene)
    scene.sees("FirnServiceDown")
    scene.log_says("ingest", "kafka.trouble")
    scene.log_says("ingest", "_ALL_BROKERS_DOWN")
    flow = _begin_anew(scene)
    found = scene.account(flow)
    scene.all_is_quiet()
    scene.run("python -m ingest status")
    assert "no table is parked" in scene.run("python -m ingest parked list")
    scene.run("python -m ingest audit")
    kept = _rows(scene, topic_id)
    assert all(committed[name] <= kept[name] for name in committed)
    gone = compare(before.good, set(), kept, set())
    assert gone.doubled == 0, gone.details
    return {
        **counted(flow, found),
        "committed_before": sum(map(Counter.total, kept.values())),
        "gone": gone.lost,
    }


def _lose(scene: Scene) -> None:
    """Kafka dies, and its data with it."""
    scene.stack.kill("kafka")
    folder = scene.stack.folder / "kafka"
    shutil.rmtree(folder / "data")
    (folder / "formatted").unlink()


def _begin_anew(scene: Scene) -> RecordFlow:
    """As the page has it; returns the flow of new records."""
    scene.run("systemctl stop firn-ingest")
    scene.run("systemctl start kafka")
    scene.forget_kafka()
    scene.kafka.topic(PARTITIONS, name=TOPIC)
    # Who stops it may have to kill it, as it waits for the brokers; its lease then ends by itself.
    scene.run_once_free("python -m ingest reset-topic TOPIC --yes", busy="an ingester of group", TOPIC=TOPIC)
    scene.run("systemctl start firn-ingest")
    scene.run("systemctl restart firn-ingest-tools")
    flow = scene.new_flow()
    scene.wait_for_rows()
    return flow


def _rows(scene: Scene, topic_id: str) -> dict[TableName, Counter[Identity]]:
    every = {name: rows_of_topics(scene.catalog, name) for name in scene.flow.good}
    return {name: rows.get(topic_id, Counter()) for name, rows in every.items()}
