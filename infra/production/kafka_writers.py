"""Who else may write to Firn's own topics. What is signed is not forged, but it may be sent once more."""

from collections.abc import Collection, Iterator
from typing import NamedTuple

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from infra.production.finding import Finding, ok, unknown, warning
from infra.production.rooms import Rooms
from lake.kafka_connection import connection

NAME = "kafka writers"
ANSWER_S = 10.0
ALLOWED = AclBindingFilter(
    ResourceType.TOPIC,
    None,
    ResourcePatternType.ANY,
    None,
    None,
    AclOperation.ANY,
    AclPermissionType.ALLOW,
)
WRITES = frozenset({"WRITE", "ALL"})
EVERY = "*"


class Allowed(NamedTuple):
    """An operation that somebody may do on a topic, or on all whose names begin so (`PREFIXED`)."""

    principal: str
    pattern: str
    name: str
    operation: str


def look(rooms: Rooms) -> Iterator[Finding]:
    """Asks for Kafka's access lists. Raises KafkaException."""
    own = rooms.ingest.internal_topics
    topics = (own.dead_letters, own.parked, own.replay)
    admin = AdminClient(connection(rooms.ingest))
    told = admin.describe_acls(ALLOWED, request_timeout=ANSWER_S).result()
    kafka = rooms.ingest.kafka
    user = kafka.value("sasl_username") or kafka.value("oauth_client_id")
    yield judge(topics, [_allowed(each) for each in told], f"User:{user}")


def judge(topics: Collection[str], allowed: Collection[Allowed], own: str) -> Finding:
    """`own`: Firn's user, as Kafka calls it."""
    if not allowed:
        # What Kafka's client gives also to who may not know, and where there is no authorizer.
        return unknown(
            NAME,
            "no access list is told: this user needs DESCRIBE of the cluster for it; ask again as an",
            "administrator",
        )
    others = {
        f"{each.principal} to {topic}"
        for each in allowed
        for topic in topics
        if each.principal != own and each.operation in WRITES and _is_about(each, topic)
    }
    if others:
        return warning(
            NAME,
            f"others than {own} may write to Firn's own topics: {', '.join(sorted(others))}; take that right",
            "away",
        )
    return ok(NAME, f"nobody but {own} is let write to Firn's own topics by an access list")


def _allowed(binding: AclBinding) -> Allowed:
    pattern, operation = binding.resource_pattern_type.name, binding.operation.name
    return Allowed(binding.principal, pattern, binding.name, operation)


def _is_about(allowed: Allowed, topic: str) -> bool:
    if allowed.pattern == "PREFIXED":
        return topic.startswith(allowed.name)
    return allowed.name in (topic, EVERY)
