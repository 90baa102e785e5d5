"""Firn's optimize room: table maintenance on Spark. Its other settings come from the environment given at the
start and from firn.toml."""

import os
import sys

from infra.local import java, jvm_parts
from infra.local.java import CLASSIC
from infra.local.jvm_parts import REPOSITORY
from infra.local.ports import LOOPBACK
from infra.local.prerequisites import missing_java
from infra.local.service import Launch, Service, Site, catalog_needs, ready_page, storage_needs
from infra.local.services import ingest_serve
from infra.local.state import StackState


def _needs(stack: StackState) -> tuple[str, ...]:
    return (*storage_needs(stack), *catalog_needs(stack))


def environment() -> dict[str, str]:
    """What Spark needs of this machine: a suitable Java, and Iceberg's jars where they are downloaded."""
    jdk, jars = java.find(CLASSIC), jvm_parts.folder("spark")
    variables = {"FIRN_OPTIMIZE_SPARK__JAVA_HOME": os.fspath(jdk.java.parents[1])} if jdk else {}
    return variables | ({"FIRN_OPTIMIZE_SPARK__JARS": str(jars)} if jars.is_dir() else {})


def _prepare(site: Site) -> Launch:
    ingest = ingest_serve.address(site.stack)
    lag = {"FIRN_OPTIMIZE_LAG__INGEST_URIS": f'["{ingest}"]'} if ingest else {}
    return Launch(
        command=(sys.executable, "-m", "optimize", "run"),
        address=f"http://{LOOPBACK}:{site.port}",
        folder=REPOSITORY,
        exports=environment(),
        environment={**environment(), **lag, "FIRN_OPTIMIZE_HTTP__PORT": str(site.port)},
    )


SERVICE = Service(
    name="optimize",
    prepare=_prepare,
    probe=ready_page("/metrics"),
    missing=lambda: missing_java(CLASSIC),
    needs=_needs,
    parts="spark",
    grace_s=60.0,
)
