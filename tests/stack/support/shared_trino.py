"""One Trino for all processes of a run of tests: each stack has a catalog of its own there, and its state
tells of that Trino as of one that it started itself."""

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

FOLDER_VARIABLE = "FIRN_TEST_TRINO"
CATALOG_VARIABLE = "FIRN_QUERY_TRINO__CATALOG"
# For the questions of all.
HEAP = {"FIRN_INFRA_TRINO__HEAP_MB": "2048"}
# What the catalog is that this Trino starts with, which nobody asks.
NOWHERE = "http://127.0.0.1:9"
DYNAMIC = {"JDK_JAVA_OPTIONS": "-Dcatalog.management=dynamic"}


def start_trino(folder: Path) -> Stack:
    """Starts it, or waits for whoever does; it ends with the process that did."""
    os.environ.update({name: os.environ.get(name, value) for name, value in HEAP.items()})
    stack = Stack(folder, tied=True)
    stack.start("trino", catalog_uri=NOWHERE, environment=DYNAMIC)
    return stack


@contextmanager
def trino_of_the_run(folder: Path) -> Iterator[None]:
    """For the process that others come from: one is started, and they are told."""
    os.environ[FOLDER_VARIABLE] = str(folder)
    starting = Thread(target=start_trino, args=(folder,), daemon=True)
    starting.start()
    try:
        yield
    finally:
        starting.join()
        Stack(folder).stop()
        del os.environ[FOLDER_VARIABLE]


@contextmanager
def shared_trino(folder: Path) -> Iterator[Stack]:
    """The Trino of the run; where nobody told of one, one of this process."""
    told = os.environ.get(FOLDER_VARIABLE)
    try:
        yield start_trino(Path(told or folder))
    finally:
        if not told:
            Stack(folder).stop()


def lend(shared: Stack, stack: Stack) -> None:
    """Makes a catalog of a stack's tables on that Trino. The stack does not end what it did not start."""
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
