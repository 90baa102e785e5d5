"""Whether Firn's own topics keep what they hold, and survive a broker."""

from collections.abc import Iterator, Mapping

from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from infra.production.finding import Finding, ok, unsafe, warning
from infra.production.rooms import Rooms
from lake.kafka_connection import connection

NAME = "kafka topics"
ANSWER_S = 10.0
RETENTION, CLEANUP = "retention.ms", "cleanup.policy"


def look(rooms: Rooms) -> Iterator[Finding]:
    """Asks for Firn's topics, those that are there. Raises KafkaException."""
    admin = AdminClient(connection(rooms.ingest))
    own = rooms.ingest.internal_topics
    known = admin.list_topics(timeout=ANSWER_S).topics
    for name in sorted({own.dead_letters, own.parked, own.replay} & known.keys()):
        (answer,) = admin.describe_configs(
            [ConfigResource(ResourceType.TOPIC, name)], request_timeout=ANSWER_S
        ).values()
        told = answer.result()
        copies = min(len(each.replicas) for each in known[name].partitions.values())
        settings = {key: told[key].value for key in (RETENTION, CLEANUP)}
        yield judge(name, settings, copies, keeps_for_ever=name == own.parked)


def judge(name: str, settings: Mapping[str, str], copies: int, *, keeps_for_ever: bool) -> Finding:
    """`copies`: replicas of the partition that has fewest; `keeps_for_ever`: nothing else has what it
    holds."""
    if keeps_for_ever and (settings[RETENTION] != "-1" or settings[CLEANUP] != "delete"):
        return unsafe(
            NAME, f"{name} loses records that wait for their tables; set {RETENTION}=-1 and {CLEANUP}=delete"
        )
    if copies < 2:
        return warning(NAME, f"{name} has one copy, which goes with its broker; give it three replicas")
    return ok(NAME, f"{name} has {copies} copies")
