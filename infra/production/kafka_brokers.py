"""Settings of the brokers on which Firn's offsets and topics depend."""

from collections.abc import Iterator, Mapping

from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from infra.production.finding import Finding, ok, unsafe, warning
from infra.production.rooms import Rooms
from lake.kafka_connection import connection

NAME = "kafka brokers"
ANSWER_S = 10.0
OFFSETS, CREATES = "offsets.retention.minutes", "auto.create.topics.enable"
# Kafka's own: a group may be away for a week.
OFFSETS_MINUTES_MIN = 7 * 24 * 60


def look(rooms: Rooms) -> Iterator[Finding]:
    """Asks each broker. Raises KafkaException, also where this user may not know."""
    admin = AdminClient(connection(rooms.ingest))
    brokers = admin.list_topics(timeout=ANSWER_S).brokers
    resources = [ConfigResource(ResourceType.BROKER, str(broker)) for broker in sorted(brokers)]
    for resource, answer in admin.describe_configs(resources, request_timeout=ANSWER_S).items():
        told = answer.result()
        yield judge(resource.name, {name: told[name].value for name in (OFFSETS, CREATES) if name in told})


def judge(broker: str, settings: Mapping[str, str]) -> Finding:
    """`settings`: those of a broker that matter here, as it tells them."""
    minutes = int(settings.get(OFFSETS, OFFSETS_MINUTES_MIN))
    if minutes < OFFSETS_MINUTES_MIN:
        return unsafe(
            NAME,
            f"broker {broker} forgets offsets of a group after {minutes} minutes: what comes while ingestion",
            'is down for longer is left out where a topic has start = "latest"; set',
            f"{OFFSETS} to {OFFSETS_MINUTES_MIN} or more",
        )
    if settings.get(CREATES) == "true":
        return warning(
            NAME, f"broker {broker} makes a topic of every name that is misspelt; set {CREATES}=false"
        )
    return ok(NAME, f"broker {broker} keeps offsets of groups for {minutes // 1440} days")
