"""What Firn's user needs in the access lists of Kafka, and no more."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from lake.settings import IngestSettings

# Groups that only read, of tools and of parts of a node, are named after the group that stores offsets.
GROUP_SUFFIXES = ("", ".tools", ".drain", ".tail", ".probe")
OF_INPUT = ("READ", "DESCRIBE", "DESCRIBE_CONFIGS")
# DELETE: of records, when dead letters or parked ones are erased.
OF_OWN = ("READ", "WRITE", "CREATE", "DESCRIBE", "DESCRIBE_CONFIGS", "DELETE")
# Of an input topic besides, into which a service of Firn writes.
OF_SERVICES = ("WRITE", "CREATE")
OF_GROUP = ("READ", "DESCRIBE")


class Grant(NamedTuple):
    """Operations that are allowed on one resource: a `topic` or a `group`, by its whole name."""

    kind: str
    name: str
    operations: Sequence[str]

    def command(self, user: str) -> str:
        """As the arguments of `kafka-acls.sh` behind those that name the brokers."""
        operations = " ".join(f"--operation {each.title().replace('_', '')}" for each in self.operations)
        return f"--add --allow-principal User:{user} {operations} --{self.kind} {self.name}"


def grants(settings: IngestSettings) -> list[Grant]:
    """What nodes, tools and backfill of these settings need."""
    own = settings.internal_topics
    inputs = [topic.name for topic in settings.topics]
    written = [settings.audit.topic, settings.usage.topic]
    services = [Grant("topic", name, OF_SERVICES) for name in written if name in inputs]
    return [*services, *_grants(inputs, settings.kafka.group, own.dead_letters, own.replay, own.parked)]


def _grants(inputs: Sequence[str], group: str, *own: str) -> Iterator[Grant]:
    yield from (Grant("topic", name, OF_INPUT) for name in inputs if name not in own)
    yield from (Grant("topic", name, OF_OWN) for name in own)
    yield from (Grant("group", group + suffix, OF_GROUP) for suffix in GROUP_SUFFIXES)
