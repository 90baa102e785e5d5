"""One Kafka and one Trino for all processes of a run of tests. Each stack has a catalog of its own on that
Trino, and its state tells of both as of services that it started itself.

A broker takes a thirtieth of a processor while nobody asks it anything.
"""

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import trino

from infra.local import state as state_file
from infra.local.service import Site, host_port
from infra.local.services.trino import lake_properties
from infra.local.supervisor import Stack
from lake.settings import InfraSettings
from tests.stack.support.waiting import fresh

FOLDER_VARIABLE = "FIRN_TEST_SERVICES"
KAFKA_VARIABLE = "FIRN_TEST_KAFKA"
CATALOG_VARIABLE = "FIRN_QUERY_TRINO__CATALOG"
# For the questions and topics of all.
HEAPS = {"FIRN_INFRA_TRINO__HEAP_MB": "2048", "FIRN_INFRA_KAFKA__HEAP_MB": "1024"}
# What the catalog is that this Trino starts with, which nobody asks.
NOWHERE = "http://127.0.0.1:9"
# Trino remembers queries and tasks for a quarter of an hour, and looks through all of them again and again.
TRINO_OPTIONS = "-Dcatalog.management=dynamic -Dquery.min-expire-age=30s -Dtask.info.max-age=30s"
ENVIRONMENT = {"JDK_JAVA_OPTIONS": TRINO_OPTIONS}  # Kafka knows nothing of these


def has_kafka() -> bool:
    """Whether Kafka is among them: one with users, TLS and access lists has those of one stack."""
    return not os.environ.get(KAFKA_VARIABLE)


def gives_tokens() -> bool:
    """Whether Firn comes into that Kafka by tokens, in place of a password."""
    return os.environ.get(KAFKA_VARIABLE) == "token"


def start_services(folder: Path) -> Stack:
    """Starts them, or waits for whoever does; they end with the process that did."""
    os.environ.update({name: os.environ.get(name, value) for name, value in HEAPS.items()})
    stack = Stack(folder, tied=True)
    names = ("kafka", "trino") if has_kafka() else ("trino",)
    stack.start(*names, catalog_uri=NOWHERE, environment=ENVIRONMENT)
    return stack


@contextmanager
def services_of_the_run(folder: Path) -> Iterator[None]:
    """For the process that others come from: they are started, and the others are told."""
    os.environ[FOLDER_VARIABLE] = str(folder)
    starting = Thread(target=start_services, args=(folder,), daemon=True)
    starting.start()
    try:
        yield
    finally:
        starting.join()
        Stack(folder).stop()
        del os.environ[FOLDER_VARIABLE]


@contextmanager
def shared_services(folder: Path) -> Iterator[Stack]:
    """Those of the run; where nobody told of any, some of this process."""
    told = os.environ.get(FOLDER_VARIABLE)
    try:
        yield start_services(Path(told or folder))
    finally:
        if not told:
            Stack(folder).stop()


def lend_kafka(shared: Stack, stack: Stack) -> None:
    """Makes the broker a stack's. The stack does not end what it did not start."""
    record = shared.read().record("kafka")
    state_file.save(stack.folder, stack.read().with_record(replace(record, launch="")))


def lend_trino(shared: Stack, stack: Stack) -> None:
    """Makes a catalog of a stack's tables on that Trino."""
    name = fresh("lake_")
    site = Site(stack.folder, stack.folder, {}, stack.read())
    properties = dict(line.split("=", 1) for line in lake_properties(site, InfraSettings.load()))
    connector = properties.pop("connector.name")
    listed = ", ".join(f"\"{key}\" = '{value}'" for key, value in properties.items())
    host, port = host_port(shared.address("trino"))
    connection: Any = trino.dbapi.Connection(host=host, port=port, user="test")
    with closing(connection):
        connection.cursor().execute(f"CREATE CATALOG {name} USING {connector} WITH ({listed})").fetchall()
    record = shared.read().record("trino")
    lent = replace(record, launch="", exports={**record.exports, CATALOG_VARIABLE: name})
    state_file.save(stack.folder, stack.read().with_record(lent))


def catalog_on_trino(stack: Stack) -> str:
    """The name of a stack's tables on its Trino."""
    return stack.environment().get(CATALOG_VARIABLE, "lake")
