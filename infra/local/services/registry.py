"""Apicurio Registry with Confluent's interface and a database in memory: the schema registry of tests."""

from infra.local import jvm_parts
from infra.local.java import MODERN
from infra.local.ports import LOOPBACK
from infra.local.prerequisites import missing_java
from infra.local.service import Launch, Service, Site, java_command, ready_page

HEAP_MB = 384
# Confluent's interface, below which its clients add their paths.
_PATH = "/apis/ccompat/v7"


def _prepare(site: Site) -> Launch:
    server = jvm_parts.folder("registry") / "server"
    java = (*java_command(MODERN, HEAP_MB), "-XX:+UseSerialGC")
    options = {
        "quarkus.http.host": LOOPBACK,
        "quarkus.http.port": site.port,
        "apicurio.storage.kind": "sql",
        "apicurio.storage.sql.kind": "h2",
    }
    return Launch(
        command=(
            *java,
            *(f"-D{name}={value}" for name, value in options.items()),
            "-jar",
            str(server / "quarkus-run.jar"),
        ),
        address=f"http://{LOOPBACK}:{site.port}{_PATH}",
        folder=site.folder,
    )


SERVICE = Service(
    name="registry",
    prepare=_prepare,
    probe=ready_page("/subjects"),
    missing=lambda: missing_java(MODERN),
    parts="registry",
)
