"""The Helm chart as Helm renders it: manifests that Kubernetes takes by its schemas, settings that the rooms
load, and policies by which only those talk that have to. Nothing of it runs on a cluster."""

import json
import subprocess
from functools import reduce
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.helm.__main__ import FOLDER, OF_CHART, ROOMS
from infra.local.java import CLASSIC, find
from lake.settings import IngestSettings, OptimizeSettings, RoomSettings
from lake.settings.group import settings_of
from lake.settings.secret_files import holds_secrets
from lake.spark_executor import BACKEND, OPTIONS
from tests.infra.support.helm import (
    KUBERNETES,
    NAMESPACE,
    Manifest,
    container,
    helm,
    memory_mib,
    of_kind,
    rendered,
    workloads,
)
from tests.infra.support.network_policies import ANYWHERE, connections, one_sided
from ui.settings import login_settings

pytestmark = [pytest.mark.prove, pytest.mark.timeout(1800)]

CLUSTER = "k8s://https://kubernetes.default.svc"
PROXY = {"namespaceSelector": {"matchLabels": {"name": "proxy"}}}
SPARK: dict[str, Any] = {
    "images": {"registry": "registry.example/team", "secrets": ["pull"]},
    "settings": {
        "catalog": {"warehouse": "s3://lake/tables", "tls": {"certificate": "/crt", "client_ca": "/c"}},
        "ingest": {
            "engine": "spark",
            "spark": {"master": CLUSTER},
            "topics": [{"name": "logs", "tenant": ["field:tenant"]}],
            "limits": {"late": "accept"},
        },
        "optimize": {"spark": {"master": CLUSTER, "options": {"spark.authenticate": "true"}}},
        "query": {"http": {"allowed_hosts": ["logs.example.org"]}},
    },
    "secrets": {"storage": {"s3.secret_access_key": "s3/secret"}},
    "mounts": [{"path": "/etc/tls", "secret": "tls"}, {"path": "/etc/ca", "config_map": "ca"}],
    "network": {"clients": {"ui": [PROXY], "metrics": [PROXY]}},
}  # fmt: skip
SMALL: dict[str, Any] = {
    "programs": {
        name: {"replicas": 1, "volume_gib": None, "pod": {"nodeSelector": {"disk": "ssd"}, "affinity": {}}}
        for name in ("catalog", "ingest", "tools", "optimize", "query", "ui")
    },
    "network": {"policies": False},
    "storage_class": "fast",
}
# What the chart adds itself to.
LISTS = {
    "catalog": ("http.allowed_hosts",),
    "ingest": ("http.allowed_hosts",),
    "optimize": ("lag.ingest_uris",),
    "query": ("http.allowed_hosts",),
}
LOGIN: dict[str, Any] = {
    "settings": {
        "tls": {"ca": "/etc/ca/ca.pem"},
        "catalog": {
            "oidc": {
                "issuer": "https://id.example.org/realms/firn",
                "audiences": ["firn"],
                "grants": {"team": {"role": "reader", "tenants": ["Acme"]}},
            }
        },
    },
    "ui": {
        "login": {
            "client_id": "firn-pages",
            "client_secret": "oidc/secret",
            "redirect_uri": "https://logs.example.org/oauth2callback",
        }
    },
}
VARIANTS: dict[str, dict[str, Any]] = {"defaults": {}, "spark": SPARK, "small": SMALL, "login": LOGIN}


@pytest.fixture(params=VARIANTS)
def variant(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Values of one kind of installation."""
    return VARIANTS[request.param]


def test_helm_finds_nothing(variant: dict[str, Any], tmp_path: Path) -> None:
    """In the chart, with any of the values."""
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(variant))
    done = helm("lint", "--strict", "--quiet", "--kube-version", f"{KUBERNETES[-1]}.0", "-f", file, FOLDER)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("kubernetes", KUBERNETES)
def test_manifests_are_what_kubernetes_takes(
    variant: dict[str, Any], kubernetes: str, tmp_path: Path
) -> None:
    """By its schemas, which know no further fields; no two have one name, and all are of this release."""
    import kubernetes_validate

    manifests = rendered(variant, tmp_path, kubernetes)
    templates = [
        yaml.safe_load(each["data"]["executor.yaml"])
        for each in of_kind(manifests, "ConfigMap").values()
        if "executor.yaml" in each["data"]
    ]
    for template in templates:
        template["spec"]["containers"][0]["image"] = "of-spark"
    for manifest in (*manifests, *templates):
        kubernetes_validate.validate(manifest, kubernetes, strict=True)
    names = [(each["kind"], each["metadata"]["name"]) for each in manifests]
    assert len(set(names)) == len(names)
    assert all(each["metadata"]["labels"]["app.kubernetes.io/instance"] == "firn" for each in manifests)


def test_rooms_load_what_pods_mount(
    variant: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each room takes its file; every secret that it names is mounted, and without values of ours only what
    the chart says itself is not a default."""
    manifests = rendered(variant, tmp_path)
    for name, workload in workloads(manifests).items():
        if name == "ui":
            continue
        volumes = {each["name"]: each for each in workload["spec"]["template"]["spec"]["volumes"]}
        room = volumes["settings"]["configMap"]["name"]
        text = str(of_kind(manifests, "ConfigMap")[room.removeprefix("firn-")]["data"]["firn.toml"])
        for source in volumes["secrets"]["projected"]["sources"]:
            for item in source["secret"]["items"]:
                secret = "['a secret of sixteen']" if "signing" in item["path"] else "secret"
                (tmp_path / item["path"]).write_text(secret.replace("'", '"'))
        file = tmp_path / "firn.toml"
        file.write_text(text.replace("/run/firn", str(tmp_path)))
        monkeypatch.setenv("FIRN_CONFIG", str(file))
        sections = ("storage", "tls", room.removeprefix("firn-"))
        for kind in (kind for kind in ROOMS if kind.room in sections):
            changed = changed_settings(kind.load())
            if not variant:
                assert changed == {*OF_CHART.get(kind.room, ()), *LISTS.get(kind.room, ())}


def changed_settings(settings: RoomSettings) -> set[str]:
    """The names of those that are no secrets and have no default any more."""
    return {
        name
        for name, field in settings_of(type(settings))
        if not holds_secrets(field.annotation) and reduce(getattr, name.split("."), settings) != field.default
    }


def test_values_of_somebody_reach_the_rooms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists and tables of tables too; names that a proxy has stand beside the chart's own, and an address of
    somebody's own goes before the chart's."""
    values = {
        **SPARK,
        "secrets": {"ingest": {"http.token": "", "catalog.token": "", "internal_topics.signing_keys": ""}},
    }
    values["settings"] = {**SPARK["settings"], "optimize": {"catalog": {"uri": "http://elsewhere:1"}}}
    maps = of_kind(rendered(values, tmp_path), "ConfigMap")
    file = tmp_path / "firn.toml"
    monkeypatch.setenv("FIRN_CONFIG", str(file))
    file.write_text(maps["ingest"]["data"]["firn.toml"])
    ingest = IngestSettings.load()
    assert [(topic.name, topic.tenant) for topic in ingest.topics] == [("logs", ("field:tenant",))]
    assert (ingest.limits.late, ingest.engine) == ("accept", "spark")
    # The catalog has a certificate.
    assert ingest.catalog.uri == "https://firn-catalog:8181"
    query = str(maps["query"]["data"]["firn.toml"])
    assert (
        '"firn-query", "*.firn-query", "firn-query.logs.svc", "*.firn-query.logs.svc", "logs.example.org"'
        in query
    )
    assert 'uri = "http://elsewhere:1"' in maps["optimize"]["data"]["firn.toml"]


def test_a_value_that_no_room_would_take_is_refused(tmp_path: Path) -> None:
    """By the schema, before anything is installed, and by its name."""
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump({"settings": {"ingest": {"flush": {"intervall_s": 1}}}}))
    done = helm("template", "firn", FOLDER, "-f", file)
    assert done.returncode != 0
    assert "intervall_s" in done.stderr


def test_pods_have_no_powers_and_say_how_they_are(variant: dict[str, Any], tmp_path: Path) -> None:
    """Not root, all but state and scratch read-only; services and probes ask where a container listens."""
    manifests = rendered(variant, tmp_path)
    services = of_kind(manifests, "Service")
    accounts = of_kind(manifests, "ServiceAccount")
    assert workloads(manifests).keys() == services.keys() == accounts.keys()
    for name, workload in workloads(manifests).items():
        pod, only = workload["spec"]["template"]["spec"], container(workload)
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["serviceAccountName"] == accounts[name]["metadata"]["name"]
        assert only["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        (port,) = only["ports"]
        assert [each["targetPort"] for each in services[name]["spec"]["ports"]] == [port["name"]]
        assert services[name]["spec"]["ports"][0]["port"] == port["containerPort"]
        notes = workload["spec"]["template"]["metadata"].get("annotations", {})
        told = {"prometheus.io/scrape": "true", "prometheus.io/port": str(port["containerPort"])}
        assert notes.items() >= told.items() or name == "ui"
        assert services[name]["spec"]["selector"] == workload["spec"]["selector"]["matchLabels"]
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            asked = only[probe].get("httpGet") or only[probe]["tcpSocket"]
            assert asked["port"] == port["name"]
        written = {each["mountPath"] for each in only["volumeMounts"] if not each.get("readOnly")}
        assert written == {"/var/lib/firn", "/tmp"}
        kept = [each["metadata"]["name"] for each in workload["spec"].get("volumeClaimTemplates", [])]
        there = {each["name"] for each in pod["volumes"]} | set(kept)
        assert {each["name"] for each in only["volumeMounts"]} == there
        if name == "catalog" and variant is SPARK:
            # It asks clients for certificates, which no probe has.
            assert "tcpSocket" in only["livenessProbe"]


def test_who_is_alone_may_be_moved_and_of_several_one_at_a_time(tmp_path: Path) -> None:
    """A budget for each program of several pods; by default those that stand by or share a database."""
    budgets = of_kind(rendered({}, tmp_path), "PodDisruptionBudget")
    assert budgets.keys() == {"catalog", "ingest", "optimize"}
    assert {each["spec"]["maxUnavailable"] for each in budgets.values()} == {1}
    assert of_kind(rendered(SMALL, tmp_path), "PodDisruptionBudget") == {}


@pytest.mark.parametrize(
    ("program", "settings", "more_mib"),
    [
        ("catalog", {"catalog": {"metadata_cache_bytes_max": (192 + 256) * 1024 * 1024}}, 256),
        ("catalog", {"catalog": {"workers": 3}}, 2 * (192 + 384)),
        ("ingest", {"ingest": {"flush": {"buffer_bytes_max": 1536 * 1024 * 1024}}}, 1024),
        ("ingest", {"ingest": {"workers": 3}}, 2 * 320),
        ("tools", {"ingest": {"serve": {"tails_max": 10}}}, 2 * 64),
        ("optimize", {"optimize": {"spark": {"driver_memory_mb": 3072}}}, 2048),
        ("optimize", {"optimize": {"spark": {"master": "local[5]"}}}, 3 * 2048),
        ("optimize", {"optimize": {"spark": {"master": CLUSTER}}}, -2 * 2048),
        ("query", {"query": {"embedded": {"memory_bytes": 3 * 1024**3}}}, 2048),
    ],
)
def test_memory_is_what_settings_come_to(
    program: str, settings: dict[str, Any], more_mib: int, tmp_path: Path
) -> None:
    """A pod gets what its settings let it hold; what is said outright goes before."""
    before = memory_mib(workloads(rendered({}, tmp_path))[program])
    assert memory_mib(workloads(rendered({"settings": settings}, tmp_path))[program]) - before == more_mib
    said = {"settings": settings, "programs": {program: {"memory_mib": 4321}}}
    assert memory_mib(workloads(rendered(said, tmp_path))[program]) == 4321


def test_ingestion_gets_the_memory_that_its_page_says(tmp_path: Path) -> None:
    """docs/ingest.md: the budget and 640 MiB."""
    budget = IngestSettings.model_fields["flush"].default.buffer_bytes_max // 2**20
    assert memory_mib(workloads(rendered({}, tmp_path))["ingest"]) == budget + 640


def test_only_those_talk_who_have_to(tmp_path: Path) -> None:
    """All that gets through, by default: within the release, to names and to what Firn calls outside."""
    policies = of_kind(rendered({}, tmp_path), "NetworkPolicy")
    assert one_sided(policies) == set()
    found = connections(policies)
    assert {each for each in found if each[1] != ANYWHERE} == {
        ("catalog", "tools", 8384),
        ("ingest", "catalog", 8181),
        ("tools", "catalog", 8181),
        ("tools", "ingest", 8383),
        ("optimize", "catalog", 8181),
        ("optimize", "tools", 8384),
        ("query", "catalog", 8181),
        ("query", "tools", 8384),
        ("ui", "query", 8282),
    }
    outside = {(name, port) for name, called, port in found if called == ANYWHERE and port != 53}
    assert outside == {
        ("catalog", 5432),
        ("catalog", 443),
        ("ingest", 9092),
        ("ingest", 443),
        ("tools", 9092),
        ("tools", 443),
        ("optimize", 443),
        ("query", 443),
        ("query", 8080),
        ("query", 8443),
    }


def test_who_comes_from_outside_is_named(tmp_path: Path) -> None:
    """A proxy reaches the front end alone, Prometheus all programs that have metrics; executors reach their
    own driver, brokers and storage."""
    policies = of_kind(rendered(SPARK, tmp_path), "NetworkPolicy")
    assert one_sided(policies) == set()
    found = connections(policies)
    from_outside = {(name, port) for caller, name, port in found if caller == str(PROXY)}
    assert from_outside == {
        ("ui", 8501),
        ("catalog", 8181),
        ("ingest", 8383),
        ("tools", 8384),
        ("optimize", 8585),
        ("query", 8282),
    }
    executors = {each for each in found if "executor" in each[0] + each[1] and 53 not in each}
    for room in ("ingest", "optimize"):
        executor = f"{room}-executor"
        assert {(executor, room, None), (room, executor, None), (executor, executor, None)} <= executors
        assert (room, ANYWHERE, 6443) in found
    assert {each for each in executors if each[1] == ANYWHERE} == {
        ("ingest-executor", ANYWHERE, 443),
        ("ingest-executor", ANYWHERE, 9092),
        ("optimize-executor", ANYWHERE, 443),
    }
    assert of_kind(rendered(SMALL, tmp_path), "NetworkPolicy") == {}


def test_people_log_in_at_the_issuer_of_the_catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pages find its address, and the client's secret in a file; both reach the issuer, and nobody else
    does. Without a client's id there is none of it."""
    manifests = rendered(LOGIN, tmp_path)
    pages = workloads(manifests)["ui"]
    (tmp_path / "oidc-client-secret").write_text("of-the-pages")
    for each in container(pages)["env"]:
        monkeypatch.setenv(each["name"], each["value"].replace("/run/firn", str(tmp_path)))
    login = login_settings()
    assert login is not None
    assert (login.issuer, login.client_id) == ("https://id.example.org/realms/firn", "firn-pages")
    assert (login.client_secret, login.token) == ("of-the-pages", "access")
    (secrets,) = [each["secret"] for each in pages["spec"]["template"]["spec"]["volumes"] if "secret" in each]
    assert (secrets["secretName"], secrets["items"]) == (
        "oidc",
        [{"key": "secret", "path": "oidc-client-secret"}],
    )
    assert "of-the-pages" not in str(manifests)
    elsewhere = {**LOGIN, "network": {"outside": {"issuer": {"ports": [8443]}}}}
    found = connections(of_kind(rendered(elsewhere, tmp_path), "NetworkPolicy"))
    usual = connections(of_kind(rendered({}, tmp_path), "NetworkPolicy"))
    assert found - usual == {("catalog", ANYWHERE, 8443), ("ui", ANYWHERE, 8443)}
    assert not [
        each for each in container(workloads(rendered({}, tmp_path))["ui"])["env"] if "OIDC" in str(each)
    ]


def test_on_a_cluster_spark_makes_its_executors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver may make pods, and says its own address; what settings say stands beside. Executors have the
    image of their driver, and no powers. Without such a master there is none of it."""
    manifests = rendered(SPARK, tmp_path)
    assert (
        of_kind(manifests, "Role").keys()
        == of_kind(manifests, "RoleBinding").keys()
        == {"ingest", "optimize"}
    )
    images = {}
    for name in ("ingest", "optimize"):
        workload = workloads(manifests)[name]
        assert workload["spec"]["template"]["spec"]["automountServiceAccountToken"] is True
        variables = {each["name"]: each for each in container(workload)["env"]}
        told = variables[f"FIRN_{name.upper()}_SPARK__OPTIONS"]["value"]
        options: dict[str, str] = json.loads(told)
        assert all(isinstance(each, str) for each in options.values())
        assert options["spark.driver.host"] == "$(POD_IP)"
        assert variables["POD_IP"]["valueFrom"]["fieldRef"]["fieldPath"] == "status.podIP"
        assert list(variables).index("POD_IP") < list(variables).index(f"FIRN_{name.upper()}_SPARK__OPTIONS")
        assert options["spark.kubernetes.namespace"] == NAMESPACE
        assert options["spark.default.parallelism"] == "4"
        assert options["spark.kubernetes.container.image"] == container(workload)["image"]
        images[name] = container(workload)["image"]
        monkeypatch.setenv(f"FIRN_{name.upper()}_SPARK__OPTIONS", told)
        template = yaml.safe_load(of_kind(manifests, "ConfigMap")[name]["data"]["executor.yaml"])
        (executor,) = template["spec"]["containers"]
        assert executor["command"] == ["python", "-m", "lake.spark_executor"]
        assert executor["securityContext"]["readOnlyRootFilesystem"] is True
        assert "args" not in executor
    assert images == {
        "ingest": "registry.example/team/firn-ingest-spark:0.1.0",
        "optimize": "registry.example/team/firn-optimize:0.1.0",
    }
    monkeypatch.setenv("FIRN_CONFIG", "")
    assert OptimizeSettings.load().spark.options["spark.authenticate"] == "true"
    plain = rendered({}, tmp_path)
    assert of_kind(plain, "Role") == {}
    assert not any("SPARK__OPTIONS" in str(container(each)) for each in workloads(plain).values())


def test_sparks_own_executor_has_the_options_that_it_is_given() -> None:
    """As the class of its jars tells them."""
    jdk = find(CLASSIC)
    assert jdk is not None
    package = find_spec("pyspark")
    assert package is not None
    jars = Path(str(package.origin)).with_name("jars")
    told = subprocess.run(
        [jdk.java, "-cp", f"{jars}/*", BACKEND, "--help"], capture_output=True, text=True, check=False
    )
    assert {option for option in OPTIONS if f"{option} <" in told.stdout + told.stderr} == set(OPTIONS)


def test_a_standby_is_there_and_each_node_has_a_name(tmp_path: Path) -> None:
    """Two nodes of ingestion and two of maintenance, apart from each other where that can be; the tools ask
    the first node by a name that it has whatever it keeps."""
    for values in ({}, SMALL):
        manifests: list[Manifest] = rendered(values, tmp_path)
        node = workloads(manifests)["ingest"]
        assert (node["kind"], node["spec"]["serviceName"]) == ("StatefulSet", "firn-ingest")
        assert of_kind(manifests, "Service")["ingest"]["spec"]["clusterIP"] == "None"
        text = of_kind(manifests, "ConfigMap")["ingest"]["data"]["firn.toml"]
        assert 'uri = "http://firn-ingest-0.firn-ingest:8383"' in text
    defaults = workloads(rendered({}, tmp_path))
    assert [defaults[name]["spec"]["replicas"] for name in ("ingest", "optimize")] == [2, 2]
    assert "podAntiAffinity" in str(defaults["ingest"]["spec"]["template"]["spec"]["affinity"])
