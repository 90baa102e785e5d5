"""What the checks of `python -m infra doctor --production` say of facts. How they get them on the real
services: test_production_on_stack.py."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from confluent_kafka import KafkaError, KafkaException

from infra.local.ports import reserve_free
from infra.production import (
    addresses,
    callers,
    certificates,
    clocks,
    database,
    kafka_brokers,
    kafka_rights,
    kafka_topics,
    kafka_transport,
    kafka_writers,
    retention,
    secret_values,
    storage,
    trino,
    versions,
)
from infra.production.examination import CHECKS, examine
from infra.production.finding import Finding, Verdict
from infra.production.kafka_writers import Allowed
from infra.production.rooms import Rooms
from lake.errors import UnavailableError
from lake.kafka_access_list import OF_INPUT, Grant
from lake.tenant import TenantId
from query.access.trino_access import RULES, write_access
from tests.stack.support.certificates import CertificateAuthority

NOW = datetime(2026, 11, 26, 8, 0, tzinfo=UTC)
OPEN, SHUT = 0o755, 0o750
FOLDER = Path("/warehouse")
WANTED = [Grant("topic", "logs", OF_INPUT), Grant("group", "firn", ("READ", "DESCRIBE"))]
ALLOWED = {("topic", "logs"): OF_INPUT, ("group", "firn"): ("READ", "DESCRIBE", "DELETE")}
WRITERS = [
    Allowed("User:firn", "LITERAL", "firn.parked", "WRITE"),
    Allowed("User:a", "LITERAL", "firn.parked", "READ"),
    Allowed("User:a", "PREFIXED", "firn.parked.", "WRITE"),
    Allowed("User:a", "LITERAL", "firn.", "WRITE"),
]
KEPT = {"retention.ms": "-1", "cleanup.policy": "delete"}


def at(seconds: float) -> str:
    """A moment as HTTP tells it."""
    return f"{NOW + timedelta(seconds=seconds):%a, %d %b %Y %H:%M:%S} GMT"


@pytest.mark.parametrize(
    ("finding", "verdict", "words"),
    [
        (addresses.judge({"a": "http://127.0.0.1:1", "b": "https://x", "c": ""}), "ok", "https"),
        (
            addresses.judge({"a": "https://x", "query.trino.uri": "http://trino:1"}),
            "unsafe",
            "query.trino.uri",
        ),
        (certificates.judge("that of x", NOW, NOW), "unsafe", "that of x has expired on 2026-11-26"),
        (certificates.judge("that of x", NOW + certificates.SOON, NOW), "warning", "2026-12-10 08:00 UTC"),
        (certificates.judge("that of x", NOW + timedelta(days=15), NOW), "ok", "until 2026-12-11"),
        (callers.judge("https://c", 401), "ok", "asks callers for a key"),
        (callers.judge("https://c", 200), "unsafe", "catalog key create"),
        (callers.judge("https://c", 502), "unknown", "502"),
        (callers.judge_port("0.0.0.0", has_tls=False), "warning", "catalog.tls.certificate"),
        (callers.judge_port("0.0.0.0", has_tls=True), "ok", "with TLS"),
        (callers.judge_port("127.0.0.1", has_tls=False), "ok", "without TLS"),
        (secret_values.judge({"a": "0123456789ab"}), "ok", "none of 1"),
        (secret_values.judge({"a": "0123456789a"}), "warning", "a: shorter than 12"),
        (secret_values.judge({"a": "0123456789ab", "b.c": "MinioAdmin"}), "unsafe", "b.c: everybody knows"),
        (secret_values.judge_absent([]), "ok", "none is missing"),
        (secret_values.judge_absent(["ingest.http.token"]), "unsafe", "ingest.http.token not set"),
        (secret_values.judge_files({Path("/k"): 0o640}), "ok", "1 files"),
        (secret_values.judge_files({Path("/k"): 0o640, Path("/l"): 0o644}), "unsafe", "may read /l; take"),
        (database.judge("sqlite:///state/catalog.db"), "warning", "SQLite"),
        (database.judge("postgresql+psycopg://firn:p@127.0.0.1/firn"), "ok", "PostgreSQL"),
        (database.judge("postgresql://u:p@db/firn?sslmode=verify-full&x=1"), "ok", "PostgreSQL"),
        (database.judge("postgresql://u:p@db/firn?sslmode=require"), "warning", "sslmode is require"),
        (database.judge("postgresql://u:p@db/firn?sslmode=prefer"), "unsafe", "sslmode=verify-full"),
        (storage.judge_folder(FOLDER, None, may_write=False), "warning", "there is no folder"),
        (storage.judge_folder(FOLDER, OPEN, may_write=True), "unsafe", "chmod o= /warehouse"),
        (storage.judge_folder(FOLDER, SHUT, may_write=False), "warning", "may not write"),
        (storage.judge_folder(FOLDER, SHUT, may_write=True), "ok", "Firn's alone"),
        (storage.judge_rights("s3://b/t", {}), "ok", "deleted"),
        (storage.judge_rights("s3://b/t", {"list": "denied"}), "unsafe", "list: denied"),
        (storage.judge_strangers("b", 200), "unsafe", "public access"),
        (storage.judge_strangers("b", 403), "ok", "without credentials"),
        (storage.judge_strangers("b", 500), "unknown", "500"),
        (retention.judge({None: "30d", "acme": ""}), "ok", "30d"),
        (retention.judge({None: "", "acme": "30d", "globex": ""}), "unsafe", "1 tenants"),
        (retention.judge({}), "unsafe", "catalog.retention"),
        (kafka_transport.judge("SASL_SSL", "k:1", {}), "ok", "SASL_SSL"),
        (kafka_transport.judge("PLAINTEXT", "k:1", {}), "unsafe", "security_protocol"),
        (kafka_transport.judge("SASL_PLAINTEXT", "127.0.0.1:1,k:1", {}), "unsafe", "SASL_PLAINTEXT"),
        (kafka_transport.judge("PLAINTEXT", "127.0.0.1:1, localhost:1", {}), "warning", "security_protocol"),
        (
            kafka_transport.judge("SSL", "k:1", {"enable.ssl.certificate.verification": "False"}),
            "unsafe",
            "enable.ssl.certificate.verification",
        ),
        (kafka_brokers.judge("1", {"offsets.retention.minutes": "10080"}), "ok", "7 days"),
        (kafka_brokers.judge("1", {"offsets.retention.minutes": "10079"}), "unsafe", "10080 or more"),
        (
            kafka_brokers.judge("1", {"auto.create.topics.enable": "true"}),
            "warning",
            "auto.create.topics.enable=false",
        ),
        (kafka_topics.judge("firn.parked", KEPT, 3, keeps_for_ever=True), "ok", "3 copies"),
        (kafka_topics.judge("firn.parked", KEPT, 1, keeps_for_ever=True), "warning", "three replicas"),
        (
            kafka_topics.judge("firn.parked", KEPT | {"retention.ms": "1"}, 3, keeps_for_ever=True),
            "unsafe",
            "retention.ms=-1",
        ),
        (
            kafka_topics.judge("firn.parked", KEPT | {"cleanup.policy": "compact"}, 3, keeps_for_ever=True),
            "unsafe",
            "cleanup.policy=delete",
        ),
        (
            kafka_topics.judge("other", KEPT | {"retention.ms": "1"}, 2, keeps_for_ever=False),
            "ok",
            "2 copies",
        ),
        (kafka_rights.judge(WANTED, ALLOWED), "ok", "2 topics and groups"),
        (
            kafka_rights.judge(WANTED, ALLOWED | {("topic", "logs"): ("DESCRIBE",)}),
            "unsafe",
            "topic logs: DESCRIBE_CONFIGS, READ",
        ),
        (
            kafka_rights.judge(WANTED, ALLOWED | {("group", "firn"): ()}),
            "unsafe",
            "group firn: DESCRIBE, READ",
        ),
        (
            kafka_rights.judge(WANTED, ALLOWED | {("topic", "logs"): (*OF_INPUT, *kafka_rights.EVERYTHING)}),
            "unsafe",
            "everything to logs",
        ),
        (kafka_rights.judge(WANTED, {("topic", "logs"): OF_INPUT}), "unknown", "nothing is known of firn"),
        (kafka_writers.judge(["firn.parked"], WRITERS, "User:firn"), "ok", "nobody but User:firn"),
        (
            kafka_writers.judge(
                ["firn.parked"], [*WRITERS, Allowed("User:a", "LITERAL", "*", "ALL")], "User:firn"
            ),
            "warning",
            "User:a to firn.parked",
        ),
        (
            kafka_writers.judge(
                ["firn.parked"], [Allowed("User:a", "PREFIXED", "firn.", "WRITE")], "User:firn"
            ),
            "warning",
            "User:a to firn.parked",
        ),
        (kafka_writers.judge(["firn.parked"], [], "User:firn"), "unknown", "DESCRIBE of the cluster"),
        (trino.judge("https://t", 401), "ok", "asks for a password"),
        (trino.judge("https://t", 200), "unsafe", "trino-access"),
        (trino.judge("https://t", 503), "unknown", "503"),
        (clocks.judge("https://c", at(4), NOW), "ok", "within 5 s"),
        (clocks.judge("https://c", at(-6), NOW), "warning", "6 s away"),
        (clocks.judge("https://c", at(61), NOW), "unsafe", "61 s away"),
        (clocks.judge("https://c", None, NOW), "unknown", "does not tell"),
        (versions.judge_python((3, 10), "3.10"), "unsafe", "3.11 or newer"),
        (versions.judge_python((3, 11), "3.11"), "ok", "3.11"),
        (versions.judge_trino("475"), "warning", f"{versions.tested_trino()} is tested"),
        (versions.judge_trino(versions.tested_trino()), "ok", "is the one"),
    ],
)
def test_a_check_says_what_facts_mean(finding: Finding, verdict: str, words: str) -> None:
    """By one word, and a sentence that names what to do."""
    assert (str(finding.verdict), words in finding.sentence) == (verdict, True), finding


def test_rules_of_trino_are_those_that_the_verb_writes(tmp_path: Path) -> None:
    """As they are written all is well; without the file, without passwords, or with a rule that lets people
    write, it is not."""
    write_access(tmp_path, [TenantId("acme")], "lake", ("firn", None))
    assert trino.judge_rules(tmp_path, "lake").verdict is Verdict.OK
    rules = json.loads((tmp_path / RULES).read_text())
    rules["catalogs"].append({"user": ".*", "catalog": "lake", "allow": "all"})
    (tmp_path / RULES).write_text(json.dumps(rules))
    assert "lets people write" in trino.judge_rules(tmp_path, "lake").sentence
    (tmp_path / RULES).write_text("{}")
    assert trino.judge_rules(tmp_path, "lake").verdict is Verdict.UNSAFE
    (tmp_path / RULES).unlink()
    assert "no rules that can be read" in trino.judge_rules(tmp_path, "lake").sentence


def test_certificates_of_the_settings_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first end of those in a file; of a service that does not answer nothing is known. A private key
    that everybody may read is named."""
    monkeypatch.setenv("FIRN_CONFIG", "")
    authority = CertificateAuthority(tmp_path)
    authority.sign("firn", ended=True)
    chain = tmp_path / "chain.pem"
    chain.write_bytes(authority["firn.key"].read_bytes() + authority["firn.pem"].read_bytes())
    for name, path in (("CERTIFICATE", chain), ("KEY", authority["firn.key"])):
        monkeypatch.setenv(f"FIRN_CATALOG_TLS__{name}", str(path))
    monkeypatch.setenv("FIRN_INGEST_CATALOG__URI", f"https://127.0.0.1:{reserve_free()}")
    own, nobody = certificates.look(Rooms.load())
    assert (own.verdict, nobody.verdict) == (Verdict.UNSAFE, Verdict.UNKNOWN)
    assert "the certificate of catalog.tls.certificate has expired" in own.sentence
    authority["firn.key"].chmod(0o644)
    assert str(authority["firn.key"]) in list(secret_values.look(Rooms.load()))[2].sentence


def test_secrets_are_named_and_never_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The password in a URL of a database, one in a file, and lists; what guards nothing may be absent."""
    monkeypatch.setenv("FIRN_CONFIG", "")
    file = tmp_path / "token"
    file.write_text("hunter22hunter22")
    file.chmod(0o644)
    monkeypatch.setenv("FIRN_INGEST_HTTP__TOKEN_FILE", str(file))
    monkeypatch.setenv("FIRN_CATALOG_DATABASE_URL", "postgresql+psycopg://firn:postgres@db/firn")
    monkeypatch.setenv("FIRN_INGEST_INTERNAL_TOPICS__SIGNING_KEYS", '["0123456789abcdef"]')
    monkeypatch.setenv("FIRN_INGEST_NODE__HOST", "0.0.0.0")
    known, absent, files = secret_values.look(Rooms.load())
    assert (known.verdict, absent.verdict, files.verdict) == (Verdict.UNSAFE, Verdict.OK, Verdict.UNSAFE)
    assert "catalog.database_url: everybody" in known.sentence
    assert str(file) in files.sentence
    monkeypatch.setenv("FIRN_CATALOG_DATABASE_URL", "postgresql+psycopg://firn:fb8fa26dc1e0@db/firn")
    known, _, _ = secret_values.look(Rooms.load())
    assert "none of 3 is known or short" in known.sentence
    monkeypatch.delenv("FIRN_INGEST_HTTP__TOKEN_FILE")
    monkeypatch.delenv("FIRN_INGEST_INTERNAL_TOPICS__SIGNING_KEYS")
    monkeypatch.setenv("FIRN_INGEST_KAFKA__BOOTSTRAP_SERVERS", "127.0.0.1:1,kafka:9092")
    _, absent, _ = secret_values.look(Rooms.load())
    assert "ingest.internal_topics.signing_keys, ingest.http.token not set" in absent.sentence
    told = " ".join(each.sentence for each in (known, absent, files))
    assert not any(secret in told for secret in ("hunter22", "firn:postgres", "0123456789abcdef"))


@pytest.mark.parametrize(
    "error",
    [
        UnavailableError("nobody there"),
        KafkaException(KafkaError(KafkaError._TRANSPORT, "nobody there")),
        httpx.ConnectError("nobody there"),
        ValueError("nobody there"),
    ],
)
def test_a_world_that_does_not_answer_is_unknown(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was found before it stays, and other checks are made; each says its name."""
    monkeypatch.setenv("FIRN_CONFIG", "")

    def look(_: Rooms) -> Iterator[Finding]:
        yield Finding("first", Verdict.OK, "seen")
        raise error

    for check in CHECKS:
        monkeypatch.setattr(check, "look", look)
    found = examine(Rooms.load())
    assert [each.verdict for each in found] == [Verdict.OK, Verdict.UNKNOWN] * len(CHECKS)
    assert {each.check for each in found if each.verdict is Verdict.UNKNOWN} == {each.NAME for each in CHECKS}
    assert all("nobody there" in each.sentence for each in found if each.verdict is Verdict.UNKNOWN)
