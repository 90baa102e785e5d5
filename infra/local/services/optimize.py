"""Firn's optimize room: table maintenance on Spark. Its other settings come from the environment given at the
start and from firn.toml."""

import os
import sys

from infra.local import class_archives, java, jvm_parts
from infra.local.java import CLASSIC
from infra.local.jvm_parts import REPOSITORY
from infra.local.ports import LOOPBACK
from infra.local.prerequisites import missing_java
from infra.local.service import Launch, Service, Site, catalog_needs, ready_page, storage_needs
from infra.local.services import ingest_serve
from infra.local.state import StackState
from lake.settings import OptimizeSettings

SPARK = "FIRN_OPTIMIZE_SPARK__"


def _needs(stack: StackState) -> tuple[str, ...]:
    return (*storage_needs(stack), *catalog_needs(stack))


def environment() -> dict[str, str]:
    """What Spark needs of this machine: a suitable Java, Iceberg's jars where they are downloaded, and their
    class archive where it is made."""
    jdk, jars = java.find(CLASSIC), jvm_parts.folder("spark")
    variables = {f"{SPARK}JARS": str(jars)} if jars.is_dir() else {}
    if jdk is None:
        return variables
    given = OptimizeSettings.load().spark.java_options
    java_options = " ".join((given, *class_archives.options(class_archives.SPARK)))
    return variables | {
        f"{SPARK}JAVA_HOME": os.fspath(jdk.java.parents[1]),
        f"{SPARK}JAVA_OPTIONS": java_options,
    }


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
