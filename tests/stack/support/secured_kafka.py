"""A Kafka with users, TLS and access lists: what it is started with, and what a test lets Firn do."""

import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from infra.local import kafka_access
from infra.local.kafka_access import ADMIN, FIRN, administrator, password_file
from infra.local.ports import LOOPBACK
from infra.local.supervisor import Stack
from lake.kafka_access_list import Grant, grants
from lake.settings import InfraSettings, IngestKafka, IngestSettings, InternalTopics, TopicSettings
from tests.stack.support.certificates import CertificateAuthority

ACCESS_VARIABLE = "FIRN_INFRA_KAFKA__ACCESS"
ITERATIONS = 4096
ANSWER_S = 30.0


class SecuredKafka:
    """Certificates and passwords in a folder, made before the stack is."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.certificates = CertificateAuthority(folder)
        self.certificates.sign("broker")
        self.certificates.sign(FIRN)
        broker = folder / "broker.pem"
        broker.write_bytes(broker.with_suffix(".key").read_bytes() + broker.read_bytes())
        for user in (ADMIN, FIRN):
            password_file(folder, user).write_text(f"{secrets.token_hex(16)}\n")

    @property
    def password(self) -> str:
        """Of Firn's user, as its file has it."""
        return _password(self.folder)

    def write_password(self, password: str) -> None:
        """Changes it in the file, in one step, not in Kafka."""
        file = password_file(self.folder, FIRN)
        beside = file.with_suffix(".new")
        beside.write_text(password)
        beside.rename(file)


@contextmanager
def secured_kafka(folder: Path) -> Iterator[SecuredKafka]:
    """Has every Kafka that is started meanwhile be one with users, and all clients of tests know it."""
    made = SecuredKafka(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(ACCESS_VARIABLE, os.fspath(folder))
        set_all(patch, kafka_access.exports(folder))
        yield made


def set_all(patch: pytest.MonkeyPatch, variables: Mapping[str, str]) -> None:
    """Sets environment variables until the patch is undone."""
    for name, value in variables.items():
        patch.setenv(name, value)


def admit(servers: str) -> None:
    """Makes Firn a user of a Kafka that has users, with the password of its file and no rights."""
    access = InfraSettings.load().kafka.access
    if access is not None:
        set_password(servers, _password(access))


def set_password(servers: str, password: str) -> None:
    """Changes that of Firn's user in Kafka, not in the file."""
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, ITERATIONS)
    change = UserScramCredentialUpsertion(FIRN, info, password.encode())
    admin = AdminClient(administrator(servers))
    for answer in admin.alter_user_scram_credentials([change]).values():
        answer.result(ANSWER_S)


def _password(folder: Path) -> str:
    return password_file(folder, FIRN).read_text().strip()


def needed(variables: Mapping[str, str]) -> list[Grant]:
    """What Firn's user needs for the settings in environment variables."""
    own = {
        name: value
        for name in ("dead_letters", "parked", "replay")
        if (value := variables.get(f"FIRN_INGEST_INTERNAL_TOPICS__{name.upper()}"))
    }
    topics = orjson.loads(variables.get("FIRN_INGEST_TOPICS", "[]"))
    settings = IngestSettings.model_construct(
        topics=tuple(map(TopicSettings.model_validate, topics)),
        kafka=IngestKafka(group=variables["FIRN_INGEST_KAFKA__GROUP"]),
        internal_topics=InternalTopics.model_validate(own),
    )
    return grants(settings)


def grant(servers: str, wanted: Iterable[Grant]) -> None:
    """Lets Firn's user do that; on a Kafka without users everybody may."""
    if InfraSettings.load().kafka.access is None:
        return
    bindings = [
        AclBinding(
            ResourceType[each.kind.upper()],
            each.name,
            ResourcePatternType.LITERAL,
            f"User:{FIRN}",
            "*",
            AclOperation[operation],
            AclPermissionType.ALLOW,
        )
        for each in wanted
        for operation in each.operations
    ]
    admin = AdminClient(administrator(servers))
    for answer in admin.create_acls(bindings).values():
        answer.result(ANSWER_S)


def mutual_address(stack: Stack) -> str:
    """Where clients show certificates."""
    return f"{LOOPBACK}:{stack.read().services['kafka'].ports['mutual']}"


def by_certificate(stack: Stack, kafka: SecuredKafka) -> dict[str, str]:
    """Settings with which Firn comes in by its certificate alone."""
    return {
        "kafka__bootstrap_servers": mutual_address(stack),
        "kafka__security_protocol": "SSL",
        "kafka__sasl_mechanism": "",
        "kafka__sasl_username": "",
        "kafka__sasl_password_file": "",
        "kafka__ssl_certificate": os.fspath(kafka.folder / f"{FIRN}.pem"),
        "kafka__ssl_key": os.fspath(kafka.folder / f"{FIRN}.key"),
    }
