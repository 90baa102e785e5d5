"""What the chart has to be told beside the settings of the rooms: images, pods, and who may talk to whom."""

from typing import Annotated, Any, Literal

from pydantic import Field

from lake.settings.group import SettingsGroup

VERSION = "0.1.0"


class Images(SettingsGroup):
    """Where the images come from that infra/images builds."""

    registry: Annotated[
        str,
        Field(description="what stands before an image's name, like registry.example/team; empty: nothing"),
    ] = ""
    tag: Annotated[str, Field(description="tag of all images")] = VERSION
    pull: Annotated[
        Literal["IfNotPresent", "Always", "Never"], Field(description="when a node fetches an image")
    ] = "IfNotPresent"
    secrets: Annotated[tuple[str, ...], Field(description="names of Secrets that the registry asks for")] = ()


class Program(SettingsGroup):
    """Pods of one program."""

    replicas: Annotated[
        int, Field(description="pods; of ingestion and maintenance one works, others stand by", ge=0)
    ]
    cpu: Annotated[str, Field(description="processor time that is set aside for a pod")]
    memory_mib: Annotated[
        int | None, Field(description="memory of a pod in MiB; empty: what its settings come to", ge=64)
    ] = None
    volume_gib: Annotated[
        int | None,
        Field(description="GiB of the volume that each pod keeps its state on; empty: none is kept", ge=1),
    ] = None
    pod: Annotated[
        dict[str, Any], Field(description="more of its pods' spec: nodeSelector, tolerations, affinity")
    ] = {}


class Programs(SettingsGroup):
    """The programs, by the names that their objects end with."""

    catalog: Program = Program(replicas=2, cpu="500m", volume_gib=1)
    ingest: Program = Program(replicas=2, cpu="1", volume_gib=20)
    tools: Program = Program(replicas=1, cpu="250m")
    optimize: Program = Program(replicas=2, cpu="2", volume_gib=50)
    query: Program = Program(replicas=1, cpu="1", volume_gib=50)
    ui: Program = Program(replicas=1, cpu="250m")


class Executors(SettingsGroup):
    """Executors of Spark, where the master in a room's settings begins with k8s://."""

    count: Annotated[int, Field(description="executors", ge=1)] = 2
    cores: Annotated[int, Field(description="tasks that one runs at once", ge=1)] = 2
    heap_mib: Annotated[int, Field(description="Java heap of one, MiB", ge=512)] = 2048
    overhead_mib: Annotated[
        int, Field(description="memory of one beside its heap, MiB: Python's, which holds the rows", ge=384)
    ] = 4096


class SparkExecutors(SettingsGroup):
    """Executors that Spark starts on Kubernetes."""

    ingest: Executors = Executors()
    optimize: Executors = Executors()


class Outside(SettingsGroup):
    """Something that Firn calls outside of the chart."""

    ports: Annotated[tuple[int, ...], Field(description="its ports; none: it is not called")]
    to: Annotated[
        tuple[dict[str, Any], ...],
        Field(description="where it is, as peers of a NetworkPolicy; none: anywhere"),
    ] = ()


class OutsideParts(SettingsGroup):
    """What Firn calls outside of the chart."""

    database: Outside = Outside(ports=(5432,))
    issuer: Outside = Outside(ports=(443,))
    kafka: Outside = Outside(ports=(9092,))
    kubernetes: Outside = Outside(ports=(443, 6443))
    registry: Outside = Outside(ports=())
    storage: Outside = Outside(ports=(443,))
    trino: Outside = Outside(ports=(8080, 8443))


class Clients(SettingsGroup):
    """Who may call from outside of the chart, as peers of a NetworkPolicy; none: nobody."""

    catalog: Annotated[tuple[dict[str, Any], ...], Field(description="Trino and other engines")] = ()
    query: Annotated[
        tuple[dict[str, Any], ...], Field(description="what people reach the search API through")
    ] = ()
    ui: Annotated[
        tuple[dict[str, Any], ...], Field(description="what people reach the front end through")
    ] = ()
    metrics: Annotated[
        tuple[dict[str, Any], ...], Field(description="Prometheus; it may call all but the front end")
    ] = ()


class Network(SettingsGroup):
    """NetworkPolicies: what is not said here or in the chart does not get through."""

    policies: Annotated[bool, Field(description="whether there are any")] = True
    clients: Clients = Clients()
    outside: OutsideParts = OutsideParts()


class Mount(SettingsGroup):
    """A Secret or a ConfigMap that all pods find as a folder: certificates, for one."""

    path: Annotated[str, Field(description="the folder", pattern="^/")]
    secret: Annotated[str, Field(description="name of the Secret")] = ""
    config_map: Annotated[str, Field(description="name of the ConfigMap")] = ""


REFERENCE = r"^$|^[a-z0-9][a-z0-9.-]*/[A-Za-z0-9._-]+$"


class Login(SettingsGroup):
    """People who log in at `settings.catalog.oidc.issuer`; without a client's id pages ask for keys alone."""

    client_id: Annotated[str, Field(description="as whom the issuer knows the pages")] = ""
    client_secret: Annotated[
        str,
        Field(description="the client's secret, as the name of a Secret and its key", pattern=REFERENCE),
    ] = "firn/oidc-client-secret"  # noqa: S105 - a name
    redirect_uri: Annotated[
        str, Field(description="the pages' address, as browsers have it, with /oauth2callback")
    ] = ""
    scope: Annotated[str, Field(description="scopes that are asked for")] = "openid profile email"
    token: Annotated[Literal["access", "id"], Field(description="which token the API gets")] = "access"  # noqa: S105


class Ui(SettingsGroup):
    """The front end, which has no section in the settings."""

    allowed_hosts: Annotated[
        tuple[str, ...], Field(description="names under which a proxy or others reach it")
    ] = ()
    allowed_origins: Annotated[
        tuple[str, ...], Field(description="pages, besides its own, that may call it")
    ] = ()
    login: Login = Login()


class ChartValues(SettingsGroup):
    """All of it."""

    images: Images = Images()
    programs: Programs = Programs()
    executors: SparkExecutors = SparkExecutors()
    network: Network = Network()
    ui: Ui = Ui()
    mounts: Annotated[
        tuple[Mount, ...],
        Field(
            description="Secrets and ConfigMaps as folders of all pods: {path, secret} or {path, config_map}"
        ),
    ] = ()
    storage_class: Annotated[str, Field(description="StorageClass of volumes; empty: the cluster's own")] = ""
