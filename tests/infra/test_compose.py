"""The containers of infra/compose: what their files say is true of each other and of the rooms' settings."""

import re
import runpy
import tomllib
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml

from infra.demo.run import SETTINGS_OF_TOPICS
from infra.local.jvm_parts import POMS, REPOSITORY
from lake.settings import (
    CatalogSettings,
    IngestSettings,
    OptimizeSettings,
    QuerySettings,
    RoomSettings,
    StorageSettings,
)
from lake.settings.group import settings_of, variable
from lake.settings.secret_files import files_of, secret_names
from tests.infra.support.dockerfile import environment, instructions, last
from ui.settings import SCOPE_DEFAULT, login_settings

FOLDER = REPOSITORY / "infra/compose"
SETTINGS: tuple[type[RoomSettings], ...] = (
    StorageSettings,
    CatalogSettings,
    IngestSettings,
    OptimizeSettings,
    QuerySettings,
)
SERVICES: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]
OURS = {name: service for name, service in SERVICES.items() if "build" in service}
# Where those listen that are not ours.
PORTS = {"kafka": "9092", "postgres": "5432", "s3": "80", "trino": "8080"}
ADDRESS = re.compile(r"(?:@|//|\s|^)([a-z][a-z0-9-]+):(\d+)", re.MULTILINE)


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    """What the first two containers make, with keys that no catalog has made."""
    setup = runpy.run_path(str(FOLDER / "setup.py"))
    setup["make_secrets"](tmp_path)
    setup["make_keys"](tmp_path, lambda room, scope: f"firn_{room}_{scope}")
    return tmp_path


def test_the_settings_are_those_of_the_rooms(secrets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each room takes its section, and finds every secret in a file that is made for it."""
    file = secrets / "firn.toml"
    file.write_text((FOLDER / "firn.toml").read_text().replace("/run/firn", str(secrets)))
    monkeypatch.setenv("FIRN_CONFIG", str(file))
    loaded = {settings.room: settings.load() for settings in SETTINGS}
    ingest, catalog, query = loaded["ingest"], loaded["catalog"], loaded["query"]
    assert isinstance(ingest, IngestSettings)
    assert isinstance(catalog, CatalogSettings)
    assert isinstance(query, QuerySettings)
    used = {Path(path).name for settings in loaded.values() for path in files_of(settings)}
    made = {path.name for path in secrets.iterdir()} - {"firn.toml"}
    assert made == used | {"topic-signing-keys", "postgres-password", "trino-key"}
    assert ingest.internal_topics.signing_keys
    password = (secrets / "postgres-password").read_text()
    assert f":{password}@postgres:" in catalog.database_url.get_secret_value()
    told = [(topic.name, topic.format) for topic in ingest.topics]
    assert told == [(topic["name"], topic["format"]) for topic in SETTINGS_OF_TOPICS[:2]]
    assert query.trino.catalog == "lake"


def test_secrets_are_made_once(secrets: Path) -> None:
    """A second start keeps them, and each differs from the others."""
    before = {file.name: file.read_text() for file in secrets.iterdir()}
    setup = runpy.run_path(str(FOLDER / "setup.py"))
    setup["make_secrets"](secrets)
    setup["make_keys"](secrets, lambda *_: "another")
    assert {file.name: file.read_text() for file in secrets.iterdir()} == before
    assert len(set(before.values())) == len(before)


def test_no_file_holds_a_secret() -> None:
    """Settings that are secrets stand there by their file's name alone, and no variable carries one."""
    document = tomllib.loads((FOLDER / "firn.toml").read_text())
    for settings in SETTINGS:
        section = document.get(settings.room, {})
        for name in secret_names(settings):
            group, _, setting = name.rpartition(".")
            assert setting not in (section.get(group, {}) if group else section)
    for service in SERVICES.values():
        for name, value in service.get("environment", {}).items():
            assert not re.search("SECRET|TOKEN|PASSWORD(?!_FILE)|IDENTITY.*KEY", name), name
            assert not re.fullmatch(r"[0-9a-f]{16,}", value)
    for name in re.findall(r"(\S+(?:token|secret-key))=(.*)", (FOLDER / "lake.properties").read_text()):
        assert re.fullmatch(r"\$\{ENV:[A-Z0-9_]+\}", name[1])


def test_variables_are_settings() -> None:
    """Of compose.yaml and of the images: a room would refuse none, and know none under another name."""
    known = {"FIRN_CONFIG", "FIRN_CORE", "FIRN_UI_API"}
    for settings in SETTINGS:
        prefix = str(settings.model_config.get("env_prefix", ""))
        known |= {variable(prefix, name) for name, _ in settings_of(settings)}
    used = {name for service in SERVICES.values() for name in service.get("environment", {})}
    for service in OURS.values():
        used |= environment(instructions(REPOSITORY / service["build"]["dockerfile"])).keys()
    assert {name for name in used if name.startswith("FIRN_")} <= known


def test_addresses_are_services_that_listen_there() -> None:
    """Whatever a file calls by name and port is a container with that port."""
    ports = {name: {port} for name, port in PORTS.items()}
    for name, service in OURS.items():
        steps = instructions(REPOSITORY / service["build"]["dockerfile"])
        ports[name] = set(last(steps, "EXPOSE").split())
    variables = [
        f" {value}" for service in SERVICES.values() for value in service.get("environment", {}).values()
    ]
    texts = [(FOLDER / name).read_text() for name in ("firn.toml", "lake.properties", "setup.py")]
    texts.append((REPOSITORY / "infra/prometheus/prometheus.yaml").read_text())
    texts = [re.sub(r'[="]', " ", text) for text in texts]
    found = {pair for text in (*texts, *variables) for pair in ADDRESS.findall(text)}
    found -= {("kafka", "9093")}  # its controller, for itself
    assert {name for name, _ in found} >= {
        "kafka",
        "postgres",
        "s3",
        "catalog",
        "ingest-tools",
        "query",
        "trino",
    }
    for name, port in found:
        assert port in ports[name]


def test_only_the_page_and_the_api_are_reached_from_outside() -> None:
    """All others are in a network that is closed, and these two are published on loopback."""
    networks = yaml.safe_load((FOLDER / "compose.yaml").read_text())["networks"]
    assert networks["inside"] == {"internal": True}
    outside = {name for name, service in SERVICES.items() if service["networks"] != ["inside"]}
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert outside == set(published) == {"query", "ui"}
    assert all(port.startswith("127.0.0.1:") for ports in published.values() for port in ports)
    assert not any("network_mode" in service or "privileged" in service for service in SERVICES.values())


def test_our_containers_have_no_powers_and_write_to_volumes_alone() -> None:
    """Read-only, without capabilities; the images are those of this tree and version."""
    version = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
    assert len({service["build"]["dockerfile"] for service in OURS.values()}) == 5
    for service in OURS.values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert (FOLDER / service["build"]["context"]).resolve() == REPOSITORY
        assert service["image"] == f"firn-{Path(service['build']['dockerfile']).stem}:{version}"


def test_other_images_are_pinned_to_the_versions_that_are_tested() -> None:
    """A name without a host, and the version that the stack of the tests has."""
    images = {name: service["image"] for name, service in SERVICES.items() if name not in OURS}
    assert images.keys() == PORTS.keys()
    versions = {name: image.partition(":")[2] for name, image in images.items()}
    assert all(re.fullmatch(r"[a-z]+(/[a-z0-9]+)?:\d[\w.-]*", image) for image in images.values())
    for name in ("kafka", "s3", "trino"):
        assert re.search(rf">{re.escape(versions[name])}<", (POMS / f"{name}.xml").read_text())


def test_what_containers_wait_for_and_mount_is_there() -> None:
    """Dependencies are services, and no circle; files that are mounted exist; volumes are declared."""
    volumes = yaml.safe_load((FOLDER / "compose.yaml").read_text())["volumes"]
    for name, service in SERVICES.items():
        for mount in service.get("volumes", []):
            source = mount.split(":")[0]
            assert (FOLDER / source).exists() if source.startswith(".") else source in volumes
        assert name not in all_before(name)
        for other, wanted in service.get("depends_on", {}).items():
            ends = SERVICES[other].get("restart") == "no"
            assert (wanted["condition"] == "service_completed_successfully") == ends


def all_before(name: str) -> set[str]:
    """All services that have to be there before one."""
    found: set[str] = set()
    left = list(SERVICES[name].get("depends_on", {}))
    while left:
        other = left.pop()
        if other not in found:
            found.add(other)
            left += SERVICES[other].get("depends_on", {})
    return found


class TestLogin:
    """infra/compose/login.yaml, which is put over compose.yaml."""

    FILE = yaml.safe_load((FOLDER / "login.yaml").read_text())
    GIVEN: ClassVar[dict[str, str]] = {
        "FIRN_OIDC_ISSUER": "https://id.example.org",
        "FIRN_OIDC_AUDIENCES": '["firn"]',
        "FIRN_OIDC_GRANTS": '{"team": {"role": "reader", "tenants": "all"}}',
        "FIRN_OIDC_CLIENT_ID": "firn",
    }

    def given(self, service: str, path: Path) -> dict[str, str]:
        """The variables of a service, as Compose makes them of what somebody has said. `path`: where the
        client's secret is mounted."""

        def said(found: re.Match[str]) -> str:
            name, _, default = found[1].partition(":")
            return self.GIVEN.get(name) or default.removeprefix("-")

        variables = self.FILE["services"][service]["environment"].items()
        told = {name: re.sub(r"\$\{([^}]*)\}", said, value) for name, value in variables}
        return {name: value.replace("/run/secrets", str(path)) for name, value in told.items()}

    def test_catalog_and_pages_take_what_somebody_says(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """By settings and variables that there are, with the secret from its file."""
        (tmp_path / "oidc-client-secret").write_text("of-the-pages\n")
        monkeypatch.setenv("FIRN_CONFIG", "")
        for service in ("catalog", "ui"):
            for name, value in self.given(service, tmp_path).items():
                monkeypatch.setenv(name, value)
        oidc, login = CatalogSettings.load().oidc, login_settings()
        assert login is not None
        assert oidc.issuer == login.issuer == self.GIVEN["FIRN_OIDC_ISSUER"]
        assert (oidc.audiences, list(oidc.grants)) == (("firn",), ["team"])
        assert (login.client_secret, login.scope) == ("of-the-pages", SCOPE_DEFAULT)
        known = {variable("FIRN_CATALOG_", name) for name, _ in settings_of(CatalogSettings)}
        assert self.given("catalog", tmp_path).keys() <= known

    def test_what_nobody_can_guess_has_to_be_said(self) -> None:
        """Compose starts nothing without it; the others have defaults."""
        text = (FOLDER / "login.yaml").read_text()
        asked = set(re.findall(r"\$\{(FIRN_OIDC_\w+):\?", text))
        assert asked == {*self.GIVEN, "FIRN_OIDC_CLIENT_SECRET_FILE"}
        assert set(re.findall(r"\$\{(FIRN_OIDC_\w+)", text)) == asked | set(
            re.findall(r"\$\{(FIRN_OIDC_\w+):-", text)
        )

    def test_it_changes_what_is_there(self) -> None:
        """Services of compose.yaml, which reach the issuer; the secret comes from a file."""
        for name, service in self.FILE["services"].items():
            assert name in OURS
            assert "outside" in service.get("networks", SERVICES[name]["networks"])
        assert self.FILE["services"]["ui"]["secrets"] == list(self.FILE["secrets"])
        assert all("file" in secret for secret in self.FILE["secrets"].values())
