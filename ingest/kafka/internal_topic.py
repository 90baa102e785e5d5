"""Firn's own topics (dead letters, replays): created and verified, so that they keep every message for ever
and take large ones."""

from collections.abc import Mapping
from typing import Any

import stamina
import structlog
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from ingest.kafka.kafka_client import admin_client
from ingest.kafka.kafka_trouble import Right, unavailable
from lake.errors import PrerequisiteError, UnavailableError
from lake.settings import MIB, IngestSettings

MESSAGE_BYTES_MAX = 16 * MIB
# What key, headers and framing may need beside the body.
ENVELOPE_BYTES = MIB
_CONFIG = {
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "max.message.bytes": str(MESSAGE_BYTES_MAX),
    "cleanup.policy": "delete",
    "message.timestamp.type": "CreateTime",  # a replayed message keeps the time of the first one
}
log = structlog.get_logger()


def ensure_topic(
    settings: IngestSettings, name: str, partitions: int = 1, *, config: Mapping[str, str] = _CONFIG
) -> None:
    """Creates a topic, or makes sure that one which exists is configured as it has to be, whatever its
    partitions: to lose nothing, unless `config` says something else.

    Raises PrerequisiteError with the command that mends it, UnavailableError.
    """
    admin = admin_client(settings)
    created = False
    try:
        if name not in admin.list_topics(timeout=30).topics:
            admin.create_topics(
                [NewTopic(name, num_partitions=partitions, replication_factor=-1, config=dict(config))]
            )[name].result()
            created = True
            log.info("topic.created", topic=name)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise unavailable(
                settings,
                f"neither has nor creates topic {name}",
                error,
                Right("CREATE (and DESCRIBE)", f"topic {name}"),
                admin,
            ) from error
    wrong = _wrong_settings(admin, settings, name, config, created=created)
    if wrong:
        wanted = ",".join(f"{key}={value}" for key, value in config.items() if key in wrong)
        raise PrerequisiteError(
            f"topic {name} could lose messages ({wrong}); run kafka-configs.sh --alter --topic {name} "
            f"--add-config {wanted}"
        )


# A topic just created is not known to every part of the broker at once, nor is how it is configured.
@stamina.retry(on=UnavailableError, attempts=8, timeout=30.0)
def _wrong_settings(
    admin: AdminClient, settings: IngestSettings, name: str, config: Mapping[str, str], *, created: bool
) -> Mapping[str, Any]:
    """Values by key of what is not as it has to be."""
    resource = ConfigResource(ResourceType.TOPIC, name)
    try:
        found = admin.describe_configs([resource])[resource].result()
    except KafkaException as error:
        raise unavailable(
            settings,
            f"does not describe topic {name}",
            error,
            Right("DESCRIBE_CONFIGS", f"topic {name}"),
            admin,
        ) from error
    wrong = {key: found[key].value for key, value in config.items() if found[key].value != value}
    if wrong and created:
        raise UnavailableError(
            f"Kafka at {settings.kafka.bootstrap_servers} has created topic {name} and does not know its "
            f"configuration yet ({wrong})"
        )
    return wrong
