"""A producer sends records without a tenant, and a batch that nobody can decompress."""

import re
from collections.abc import Mapping

import orjson

from lake.catalog_client import TableName
from lake.tenant import to_identifier
from tests.drills.support.scene import PARTITIONS, TOPIC, Scene, counted
from tests.faults.crash.identities import rows
from tests.security.support.hostile_batches import ZSTD, Wire, batch, record
from tests.stack.support.kafka_topics import Record
from tests.stack.support.waiting import wait_for

POISON, REASON, TENANT = 600, "tenant_missing", "Nobody-Said"
BOMB_BYTES = 150 * 1024 * 1024  # of zeros, which are 5 kB as they are sent
ID = re.compile(r"\b\d+:\d+\b")
REPLAYED_S = 60.0


def play(scene: Scene) -> Mapping[str, object]:
    """The others go on; what the rules could not place becomes rows under better ones."""
    scene.start()
    poison = [Record(orjson.dumps({"n": n}), partition=n % PARTITIONS) for n in range(POISON)]
    places = {(place.partition, place.offset) for place in scene.kafka.produce(TOPIC, poison)}
    bomb = batch([record(0, bytes(BOMB_BYTES))], codec=ZSTD)
    Wire(scene.kafka.bootstrap_servers).produce(TOPIC, bomb)
    scene.wait_for_rows()
    scene.sees("FirnDeadLettersRise")
    scene.sees("FirnBatchesUnreadable")
    _look(scene)
    rules = ["header:tenant", f"const:{TENANT}"]
    scene.set(topics=orjson.dumps([{"name": TOPIC, "tenant": rules}]).decode())
    scene.run("systemctl restart firn-ingest firn-ingest-tools")
    assert f"{POISON}" in scene.run(
        "python -m ingest dead-letters replay --reason REASON --dry-run", REASON=REASON
    )
    scene.run("python -m ingest dead-letters replay --reason REASON", REASON=REASON)
    name, topic_id = TableName(to_identifier(TENANT), "logs"), scene.kafka.topic_id(TOPIC)
    wait_for(lambda: scene.line.rows_written(TENANT) >= POISON, REPLAYED_S, "the replayed dead letters")
    replayed = rows(scene.catalog, name, topic_id)
    assert (set(replayed), set(replayed.values())) == (places, {1})
    found = scene.account()
    scene.run("python -m ingest audit")
    return {**counted(scene.flow, found), "replayed": replayed.total()}


def _look(scene: Scene) -> None:
    """The list, one dead letter, and what becomes of it and why."""
    listed = scene.run("python -m ingest dead-letters list --reason REASON --limit 5", REASON=REASON)
    message, found = scene.folder / "message", ID.search(listed)
    assert found is not None, listed
    scene.run("python -m ingest dead-letters show ID --raw > MESSAGE", ID=found[0], MESSAGE=str(message))
    assert b'"n"' in message.read_bytes()
    explained = scene.run(
        "python -m ingest explain-message --topic TOPIC --file MESSAGE", TOPIC=TOPIC, MESSAGE=str(message)
    )
    assert REASON in explained
