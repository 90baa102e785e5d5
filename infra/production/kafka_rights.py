"""Whether Firn's user may do in Kafka what it has to, and no more."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from infra.production.finding import Finding, ok, unknown, unsafe
from infra.production.rooms import Rooms
from lake.kafka_access_list import Grant, grants
from lake.kafka_connection import connection

NAME = "kafka rights"
ANSWER_S = 10.0
DENIED = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED)
# The last ones are of a broker that has just started: it looks for its groups.
NOT_THERE = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.GROUP_ID_NOT_FOUND,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
)
# Operations by which a user changes what a topic is, or takes it away; on a Kafka without an authorizer
# everybody may.
EVERYTHING = frozenset({"ALTER", "ALTER_CONFIGS", "DELETE", "WRITE", "CREATE"})
DO = "python -m ingest access-list prints what it needs"


def look(rooms: Rooms) -> Iterator[Finding]:
    """Asks what this user may do with each topic and group that Firn uses. Raises KafkaException."""
    admin = AdminClient(connection(rooms.ingest))
    wanted = grants(rooms.ingest)
    topics = sorted({each.name for each in wanted if each.kind == "topic"})
    groups = sorted({each.name for each in wanted if each.kind == "group"})
    asked: dict[str, Any] = {
        "topic": admin.describe_topics(
            TopicCollection(topics), include_authorized_operations=True, request_timeout=ANSWER_S
        ),
        "group": admin.describe_consumer_groups(
            groups, include_authorized_operations=True, request_timeout=ANSWER_S
        ),
    }
    allowed = {
        (kind, name): _operations(answer)
        for kind, answers in asked.items()
        for name, answer in answers.items()
    }
    yield judge(wanted, {place: each for place, each in allowed.items() if each is not None})


def judge(wanted: Collection[Grant], allowed: Mapping[tuple[str, str], Collection[str]]) -> Finding:
    """`allowed`: operations by kind and name of a resource; one that does not exist is not there."""
    needed: dict[tuple[str, str], set[str]] = {}
    for each in wanted:
        needed.setdefault((each.kind, each.name), set()).update(each.operations)
    known = {place: operations for place, operations in needed.items() if place in allowed}
    missing = [
        f"{kind} {name}: {', '.join(sorted(lacks))}"
        for (kind, name), operations in known.items()
        if (lacks := operations - set(allowed[kind, name]))
    ]
    if missing:
        return unsafe(NAME, f"Firn's user may not {'; '.join(missing)}; {DO}")
    beyond = [
        name
        for (kind, name), operations in known.items()
        if kind == "topic" and EVERYTHING - operations <= set(allowed[kind, name]) - operations
    ]
    if beyond:
        return unsafe(
            NAME,
            f"Firn's user may do everything to {', '.join(beyond)}, and without an authorizer so may",
            "everybody;",
            f"switch access lists on, and allow no more than Firn needs: {DO}",
        )
    if absent := sorted(name for _, name in needed.keys() - known.keys()):
        return unknown(
            NAME,
            f"nothing is known of {', '.join(absent)}, which Kafka does not have or find yet; ask again when",
            "they are there",
        )
    return ok(NAME, f"Firn's user may do what it has to with {len(known)} topics and groups, no more")


def _operations(answer: Any) -> Collection[str] | None:
    """None: there is no such topic or group, or not yet."""
    try:
        told = answer.result()
    except KafkaException as error:
        if error.args[0].code() in DENIED:
            return ()
        if error.args[0].code() in NOT_THERE:
            return None
        raise
    return [each.name for each in told.authorized_operations or ()]
