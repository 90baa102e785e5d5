"""Whether Kafka is spoken to by TLS, and by whom."""

from collections.abc import Iterator

from infra.production.finding import Finding, ok, unsafe, warning
from infra.production.rooms import Rooms
from lake.listening import is_loopback

NAME = "kafka transport"
DISABLED = {"enable.ssl.certificate.verification": "false", "ssl.endpoint.identification.algorithm": "none"}


def look(rooms: Rooms) -> Iterator[Finding]:
    """The settings of the client."""
    kafka = rooms.ingest.kafka
    options = {name: value.get_secret_value() for name, value in kafka.options.items()}
    yield judge(kafka.value("security_protocol").upper() or "PLAINTEXT", kafka.bootstrap_servers, options)


def judge(protocol: str, servers: str, options: dict[str, str]) -> Finding:
    """`servers`: host:port separated by commas; `options`: more of librdkafka's."""
    if off := [name for name, value in DISABLED.items() if options.get(name, "").lower() == value]:
        return unsafe(
            NAME, f"kafka.options has {', '.join(off)}, so that anybody may pass for a broker; take it out"
        )
    if protocol in ("SSL", "SASL_SSL"):
        return ok(NAME, f"brokers are reached by {protocol}")
    on_this_machine = all(is_loopback(each.strip().rpartition(":")[0]) for each in servers.split(","))
    tell = warning if on_this_machine else unsafe
    return tell(
        NAME,
        f"records and passwords reach {servers} in the open ({protocol});",
        "set ingest.kafka.security_protocol to SASL_SSL or SSL",
    )
