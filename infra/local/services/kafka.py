"""Apache Kafka: one KRaft node, broker and controller in one process."""

import base64
import secrets
import shlex
import uuid
from pathlib import Path

from infra.local import class_archives, jvm_parts, kafka_access
from infra.local.java import CLASSIC
from infra.local.ports import LOOPBACK, is_listening
from infra.local.prerequisites import missing_java
from infra.local.service import PROBE_TIMEOUT_S, Launch, Service, Site, host_port, java_command
from lake.settings import InfraSettings

TOPIC_KEYS = "FIRN_INGEST_INTERNAL_TOPICS__SIGNING_KEYS"
# Topics may allow large messages each (max.message.bytes); the broker's own limits only have to be ample.
MESSAGE_BYTES_MAX = 32 * 1024 * 1024
LOG_OPTIONS = (
    "-Dorg.slf4j.simpleLogger.logFile=System.out",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSSXXX",
    "-Dorg.slf4j.simpleLogger.levelInBrackets=true",
)


def _properties(site: Site, access: Path | None) -> list[str]:
    controller = site.ports["controller"]
    return [
        *(_listeners(site) if access is None else kafka_access.listeners(site)),
        *(() if access is None else kafka_access.server_properties(access)),
        "process.roles=broker,controller",
        "node.id=1",
        # A static quorum: unlike a dynamic one it lets the controller's port change between two starts.
        f"controller.quorum.voters=1@{LOOPBACK}:{controller}",
        "controller.listener.names=CONTROLLER",
        f"log.dirs={site.folder / 'data'}",
        "offsets.topic.replication.factor=1",
        "offsets.topic.num.partitions=1",
        "transaction.state.log.replication.factor=1",
        "transaction.state.log.min.isr=1",
        "transaction.state.log.num.partitions=1",
        "share.coordinator.state.topic.replication.factor=1",
        "share.coordinator.state.topic.min.isr=1",
        "share.coordinator.state.topic.num.partitions=1",
        "group.initial.rebalance.delay.ms=0",
        # A killed broker is let in again only when its old session is over; the default is 9 s.
        "broker.session.timeout.ms=5000",
        "broker.heartbeat.interval.ms=1000",
        # Records that say that nothing has changed, twice a second by default, are for other brokers.
        "metadata.max.idle.interval.ms=5000",
        "auto.create.topics.enable=false",
        "delete.topic.enable=true",
        f"message.max.bytes={MESSAGE_BYTES_MAX}",
        f"replica.fetch.max.bytes={MESSAGE_BYTES_MAX}",
        f"socket.request.max.bytes={4 * MESSAGE_BYTES_MAX}",
        "log.cleaner.dedupe.buffer.size=16777216",
        "num.io.threads=4",
        "num.network.threads=2",
    ]


def _listeners(site: Site) -> list[str]:
    """Open: whoever reaches this machine's loopback may do everything."""
    return [
        f"listeners=PLAINTEXT://{LOOPBACK}:{site.port},CONTROLLER://{LOOPBACK}:{site.ports['controller']}",
        f"advertised.listeners=PLAINTEXT://{LOOPBACK}:{site.port}",
        "inter.broker.listener.name=PLAINTEXT",
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    ]


def _topic_keys(site: Site) -> str:
    """The same secret for every start of this stack, and another one for each stack: what Firn writes into
    its own topics is signed with it."""
    return site.stack.record("kafka").exports.get(TOPIC_KEYS) or f'["{secrets.token_hex(32)}"]'


def _prepare(site: Site) -> Launch:
    libs = jvm_parts.folder("kafka")
    settings = InfraSettings.load().kafka
    properties = site.write("server.properties", _properties(site, settings.access))
    command = java_command(CLASSIC, settings.heap_mb)
    kafka = (*command, "-XX:+UseSerialGC", *class_archives.options("kafka"), *LOG_OPTIONS, "-cp", f"{libs}/*")
    address = f"{LOOPBACK}:{site.port}"
    return Launch(
        command=(*kafka, "kafka.Kafka", str(properties)),
        address=address,
        folder=site.folder,
        exports={
            "FIRN_INGEST_KAFKA__BOOTSTRAP_SERVERS": address,
            TOPIC_KEYS: _topic_keys(site),
            **({} if settings.access is None else kafka_access.exports(settings.access)),
        },
        steps=() if (site.folder / "formatted").exists() else _format(kafka, str(properties)),
    )


def _format(java: tuple[str, ...], properties: str) -> tuple[str, ...]:
    """Formats the data folder; one that was left half formatted is thrown away first (it cannot hold a
    message yet)."""
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "_")
    return (
        "rm -rf data",
        shlex.join((*java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", properties)),
        "touch formatted",
    )


def _probe(address: str) -> str | None:
    if not is_listening(host_port(address)[1]):
        return "it does not listen yet"
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    # log_level 0: librdkafka would print every refused connection of a broker that is still starting
    client = AdminClient(
        {
            **kafka_access.administrator(address),
            "log_level": 0,
            "socket.timeout.ms": int(PROBE_TIMEOUT_S * 1000),
        }
    )
    try:
        brokers = client.list_topics(timeout=PROBE_TIMEOUT_S).brokers
    except KafkaException as error:
        return f"metadata request: {error.args[0].str()}"
    return None if brokers else "no broker is registered yet"


SERVICE = Service(
    name="kafka",
    prepare=_prepare,
    probe=_probe,
    missing=lambda: missing_java(CLASSIC),
    parts="kafka",
    ports=("port", "controller", "mutual"),
)
