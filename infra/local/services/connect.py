"""Kafka Connect's standalone worker with Debezium's connector for PostgreSQL: the source of real change
streams in tests.

The worker starts without a connector; its REST interface takes one (`POST /connectors`). It forgets that when
it ends, but keeps in a file how far the connector was.
"""

from pathlib import Path

from infra.local import jvm_parts
from infra.local.java import CLASSIC
from infra.local.ports import LOOPBACK
from infra.local.prerequisites import missing_java
from infra.local.service import Launch, Service, Site, java_command, ready_page
from infra.local.services.kafka import LOG_OPTIONS

HEAP_MB = 512
NEEDS = ("kafka", "postgres")
_CONVERTER = "org.apache.kafka.connect.json.JsonConverter"


def offsets_file(state_folder: Path) -> Path:
    """Where the worker of a stack notes how far its connectors are."""
    return state_folder / "connect" / "offsets"


def _properties(site: Site) -> list[str]:
    return [
        f"bootstrap.servers={site.stack.record('kafka').address}",
        f"listeners=http://{LOOPBACK}:{site.port}",
        f"plugin.path={jvm_parts.folder('connect') / 'plugins'}",
        # By what their jars say they hold: else every class of them is looked through.
        "plugin.discovery=service_load",
        f"offset.storage.file.filename={offsets_file(site.state_folder)}",
        "offset.flush.interval.ms=500",
        # With the schema part: it names the types of the source.
        f"key.converter={_CONVERTER}",
        f"value.converter={_CONVERTER}",
        "key.converter.schemas.enable=true",
        "value.converter.schemas.enable=true",
        "producer.linger.ms=5",
    ]


def _prepare(site: Site) -> Launch:
    libs = jvm_parts.folder("connect")
    properties = site.write("worker.properties", _properties(site))
    java = (*java_command(CLASSIC, HEAP_MB), "-XX:+UseSerialGC", *LOG_OPTIONS, "-cp", f"{libs}/*")
    return Launch(
        command=(*java, "org.apache.kafka.connect.cli.ConnectStandalone", str(properties)),
        address=f"http://{LOOPBACK}:{site.port}",
        folder=site.folder,
    )


SERVICE = Service(
    name="connect",
    prepare=_prepare,
    probe=ready_page("/connectors"),
    missing=lambda: missing_java(CLASSIC),
    needs=lambda _: NEEDS,
    parts="connect",
)
