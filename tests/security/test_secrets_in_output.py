"""Services that know secrets, by variables and by files, work and fail; then all that came out of them is
searched for these secrets: logs, answers, metrics, settings as the audit trail tells them, command lines, and
what Spark tells of its applications."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from infra.local import processes
from infra.local.ports import LOOPBACK, reserve_free
from infra.local.services.optimize import environment as spark_environment
from infra.local.supervisor import Stack
from lake.catalog_client import CatalogClient
from lake.settings import StorageSettings
from lake.storage import AnyStorage
from optimize.table_view import load_view
from tests.optimize.support.delete_files import delete_positions
from tests.optimize.support.small_files import SmallFiles, this_hour
from tests.query.support.processes import Child, child_environment, run
from tests.security.support.secrets_out import Known, command_lines, files_below, forms
from tests.stack.support.forked import RoomProcess, start_room
from tests.stack.support.plain_http import http
from tests.stack.support.waiting import wait_for

pytestmark = [pytest.mark.stack, pytest.mark.finding(27)]
TENANT = "acme"
NOWHERE = f"{LOOPBACK}:9"
SAID_S = 60.0
TOPICS = orjson.dumps(
    [
        {"name": "plain"},
        {
            "name": "changes",
            "tenant": ["const:acme"],
            "stream": ["const:orders"],
            "changes": {"format": "debezium"},
        },
    ]
).decode()


@dataclass
class Secretive:
    """A stack on PostgreSQL and S3, services that ask for keys, and what came out of them."""

    stack: Stack
    folder: Path
    known: Known
    catalog: Child
    api: Child
    keys: dict[str, str]
    ends: ExitStack
    outputs: dict[str, bytes] = field(default_factory=dict)

    def ask(self, method: str, url: str, *, note: str = "", **options: Any) -> httpx.Response:
        """A request whose answer is kept as output, with its headers."""
        answer = http.request(method, url, timeout=SAID_S, **options)
        told = "\n".join((answer.text, *(f"{name}: {value}" for name, value in answer.headers.items())))
        self.outputs[f"{method} {url} {note} {len(self.outputs)}"] = told.encode()
        return answer

    def verb(self, room: str, environment: Mapping[str, str], *arguments: str) -> int:
        """A command whose words are kept; its exit code."""
        done = run(room, environment, *arguments)
        self.outputs[f"{room} {' '.join(arguments)}"] = (done.stdout + done.stderr).encode()
        return done.returncode

    def started(self, room: str, environment: Mapping[str, str], *arguments: str) -> RoomProcess:
        """A service that ends with the test."""
        log = self.folder / f"{room}-{len(list(self.folder.glob(f'{room}-*')))}.log"
        process = start_room(room, *arguments, environment=child_environment(environment), log=log)
        self.ends.callback(process.wait, 30)
        self.ends.callback(process.kill)
        return process

    def wait_for_words(self, process: RoomProcess) -> None:
        """Returns when a node has told of its trouble, or has ended with it."""
        before = len(self.logged("ingest"))
        wait_for(
            lambda: len(self.logged("ingest")) > before + 500 or process.poll() is not None,
            SAID_S,
            "its words",
        )

    def logged(self, room: str) -> str:
        return "".join(path.read_text(errors="replace") for path in self.folder.glob(f"{room}-*.log"))

    def everything(self) -> dict[str, bytes]:
        """All that came out so far: by hand, in logs and spools, and what `ps` shows now."""
        folders = (self.folder, self.stack.folder / "logs")
        return self.outputs | dict(files_below(*folders)) | dict(command_lines())


@pytest.fixture(scope="module")
def secretive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secretive]:
    folder, files = tmp_path_factory.mktemp("out"), tmp_path_factory.mktemp("secrets")
    known = Known(files)
    token = {"FIRN_INGEST_HTTP__TOKEN": known.make("serve-token"), "FIRN_INGEST_TOPICS": TOPICS}
    with (
        Stack(tmp_path_factory.mktemp("stack"), warehouse="s3://firn-warehouse/secrets", tied=True) as stack,
        ExitStack() as ends,
    ):
        stack.start("kafka", "catalog", "ingest-serve", database="postgres", environment=token)
        own = stack.environment()
        known.add("s3", own["FIRN_STORAGE_S3__SECRET_ACCESS_KEY"])
        # This PostgreSQL lets everybody in, with whatever password.
        own["FIRN_CATALOG_DATABASE_URL"] = _with_password(own, known.make("database"))
        audit = {"FIRN_CATALOG_AUDIT__ENABLED": "true", "FIRN_CATALOG_AUDIT__URI": f"http://{NOWHERE}"}
        audit |= {"FIRN_CATALOG_AUDIT__FOLDER": str(folder / "catalog-audit")}
        keys, catalog = _keyed_catalog(folder, known, own | audit)
        ends.callback(catalog.kill)
        of_api = {
            "FIRN_QUERY_CATALOG__TOKEN": keys["room"],
            "FIRN_QUERY_INGEST__TOKEN": token["FIRN_INGEST_HTTP__TOKEN"],
            "FIRN_QUERY_TRINO__PASSWORD": known.make("trino-password"),
        }
        plain = {
            "FIRN_QUERY_CATALOG__URI": catalog.address,
            "FIRN_QUERY_INGEST__URI": stack.address("ingest-serve"),
            "FIRN_QUERY_TRINO__URI": f"https://{NOWHERE}",
            "FIRN_QUERY_STATE": str(folder / "state"),
            "FIRN_QUERY_AUDIT__ENABLED": "true",
        }
        api = Child("query", folder, {**own, **plain, **known.variables(of_api)}).start()
        ends.callback(api.kill)
        made = Secretive(stack, folder, known, catalog, api, keys, ends)
        _store(made)
        yield made


def _store(at: Secretive) -> None:
    """A tenant with a table on S3: one hour to merge, and one that Spark merges because it has deletes."""
    given = {
        name.removeprefix("FIRN_STORAGE_").lower(): value
        for name, value in at.stack.environment().items()
        if name.startswith("FIRN_STORAGE_")
    }
    storage = AnyStorage(StorageSettings.load(**given))
    with closing(CatalogClient(at.catalog.address, token=at.keys["room"])) as client:
        table = SmallFiles(client, storage, TENANT)
        plain, deleted = this_hour() - 3, this_hour() - 4
        for hour in (plain, deleted):
            table.append(hour, 10, times=4)
        view = load_view(client, storage, table.name)
        assert view is not None
        uri = min(file.uri for file in view.partitions()[deleted].files)
        delete_positions(table, deleted, {uri: [0, 3]})


def _with_password(environment: Mapping[str, str], password: str) -> str:
    """The address of the stack's database with a password in it."""
    return re.sub(r"firn(:[^@]*)?@", f"firn:{password}@", environment["FIRN_CATALOG_DATABASE_URL"])


def _keyed_catalog(
    folder: Path, known: Known, environment: Mapping[str, str]
) -> tuple[dict[str, str], Child]:
    """A second catalog over the stack's database, which asks for keys; those are secrets from now on."""
    hidden = {
        "FIRN_CATALOG_DATABASE_URL": environment["FIRN_CATALOG_DATABASE_URL"],
        "FIRN_CATALOG_AUDIT__TOKEN": known.make("audit-token"),
    }
    variables = {
        **{name: value for name, value in environment.items() if name not in hidden},
        **known.variables(hidden),
    }
    made = run("catalog", variables, "key", "create", "--scope", "admin")
    assert made.returncode == 0, made.stderr
    keys = {"admin": made.stdout.strip()}
    catalog = Child("catalog", folder, variables).start()
    with closing(CatalogClient(catalog.address, token=keys["admin"])) as client:
        keys["room"] = str(client.post("/firn/v1/keys", {"scope": "write"})["key"])
    for name, key in keys.items():
        known.add(f"{name} key", key.split("_", 2)[2])
    return keys, catalog


def _count(secretive: Secretive, record_property: Callable[[str, object], None]) -> None:
    outputs = secretive.everything()
    found = secretive.known.found_in(outputs)
    record_property("secrets_found_in_output", len(found))
    assert found == []
    assert sum(map(len, outputs.values())) > 10_000


@pytest.mark.timeout(600)
def test_no_secret_comes_out_of_catalog_and_api(
    secretive: Secretive, record_property: Callable[[str, object], None]
) -> None:
    """Requests that are answered, that are wrong, that meet services which do not answer; settings in the
    audit trail, metrics, documents."""
    at, bearer = secretive, {"Authorization": f"Bearer {secretive.keys['admin']}"}
    for path in ("/metrics", "/readyz", "/healthz"):
        for address in (at.catalog.address, at.api.address, at.stack.address("ingest-serve")):
            at.ask("GET", f"{address}{path}", headers=bearer)
    for path in (
        "/firn/v1/keys",
        "/firn/v1/whoami",
        "/v1/config",
        "/v1/namespaces/acme/tables/logs",
        "/v1/nothing",
    ):
        at.ask("GET", f"{at.catalog.address}{path}", headers=bearer)
    _, key_id, secret = at.keys["admin"].split("_", 2)
    form = {"grant_type": "client_credentials", "client_id": key_id, "client_secret": secret}
    bought = at.ask("POST", f"{at.catalog.address}/v1/oauth/tokens", data=form).json()["access_token"]
    at.outputs.popitem()  # who buys a token is told it
    at.known.add("token", str(bought))
    at.ask("POST", f"{at.catalog.address}/v1/oauth/tokens", data=form | {"scope": secret, "grant_type": "x"})
    for header in (
        at.keys["admin"],
        f"Basic {at.keys['admin']}",
        f"Bearer  {at.keys['admin']}",
        f"Bearer {bought}x",
    ):
        at.ask("GET", f"{at.catalog.address}/v1/namespaces", headers={"Authorization": header})
        at.ask("GET", f"{at.api.address}/v1/tenants", headers={"Authorization": header})
    made = at.ask(
        "POST", f"{at.catalog.address}/firn/v1/keys", headers=bearer, json={"scope": "read", "note": "n"}
    )
    at.outputs.popitem()
    at.known.add("made key", str(made.json()["key"]).split("_", 2)[2])
    at.ask("POST", f"{at.catalog.address}/firn/v1/keys", headers=bearer, content=b'{"scope": "re')
    for engine in ("duckdb", "trino"):
        body = {"tenant": TENANT, "from": "now-1d", "to": "now", "engine": engine}
        at.ask("POST", f"{at.api.address}/v1/search", headers=bearer, json=body)
    at.ask("POST", f"{at.api.address}/v1/sql", headers=bearer, json={"sql": f"SELECT * FROM {TENANT}.logs"})
    for path in ("/v1/health", "/v1/tenants", f"/v1/dead-letters?tenant={TENANT}", "/openapi.json"):
        at.ask("GET", f"{at.api.address}{path}", headers=bearer)
    spooled = b"".join(content for name, content in files_below(at.folder) if "audit" in name)
    assert spooled.count(b"service.start") >= 2
    assert b"key.create" in spooled
    _count(at, record_property)


@pytest.mark.timeout(600)
def test_no_secret_stands_on_a_command_line(secretive: Secretive) -> None:
    """`ps` shows no secret of any process of a stack, nor the address of its database."""
    stack = secretive.stack
    hidden = {*secretive.known.texts.values(), stack.environment()["FIRN_CATALOG_DATABASE_URL"]}
    pids = {process.pid for record in stack.read().services.values() for process in processes.members(record)}
    listed = dict(command_lines())
    shown = [listed[f"command line of {pid}"] for pid in pids if f"command line of {pid}" in listed]
    assert len(shown) >= 5
    assert [line for line in shown if any(secret.encode() in line for secret in hidden)] == []


@pytest.mark.prove
@pytest.mark.timeout(600)
def test_no_secret_comes_out_of_what_cannot_reach_what_it_needs(
    secretive: Secretive, record_property: Callable[[str, object], None]
) -> None:
    """Wrong passwords of the database, of S3 and of Kafka, in every way that Kafka takes them: services and
    commands say what is wrong, and nothing of what they know."""
    at = secretive
    own = at.stack.environment()
    away = _with_password(own, at.known.make("wrong-database"))
    for url in (re.sub(r"@[^/]*/", f"@{NOWHERE}/", away), re.sub(r"/[^/]*$", "/no-such-database", away)):
        assert at.verb("catalog", {**own, "FIRN_CATALOG_DATABASE_URL": url}, "key", "list") != 0
    broken = {**own, "FIRN_STORAGE_S3__SECRET_ACCESS_KEY": at.known.make("wrong-s3")}
    key = {
        "FIRN_OPTIMIZE_CATALOG__TOKEN": at.keys["room"],
        "FIRN_OPTIMIZE_LAG__INGEST_TOKEN": at.known.make("lag"),
    }
    uri = {
        "FIRN_OPTIMIZE_CATALOG__URI": at.catalog.address,
        "FIRN_OPTIMIZE_LAG__INGEST_URI": f"http://{NOWHERE}",
    }
    at.verb("optimize", {**broken, **uri, **at.known.variables(key)}, "run", "--once")
    client = {"FIRN_QUERY_CLIENT__KEY": f"{at.keys['admin']}x", "FIRN_QUERY_CLIENT__URI": at.api.address}
    assert at.verb("query", client, "sql", "SELECT 1") != 0
    for kind, access in _kafka_accesses(at.known, own["FIRN_INGEST_KAFKA__BOOTSTRAP_SERVERS"], at.folder):
        beside = {
            "FIRN_INGEST_REGISTRY__PASSWORD": at.known.make(f"registry-{kind}"),
            "FIRN_INGEST_HTTP__TOKEN": at.known.make(f"token-{kind}"),
            "FIRN_INGEST_CATALOG__TOKEN": at.keys["room"],
            "FIRN_INGEST_INTERNAL_TOPICS__SIGNING_KEYS": orjson.dumps(
                [at.known.make(f"signing-{kind}")]
            ).decode(),
        }
        port = reserve_free()
        plain = {
            "FIRN_INGEST_CATALOG__URI": at.catalog.address,
            "FIRN_INGEST_NODE__PORT": str(port),
            "FIRN_INGEST_REGISTRY__URL": f"http://{NOWHERE}",
            "FIRN_INGEST_REGISTRY__USER": "firn",
            "FIRN_INGEST_TOPICS": TOPICS,
        }
        hidden = at.known.variables(beside | access.hidden)
        environment = {**own, **plain, **access.plain, **hidden}
        for verb in ("access-list", "status"):
            at.verb("ingest", environment, verb)
        process = at.started("ingest", environment, "run")
        at.wait_for_words(process)
        token = {"Authorization": f"Bearer {beside['FIRN_INGEST_HTTP__TOKEN']}"}
        for path in ("/readyz", "/metrics", "/v1/status", "/openapi.json"):
            if process.poll() is None and _listens(port):
                at.ask("GET", f"http://{LOOPBACK}:{port}{path}", headers=token, note=kind)
        process.kill()
    _count(at, record_property)


@dataclass(frozen=True)
class KafkaAccess:
    """How Kafka is reached: variables that everybody may see, and others."""

    plain: Mapping[str, str]
    hidden: dict[str, str]


def _kafka_accesses(known: Known, servers: str, folder: Path) -> list[tuple[str, KafkaAccess]]:
    prefix = "FIRN_INGEST_KAFKA__"
    key = folder / "broken.pem"
    key.write_text("no key at all")

    def access(hidden: Mapping[str, str], **plain: str) -> KafkaAccess:
        named = {f"{prefix}{name.upper()}": value for name, value in plain.items()}
        return KafkaAccess(
            {f"{prefix}BOOTSTRAP_SERVERS": servers, **named},
            {f"{prefix}{name}": value for name, value in hidden.items()},
        )

    return [
        (
            "scram",
            access(
                {"SASL_PASSWORD": known.make("sasl"), "OPTIONS": orjson.dumps({"debug": "all"}).decode()},
                security_protocol="SASL_PLAINTEXT",
                sasl_mechanism="SCRAM-SHA-512",
                sasl_username="firn",
            ),
        ),
        (
            "oauth",
            access(
                {"OAUTH_CLIENT_SECRET": known.make("oauth")},
                security_protocol="SASL_PLAINTEXT",
                sasl_mechanism="OAUTHBEARER",
                oauth_token_endpoint=f"https://{NOWHERE}/token",
                oauth_client_id="firn",
            ),
        ),
        (
            "certificate",
            access(
                {"SSL_KEY_PASSWORD": known.make("key-password")},
                security_protocol="SSL",
                ssl_certificate=str(key),
                ssl_key=str(key),
            ),
        ),
    ]


def _listens(port: int) -> bool:
    try:
        return http.get(f"http://{LOOPBACK}:{port}/healthz", timeout=5.0).status_code > 0
    except httpx.HTTPError:
        return False


@pytest.mark.prove
@pytest.mark.finding(39)
@pytest.mark.timeout(600)
def test_no_secret_is_told_by_spark(
    secretive: Secretive, record_property: Callable[[str, object], None]
) -> None:
    """A merge on Spark, with the key of the catalog and of S3: its events, its page of settings, its
    statements and its log."""
    at = secretive
    events, port = at.folder / "events", reserve_free()
    events.mkdir()
    options = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.ui.enabled": "true",
        "spark.ui.port": str(port),
        "spark.log.level": "INFO",
    }
    hidden = at.known.variables({"FIRN_OPTIMIZE_CATALOG__TOKEN": at.keys["room"]})
    plain = {
        "FIRN_OPTIMIZE_CATALOG__URI": at.catalog.address,
        "FIRN_OPTIMIZE_SPARK__OPTIONS": orjson.dumps(options).decode(),
        # Then hours are merged by a procedure of SQL, in a session that knows the key and S3's secret.
        "FIRN_OPTIMIZE_MERGE__REWRITE_BYTES_MIN": "1",
    }
    environment = {**at.stack.environment(), **spark_environment(), **plain, **hidden}
    process = at.started("optimize", environment, "run", "--once")
    pages = ("/environment/", "/SQL/", "/jobs/", "/api/v1/applications")

    def looked() -> bool:
        try:
            for page in pages:
                at.ask("GET", f"http://{LOOPBACK}:{port}{page}", follow_redirects=True)
        except httpx.HTTPError:
            return process.poll() is not None
        return process.poll() is not None

    wait_for(looked, 240.0, "the round")
    assert process.poll() == 0, at.logged("optimize")[-4_000:]
    told = b"".join(content for _, content in files_below(events))
    assert b"SparkListenerEnvironmentUpdate" in told
    assert b"SparkListenerSQLExecutionStart" in told
    assert any("/environment/" in where for where in at.outputs)
    _count(at, record_property)


def test_a_secret_that_comes_out_is_found(tmp_path: Path) -> None:
    """Plain, in a URL, in base64 at any place, cut short; in a file, in an answer, on a command line."""
    known = Known(tmp_path)
    secret = known.make("a/b")
    assert len(forms(secret)) >= 6
    for form in forms(secret):
        assert known.found_in({"here": b"x" + form + b"x", "there": b""}) == ["a/b in here"]
    assert known.found_in({"here": secret[:20].encode()}) == []
    with pytest.raises(ValueError, match="short"):
        known.add("short", "abc")
