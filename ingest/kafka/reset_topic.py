"""After a topic was re-created: lets the group read the new topic from its start, while no node runs."""

from collections.abc import Sequence
from dataclasses import dataclass

from ingest.kafka.group_offsets import store_offsets
from ingest.kafka.kafka_reader import KafkaPartition, KafkaReader, Stored
from lake.catalog_client import CatalogClient
from lake.errors import NotFoundError, RefusedError, SettingsError
from lake.extras_client import ExtrasClient
from lake.lease import held_group, share_leases
from lake.settings import IngestSettings

STORE_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Reset:
    """What happens to one partition: the offset stored for it and the topic's id it was stored with, and
    where reading will start."""

    partition: KafkaPartition
    stored: int | None
    stored_topic_id: str
    start: int
    end: int

    @property
    def is_needed(self) -> bool:
        """Whether the stored offset belongs to a topic that is gone: it came with another id, or lies beyond
        this one's end."""
        return self.stored is not None and (
            self.stored_topic_id != self.partition.topic_id or self.stored > self.end
        )


def plan_reset(settings: IngestSettings, topic: str, reader: KafkaReader) -> list[Reset]:
    """What resetting a topic would do, per partition. Raises SettingsError, NotFoundError,
    UnavailableError."""
    names = [each.name for each in settings.with_own_topics().topics]
    if topic not in names:
        raise SettingsError(f"{topic} is no input topic; the settings name {', '.join(names) or 'none'}")
    partitions = reader.partitions([topic])
    if not partitions:
        raise NotFoundError(
            f"Kafka at {settings.kafka.bootstrap_servers} has no topic {topic}; create it first"
        )
    stored, ends = reader.stored(partitions), reader.ends(partitions)
    plan = []
    for each in partitions:
        before = stored.get(each)
        plan.append(Reset(each, before and before.offset, before.topic_id if before else "", *ends[each]))
    return plan


def check_no_node(settings: IngestSettings, catalog: CatalogClient) -> None:
    """Raises RefusedError while a node holds the group's lease; behind a catalog without leases nobody can
    tell."""
    if not catalog.has_extras:
        return
    holders = ExtrasClient(catalog).lease_holders()
    for name in share_leases(settings):
        if name in holders:
            raise RefusedError(_refusal(settings) + f" (lease {name} is held by {holders[name]})")


def reset_topic(settings: IngestSettings, plan: Sequence[Reset], catalog: CatalogClient) -> None:
    """Stores the start of every partition as the group's offset, with the topic's id. Raises RefusedError
    while a node runs, UnavailableError.

    What the tables hold of the old topic stays, under the old topic's id; marks are by id, so none of them
    concerns the new topic.
    """
    with held_group(catalog, settings, _refusal(settings)):
        store_offsets(
            settings, {each.partition: Stored(each.start, each.partition.topic_id) for each in plan}
        )


def _refusal(settings: IngestSettings) -> str:
    return (
        f"an ingester of group {settings.kafka.group} runs; stop it (all nodes, standbys too) before its "
        "offsets are changed"
    )
