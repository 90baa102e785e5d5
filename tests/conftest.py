"""What every room's tests share: the stack (started once per run, when the first test asks), and the data
sets."""

import gc
import os
import re
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import settings

from infra.local.supervisor import Stack
from lake import native_core
from lake.catalog_client import CatalogClient
from tests.stack.support import files_together
from tests.stack.support.eraser import Eraser
from tests.stack.support.files_together import FilesTogether
from tests.stack.support.ingester import Ingester
from tests.stack.support.kafka_topics import KafkaTopics
from tests.stack.support.line import Line, Sql
from tests.stack.support.secured_kafka import admit, secured_kafka
from tests.stack.support.shared_services import (
    gives_tokens,
    has_kafka,
    lend_kafka,
    lend_trino,
    services_of_the_run,
    shared_services,
)
from tests.ui.support.browser import browser, context, page, pytest_runtest_makereport, tab, ui_uri  # noqa: F401 - fixtures, for all that look at pages

# No deadline: on a busy machine the time of one example says nothing. FIRN_FUZZ_EXAMPLES: more of them, for a
# longer search (`make prove`); each run looks at others.
settings.register_profile("firn", deadline=None, max_examples=int(os.environ.get("FIRN_FUZZ_EXAMPLES", "15")))
settings.load_profile("firn")

# The expressions of `make test` for what needs no service, and of `make test-fast`.
PLAIN = frozenset({"not stack", "not stack and not long"})
STACK = "stack and"  # what the expressions of `make test` for the others begin with
ON_SHARED = "stack and shared"
SHARED = {"stack", "services", "spark"}
# Those of pages take the longest, and those of the line wait the most: begun last, they would have the
# machine to themselves at the end.
FIRST = ("ui", "stack", "faults")
# Asks for all tables of the catalog again and again: the fewer others have made before it, the better.
BEFORE_ALL = "test_routes.py"
DATASETS_VARIABLE = "FIRN_DATASETS"
PROVE_VARIABLE = "FIRN_PROVE"
ON_STACK = "pytest.mark.stack"
# A file all of whose tests need the services says so in this line.
ALL_ON_STACK = re.compile(rf"^pytestmark = .*\b{re.escape(ON_STACK)}\b", re.MULTILINE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves files unread of which no test is to run: what stack tests import (Playwright, Schemathesis,
    clients of engines) takes longer than most plain tests, and every process of a stack reads its own."""
    if not collection_path.name.startswith("test_"):
        return None
    if config.option.markexpr in PLAIN:
        return True if ALL_ON_STACK.search(collection_path.read_text()) else None
    if config.option.markexpr.startswith(STACK):
        return True if ON_STACK not in collection_path.read_text() else None
    return None


def pytest_configure(config: pytest.Config) -> None:
    """Has one Kafka and one Trino where several processes work, started by the one that they come from."""
    is_first = getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput")
    if is_first and config.option.markexpr == ON_SHARED:
        ends = ExitStack()
        config.add_cleanup(ends.close)
        ends.enter_context(services_of_the_run(Path(ends.enter_context(TemporaryDirectory()))))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FilesTogether | None:
    """Where files go to processes, those that share what takes long to start go to one."""
    return FilesTogether(config, log) if config.option.dist == "loadfile" else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Looks for no garbage while all modules are imported: what is made there stays, and to look through it
    again and again takes a sixth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses by the marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out the tests on data sets where none are named, those of the native core where there is none
    and the long proofs unless asked for, insists that tests with services say so, and marks those on the
    shared stack."""
    for item in items:
        if SHARED & set(getattr(item, "fixturenames", ())):
            item.add_marker("shared")
            if item.get_closest_marker("stack") is None:
                raise pytest.UsageError(f"{item.nodeid} needs the services: mark it with pytest.mark.stack")
            file = item.nodeid.split("::")[0]
            for fixture, files in files_together.FILES.items():
                if fixture in getattr(item, "fixturenames", ()) and file not in files:
                    raise pytest.UsageError(f"{file} uses {fixture}: name it in {files_together.__name__}")
    absent = {"datasets"} if not os.environ.get(DATASETS_VARIABLE) else set()
    if not os.environ.get(PROVE_VARIABLE):
        absent.add("prove")
    if isinstance(native_core.load(), native_core.Absent):
        absent.add("core")
    items.sort(key=_when)
    left_out = [item for item in items if any(item.get_closest_marker(name) is not None for name in absent)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def _when(item: pytest.Item) -> int:
    if item.path.name == BEFORE_ALL:
        return -1
    room = item.path.relative_to(Path(__file__).parent).parts[0]
    return FIRST.index(room) if room in FIRST else len(FIRST)


@pytest.fixture(scope="session")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Kafka and Trino, which stacks are lent."""
    with shared_services(tmp_path_factory.mktemp("services")) as shared:
        yield shared


@pytest.fixture(scope="session")
def stack(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Kafka, the catalog on SQLite, and Trino over a warehouse of local files. Tests share it: each takes
    fresh topics, groups and tenants. Kafka and Trino the processes of a run share, each with its own catalog.

    FIRN_TEST_KAFKA=secured: Kafka has users, TLS and access lists, and Firn the rights that it needs;
    FIRN_TEST_KAFKA=token: and Firn comes in by tokens of an issuer.
    """
    with ExitStack() as ends:
        if not has_kafka():
            ends.enter_context(_kafka_with_users(tmp_path_factory.mktemp("access")))
        stack = ends.enter_context(Stack(tmp_path_factory.mktemp("stack"), tied=True))
        with ThreadPoolExecutor() as beside:
            starting = beside.submit(stack.start, "catalog")
            shared: Stack = request.getfixturevalue("services")
            starting.result()
        lend_trino(shared, stack)
        if has_kafka():
            lend_kafka(shared, stack)
        else:
            stack.start("kafka")
            admit(stack.address("kafka"))
        yield stack


def _kafka_with_users(folder: Path) -> AbstractContextManager[object]:
    if gives_tokens():
        from tests.stack.support.token_issuer import kafka_by_token  # others need no issuer's library

        return kafka_by_token(folder)
    return secured_kafka(folder)


@pytest.fixture(scope="session")
def kafka(stack: Stack) -> KafkaTopics:
    """The broker: `topic`, `produce`, `read`, `dead_letters`."""
    return KafkaTopics(stack.address("kafka"))


@pytest.fixture(scope="session")
def line(stack: Stack, kafka: KafkaTopics, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Line]:
    """The services of the shared stack as one object."""
    line = Line(stack, kafka, tmp_path_factory.mktemp("line"))
    yield line
    line.catalog.close()


@pytest.fixture(scope="session")
def eraser(catalog_client: CatalogClient) -> Iterator[Eraser]:
    """Carries out the erasures that search APIs over the stack's catalog ask for, as the optimizer does."""
    made = Eraser(catalog_client)
    yield made
    made.end()


@pytest.fixture(scope="session")
def trino(line: Line) -> Sql:
    """SQL -> rows as tuples, in the catalog `lake`."""
    return line.sql


@pytest.fixture(scope="session")
def catalog_client(line: Line) -> CatalogClient:
    """A client of the stack's catalog."""
    return line.catalog


@pytest.fixture
def ingester(line: Line) -> Iterator[Callable[..., Ingester]]:
    """`ingester(topic, flush__interval_s=1, ...)` starts one with a group, a dead-letter topic and a port of
    its own; all are ended after the test."""
    started: list[Ingester] = []

    def start(topics: Any, **settings: Any) -> Ingester:
        started.append(line.ingester(topics, **settings))
        return started[-1]

    try:
        yield start
    finally:
        for one in started:
            one.kill()


@pytest.fixture(scope="session")
def datasets() -> Path:
    """The folder of the real data sets; tests marked `datasets` run only where FIRN_DATASETS names it."""
    folder = Path(os.environ[DATASETS_VARIABLE])
    assert folder.is_dir(), f"{DATASETS_VARIABLE} names {folder}, which is no folder"
    return folder
