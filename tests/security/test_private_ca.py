"""A private CA and client certificates: every client of HTTP, of Kafka and of S3 can be given them."""

import os
import re
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr

from infra.local.jvm_parts import REPOSITORY
from infra.local.ports import LOOPBACK, reserve_free
from ingest.schema_registry.schema_registry import SchemaRegistry
from lake.catalog_client import CatalogClient
from lake.errors import SettingsError, UnavailableError
from lake.kafka_connection import connection
from lake.settings import IngestSettings, RegistrySettings
from lake.tls import tls_context
from query.cli.remote import Remote
from tests.environment import without_settings
from tests.ingest.support.fake_schema_registry import fake_schema_registry, framed
from tests.stack.support.waiting import wait_for
from ui.api_client import ApiClient, ApiError

pytestmark = pytest.mark.finding(26)

# Rooms whose clients speak to services that an operator puts behind TLS; infra's speak to loopback.
ROOMS = ("catalog", "ingest", "optimize", "query", "lake", "ui")


class Certificates:
    """A CA made for the test, and certificates that it has signed: a server's and a client's."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._openssl(
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-keyout",
            "ca.key",
            "-out",
            "ca.pem",
            "-days",
            "2",
            "-subj",
            "/CN=private",
        )
        for name, extension in (
            ("server", f"subjectAltName=IP:{LOOPBACK}"),
            ("client", "extendedKeyUsage=clientAuth"),
        ):
            self._openssl(
                "req",
                "-newkey",
                "rsa:2048",
                "-nodes",
                "-keyout",
                f"{name}.key",
                "-out",
                f"{name}.csr",
                "-subj",
                f"/CN={name}",
            )
            (folder / f"{name}.ext").write_text(f"{extension}\n")
            signed = (
                "-CA",
                "ca.pem",
                "-CAkey",
                "ca.key",
                "-CAcreateserial",
                "-days",
                "2",
                "-extfile",
                f"{name}.ext",
            )
            self._openssl("x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.pem", *signed)

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self._folder, check=True, capture_output=True)

    def __getitem__(self, name: str) -> str:
        return str(self._folder / name)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("ca"))


def _catalog(folder: Path, certificates: Certificates, **settings: str) -> Iterator[str]:
    """A catalog that speaks TLS with the server's certificate; its address."""
    port = reserve_free()
    own = {
        "database_url": f"sqlite:///{folder}/catalog.db",
        "warehouse": f"file://{folder}/w",
        "http__port": str(port),
        "access__anonymous": "true",
    }
    own |= {
        "tls__certificate": certificates["server.pem"],
        "tls__key": certificates["server.key"],
        **settings,
    }
    inherited = without_settings()
    environment = {
        **inherited,
        "FIRN_CONFIG": "",
        **{f"FIRN_CATALOG_{name.upper()}": value for name, value in own.items()},
    }
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "catalog", "serve"],
            cwd=REPOSITORY,
            env=environment,
            stdout=log,
            stderr=log,
        )
    try:
        ready = '"catalog.listening"'
        wait_for(
            lambda: process.poll() is not None or ready in (folder / "log").read_text(),
            60,
            "the catalog listening",
        )
        assert process.poll() is None, (folder / "log").read_text()
        yield f"https://{LOOPBACK}:{port}"
    finally:
        process.kill()
        process.wait(30)


@pytest.fixture(scope="module")
def mutual(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[str]:
    """One that asks its clients for certificates."""
    yield from _catalog(
        tmp_path_factory.mktemp("mutual"), certificates, tls__client_ca=certificates["ca.pem"]
    )


class _NotThere(BaseHTTPRequestHandler):
    """Answers that whatever is asked for is not there, as an S3 that is empty does."""

    def do_HEAD(self) -> None:
        self.send_error(404)

    def log_message(self, *_: object) -> None:
        """Nothing: the test's output is for the test."""


@pytest.fixture
def empty_s3(certificates: Certificates) -> Iterator[str]:
    """The address of a server with the server's certificate that asks its clients for none."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificates["server.pem"], certificates["server.key"])
    with ThreadingHTTPServer((LOOPBACK, 0), _NotThere) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"https://{LOOPBACK}:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def no_tls_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRN_CONFIG", "")
    for name in ("CA", "CERTIFICATE", "KEY"):
        monkeypatch.delenv(f"FIRN_TLS_{name}", raising=False)


def _give(monkeypatch: pytest.MonkeyPatch, certificates: Certificates, *, client: bool) -> None:
    monkeypatch.setenv("FIRN_TLS_CA", certificates["ca.pem"])
    if client:
        monkeypatch.setenv("FIRN_TLS_CERTIFICATE", certificates["client.pem"])
        monkeypatch.setenv("FIRN_TLS_KEY", certificates["client.key"])


@pytest.mark.long
def test_the_catalog_is_reached_by_a_private_ca_and_a_client_certificate(
    mutual: str, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the CA nothing is sent; without the certificate the catalog hangs up; with both it answers."""
    with pytest.raises(UnavailableError):
        CatalogClient(mutual).ping(timeout_s=10)
    _give(monkeypatch, certificates, client=False)
    with pytest.raises(UnavailableError):
        CatalogClient(mutual).ping(timeout_s=10)
    _give(monkeypatch, certificates, client=True)
    client = CatalogClient(mutual)
    client.create_namespace("a", {})
    assert list(client.namespaces()) == ["a"]


@pytest.mark.long
def test_the_other_clients_take_the_same_settings(
    mutual: str, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command line of search and the front end: what answers is another service, but it answers."""
    with pytest.raises(ApiError) as refused:
        ApiClient(mutual).get("/config")
    assert refused.value.status not in (200, 404)
    _give(monkeypatch, certificates, client=True)
    assert "endpoints" in httpx.get(f"{mutual}/v1/config", verify=tls_context(), trust_env=False).json()
    assert "defaults" in ApiClient(mutual).get("/config")
    assert "defaults" in Remote(mutual, None).get_later("/v1/config")


def test_every_client_of_http_is_given_the_settings() -> None:
    """None is made anywhere without them."""
    calls = re.compile(
        r"httpx\.(?:Client|AsyncClient|get|post|request|stream)\((?:[^()]|\([^()]*(?:\([^()]*\))?[^()]*\))*\)"
    )
    found = 0
    for path in (path for room in ROOMS for path in (REPOSITORY / room).rglob("*.py")):
        text = path.read_text()
        for call in calls.finditer(text):
            found += 1
            assert "tls_context(" in call[0] or ("**" in call[0] and "tls_context()" in text), (
                f"{path}: {call[0]}"
            )
    assert found >= 9


def test_the_schema_registry_is_reached_by_a_private_ca(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By the setting of all clients, or one for the registry alone; else nothing is sent."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificates["server.pem"], certificates["server.key"])
    with fake_schema_registry(context) as server:
        message = framed(server.add('"string"'), b"\x02a")
        with pytest.raises(UnavailableError):
            SchemaRegistry(RegistrySettings(url=server.url)).read(message)
        assert server.requests == []
        own = RegistrySettings(url=server.url, ca=certificates["ca.pem"])
        assert isinstance(SchemaRegistry(own).read(message), bytes)
        _give(monkeypatch, certificates, client=False)
        assert isinstance(SchemaRegistry(RegistrySettings(url=server.url)).read(message), bytes)
        with pytest.raises(SettingsError, match="FIRN_TLS_CA"):
            SchemaRegistry(RegistrySettings(url=server.url, ca=str(tmp_path / "absent.pem")))


def test_files_that_cannot_be_used_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In one sentence with the variables."""
    monkeypatch.setenv("FIRN_TLS_CA", str(tmp_path / "absent.pem"))
    with pytest.raises(SettingsError, match=r"absent\.pem.*FIRN_TLS_CA"):
        tls_context()


@pytest.mark.long
def test_storage_trusts_a_private_ca_by_the_usual_variable(empty_s3: str, certificates: Certificates) -> None:
    """`SSL_CERT_FILE`, as docs/ingest.md says: with it storage is told that a file is not there; without the
    variable nothing is sent."""
    script = "from lake.storage import open_storage\nprint(open_storage().size('s3://bucket/key'))"
    storage = {
        "S3__ENDPOINT": empty_s3,
        "S3__ACCESS_KEY_ID": "k",
        "S3__SECRET_ACCESS_KEY": "s",
        "REQUEST_TIMEOUT_S": "5",
    }
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("FIRN_", "SSL_"))}
    environment = {
        **inherited,
        "FIRN_CONFIG": "",
        **{f"FIRN_STORAGE_{name}": value for name, value in storage.items()},
    }
    asked = [
        subprocess.Popen(
            [sys.executable, "-c", script],
            cwd=REPOSITORY,
            env={**environment, **more},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for more in ({}, {"SSL_CERT_FILE": certificates["ca.pem"]})
    ]
    assert [process.communicate(timeout=120)[0].strip() for process in asked] == ["", "None"]


def test_kafka_is_reached_by_options_that_are_passed_on_and_never_shown() -> None:
    """What says how brokers are reached goes to the client; what Firn's promises stand on does not; values
    are not printed."""
    options = {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": "/ca.pem",
        "ssl.certificate.location": "/c.pem",
        "ssl.key.location": "/k.pem",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "firn",
        "sasl.password": "hidden-word",
    }
    settings = IngestSettings.load(kafka__options={name: SecretStr(value) for name, value in options.items()})
    assert options.items() <= connection(settings).items()
    assert "hidden-word" not in repr(settings)
    for name in (
        "enable.auto.commit",
        "acks",
        "check.crcs",
        "group.id",
        "bootstrap.servers",
        "isolation.level",
        "plugin.library.paths",
    ):
        with pytest.raises(SettingsError, match=re.escape(name)):
            IngestSettings.load(kafka__options={name: "x"})
