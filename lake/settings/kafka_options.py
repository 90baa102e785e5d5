"""Settings of Kafka's client (librdkafka) that are not for anybody to set: what Firn's promises stand on."""

from collections.abc import Iterable

_BROKERS = "`bootstrap_servers` names the brokers"
_GROUP = "a node reads what it assigns to itself, by the group in `group`"
_COMMITS = "an offset is stored when what lies below it is durable, never by the client"
_POSITIONS = "where reading begins is in the group's offsets and the tables' marks"
_ISOLATION = "records of aborted transactions are never rows"
_CHECKSUMS = "`check_crcs` says whether checksums are compared"
_ACKS = "what Firn sends counts once all replicas in sync have it, in order, once"
_TRANSACTIONS = "commits go to the catalog, not into transactions of Kafka"
_SIZES = "`flush.buffer_bytes_max` and `limits` bound memory; Firn derives what the client may hold"
_CALLBACKS = "it is code, or goes to code, of Firn's own"

# Each by its whole name, or by how names begin (with a dot at the end), and why.
RESERVED = {
    "bootstrap.servers": _BROKERS,
    "metadata.broker.list": _BROKERS,
    "group.": _GROUP,
    "partition.assignment.strategy": _GROUP,
    "max.poll.interval.ms": _GROUP,
    "session.timeout.ms": _GROUP,
    "heartbeat.interval.ms": _GROUP,
    "topic.blacklist": _GROUP,
    "max.poll.records": _GROUP,
    "share.": _GROUP,
    "allow.auto.create.topics": "topics are made by who owns them, Firn's own by Firn",
    "enable.auto.commit": _COMMITS,
    "auto.commit.": _COMMITS,
    "auto.commit.enable": _COMMITS,
    "enable.auto.offset.store": _COMMITS,
    "offset.store.": _COMMITS,
    "auto.offset.reset": _POSITIONS,
    "enable.partition.eof": _POSITIONS,
    "consume.callback.max.messages": _POSITIONS,
    "isolation.level": _ISOLATION,
    "check.crcs": _CHECKSUMS,
    "acks": _ACKS,
    "request.required.acks": _ACKS,
    "request.timeout.ms": _ACKS,
    "enable.idempotence": _ACKS,
    "enable.gapless.guarantee": _ACKS,
    "max.in.flight": _ACKS,
    "max.in.flight.requests.per.connection": _ACKS,
    "message.timeout.ms": _ACKS,
    "delivery.timeout.ms": _ACKS,
    "message.send.max.retries": _ACKS,
    "retries": _ACKS,
    "queuing.strategy": _ACKS,
    "partitioner": _ACKS,
    "delivery.report.only.error": _ACKS,
    "produce.offset.report": _ACKS,
    "compression.": _SIZES,
    "linger.ms": _SIZES,
    "queue.buffering.": _SIZES,
    "queued.": _SIZES,
    "batch.": _SIZES,
    "message.max.bytes": _SIZES,
    "message.copy.max.bytes": _SIZES,
    "receive.message.max.bytes": _SIZES,
    "fetch.": _SIZES,
    "max.partition.fetch.bytes": _SIZES,
    "transaction.": _TRANSACTIONS,
    "transactional.id": _TRANSACTIONS,
    "plugin.": _CALLBACKS,
    "default.topic.config": _CALLBACKS,
    "interceptors": _CALLBACKS,
    "opaque": _CALLBACKS,
    "internal.": _CALLBACKS,
    "logger": _CALLBACKS,
    "log.queue": _CALLBACKS,
    "statistics.interval.ms": _CALLBACKS,
}


def check_options(names: Iterable[str]) -> None:
    """Raises ValueError that names what cannot be set, each with its reason."""
    if refused := {name: reason for name in names if (reason := _reason(name))}:
        told = "; ".join(f"{name} cannot be set: {reason}" for name, reason in sorted(refused.items()))
        raise ValueError(told)


def _reason(name: str) -> str | None:
    if "_" in name:  # callbacks, and what only a program can give
        return _CALLBACKS
    beginnings = (
        reason for start, reason in RESERVED.items() if start.endswith(".") and name.startswith(start)
    )
    return RESERVED.get(name) or next(beginnings, None)
