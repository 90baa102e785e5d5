"""Trino: one node that is coordinator and worker, with the Iceberg catalog `lake` over the stack's REST
catalog."""

import httpx

from infra.local import class_archives, jvm_parts, trino_access
from infra.local.java import MODERN
from infra.local.ports import LOOPBACK
from infra.local.prerequisites import missing_java
from infra.local.service import (
    PROBE_TIMEOUT_S,
    Launch,
    Service,
    Site,
    catalog_needs,
    java_command,
    storage_needs,
)
from infra.local.state import StackState
from lake.settings import InfraSettings

# One that answers few people takes a third less memory without a collector that works beside it.
QUICK_COLLECTOR = ("-XX:+UseSerialGC",)
COLLECTOR = ("-XX:+UseG1GC", "-XX:G1HeapRegionSize=16M")
JVM_OPTIONS = (
    "-XX:ReservedCodeCacheSize=256M",
    "-Djdk.attach.allowAttachSelf=true",
    "-Djdk.nio.maxCachedBufferSize=2000000",
    "-XX:+EnableDynamicAgentLoading",
    # else it starts a second JVM to look at itself, which costs more than Trino's own start
    "-Djol.skipHotspotSAAttach=true",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
)
PROBE_STATEMENT = (
    "SELECT count(*) FROM UNNEST(sequence(1, 10)) AS t (n) WHERE n > 3"  # it takes a worker to answer this
)


def _needs(stack: StackState) -> tuple[str, ...]:
    return (*storage_needs(stack), *catalog_needs(stack))


def _server_properties(site: Site, plugins: str, heap_mb: int) -> list[str]:
    query_mb = (
        heap_mb * 6 // 10
    )  # Trino keeps 30 % of the heap as headroom and refuses to start when both exceed it
    return [
        "coordinator=true",
        "node-scheduler.include-coordinator=true",
        f"http-server.http.port={site.port}",
        f"discovery.uri=http://{LOOPBACK}:{site.port}",
        f"query.max-memory-per-node={query_mb}MB",
        f"query.max-memory={query_mb}MB",
        f"plugin.dir={plugins}",
    ]


def lake_properties(site: Site, settings: InfraSettings) -> list[str]:
    """Returns the lines of Trino's catalog over the tables of a stack."""
    token = settings.trino.catalog_token
    # With users it only reads: Trino's rules cannot refuse ALTER TABLE ... EXECUTE, its catalog can.
    read_only = ["iceberg.security=READ_ONLY"] if settings.trino.access is not None else []
    with_key = (
        [
            "iceberg.rest-catalog.security=OAUTH2",
            f"iceberg.rest-catalog.oauth2.token={token.get_secret_value()}",
        ]
        if token is not None
        else []
    )
    lines = [
        "connector.name=iceberg",
        "iceberg.catalog.type=rest",
        f"iceberg.rest-catalog.uri={site.catalog_uri}",
        # Names are stored in lower case already; with matching on, Trino would cache them and miss new tables
        # for a while.
        "iceberg.rest-catalog.case-insensitive-name-matching=false",
        *read_only,
        *with_key,
    ]
    if not site.stack.warehouse.startswith("s3://"):
        return [*lines, "fs.native-local.enabled=true", "local.location=/"]
    s3 = site.stack.record("s3").exports
    return [
        *lines,
        "fs.native-s3.enabled=true",
        f"s3.endpoint={s3['FIRN_STORAGE_S3__ENDPOINT']}",
        f"s3.region={s3['FIRN_STORAGE_S3__REGION']}",
        "s3.path-style-access=true",
        f"s3.aws-access-key={s3['FIRN_STORAGE_S3__ACCESS_KEY_ID']}",
        f"s3.aws-secret-key={s3['FIRN_STORAGE_S3__SECRET_ACCESS_KEY']}",
    ]


def _prepare(site: Site) -> Launch:
    server = jvm_parts.folder("trino") / "server"
    settings = InfraSettings.load()
    access, heap_mb = settings.trino.access, settings.trino.heap_mb
    plugins = server / "plugin" if access is None else trino_access.link_plugins(site, server / "plugin")
    users = [] if access is None else trino_access.server_properties(site, access)
    config = site.write("etc/config.properties", [*_server_properties(site, str(plugins), heap_mb), *users])
    # Where it looks for catalogs when nothing is said, from the folder that it starts in.
    site.write("etc/catalog/lake.properties", lake_properties(site, settings))
    levels = site.write("etc/log.properties", ["io.trino=INFO"])
    node = {
        "node.environment": "firn",
        "node.id": "firn-local",
        "node.data-dir": str(site.folder / "data"),
        "node.bind-ip": LOOPBACK,
        "node.internal-address": LOOPBACK,
        "config": str(config),
        "log.levels-file": str(levels),
    }
    options = tuple(f"-D{name}={value}" for name, value in node.items())
    address = (
        f"http://{LOOPBACK}:{site.port}" if access is None else f"https://{LOOPBACK}:{site.ports['https']}"
    )
    trusted = (
        {}
        if access is None
        else {
            "FIRN_QUERY_TRINO__CA": str(trino_access.certificate_file(site)),
            "FIRN_QUERY_TRINO__ACCESS": str(access.absolute()),
        }
    )
    return Launch(
        command=(
            *java_command(MODERN, heap_mb),
            *(QUICK_COLLECTOR if settings.quick_java else COLLECTOR),
            *JVM_OPTIONS,
            *class_archives.options("trino"),
            *options,
            "-cp",
            f"{server}/lib/*",
            "io.trino.server.TrinoServer",
        ),
        address=address,
        folder=site.folder,
        exports={"FIRN_QUERY_TRINO__URI": address, **trusted},
    )


def _probe(address: str) -> str | None:
    try:
        # Whether it has started, no more: nothing is sent that a certificate would have to guard.
        answer = httpx.get(f"{address}/v1/info", timeout=PROBE_TIMEOUT_S, trust_env=False, verify=False)  # noqa: S501
        starting = answer.json()["starting"] if answer.status_code == httpx.codes.OK else True
        if starting:
            return "the server is starting"
        return (
            None if address.startswith("https:") else _refusal(address)
        )  # with users, nobody may ask without a password
    except (httpx.HTTPError, ValueError, KeyError) as error:
        return f"{type(error).__name__}: {error}"


def _refusal(address: str) -> str | None:
    """Why it does not run queries yet: for some moments after its start it has not found itself as a
    worker."""
    with httpx.Client(
        timeout=PROBE_TIMEOUT_S, trust_env=False, headers={"X-Trino-User": "firn-probe"}
    ) as client:
        answer = client.post(f"{address}/v1/statement", content=PROBE_STATEMENT).json()
        while "nextUri" in answer:
            answer = client.get(answer["nextUri"]).json()
    return str(answer["error"]["message"]) if "error" in answer else None


SERVICE = Service(
    name="trino",
    prepare=_prepare,
    probe=_probe,
    missing=lambda: missing_java(MODERN),
    needs=_needs,
    parts="trino",
    ports=("port", "https"),
    ready_timeout_s=240.0,
    grace_s=60.0,  # what is recorded of its classes is written at its end
)
