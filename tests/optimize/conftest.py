"""What tests of maintenance share: a table over local files without services, and the optimizer as a process
on the shared stack."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from infra.local.services.optimize import environment as spark_environment
from infra.local.supervisor import Stack
from lake.catalog_client import CatalogClient
from tests.environment import without_settings
from tests.stack.support.forked import RoomProcess, start_room
from tests.stack.support.line import Line
from tests.stack.support.waiting import fresh

END_BYTES = 4_000
ROUND_S = 180.0


class Optimizer:
    """`python -m optimize` with settings of its own, on the tables of one test."""

    def __init__(self, folder: Path, stack: Stack, **settings: object) -> None:
        self.log_file = folder / "optimize.log"
        own = {f"FIRN_OPTIMIZE_{name.upper()}": str(value) for name, value in settings.items()}
        self._environment = {
            **without_settings(),
            **stack.environment(),
            **spark_environment(),
            **own,
            "FIRN_CONFIG": "",
        }
        self.process: RoomProcess | None = None

    def start(self, *arguments: str) -> RoomProcess:
        """Starts a verb in a process group of its own."""
        self.process = start_room(
            "optimize", *arguments, environment=self._environment, log=self.log_file, leads=True
        )
        return self.process

    def run(self, *arguments: str) -> str:
        """Runs a verb to its end; fails with the end of its log where it fails."""
        code = self.start(*arguments).wait(ROUND_S)
        assert code == 0, f"optimize {' '.join(arguments)} ended with {code}:\n{self.log()[-END_BYTES:]}"
        return self.log()

    def kill(self) -> None:
        """SIGKILL of the process, its JVM and its Python workers."""
        if self.process is not None:
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def log(self) -> str:
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""


@pytest.fixture(scope="session")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder outside the warehouse where the catalog lets tables lie."""
    return tmp_path_factory.mktemp("elsewhere")


@pytest.fixture(scope="session")
def catalog_alone(tmp_path_factory: pytest.TempPathFactory, elsewhere: Path) -> Iterator[Stack]:
    """A catalog of its own over local files, all that maintenance needs beside Spark; what is dropped may be
    purged at once."""
    variables = {
        "FIRN_CATALOG_UNDO_WINDOW_S": "0",
        "FIRN_CATALOG_ALLOWED_LOCATIONS": f'["file://{elsewhere}"]',
    }
    with Stack(tmp_path_factory.mktemp("catalog"), tied=True) as stack:
        stack.start("catalog", environment=variables)
        yield stack


@pytest.fixture
def catalog(catalog_alone: Stack) -> Iterator[CatalogClient]:
    """A client of that catalog."""
    with closing(CatalogClient(catalog_alone.address("catalog"))) as client:
        yield client


@pytest.fixture
def optimizer_on(tmp_path: Path) -> Iterator[Callable[..., Optimizer]]:
    """`optimizer_on(stack, setting=value, ...)` makes one with a folder of its own; all are killed after the
    test."""
    made: list[Optimizer] = []

    def make(stack: Stack, **settings: object) -> Optimizer:
        folder = tmp_path / fresh("o-")
        folder.mkdir()
        made.append(Optimizer(folder, stack, **settings))
        return made[-1]

    try:
        yield make
    finally:
        for one in made:
            one.kill()


@pytest.fixture
def optimizer(line: Line, optimizer_on: Callable[..., Optimizer]) -> Callable[..., Optimizer]:
    """`optimizer(setting=value, ...)` on the shared stack."""
    return partial(optimizer_on, line.stack)


@pytest.fixture
def optimizer_alone(catalog_alone: Stack, optimizer_on: Callable[..., Optimizer]) -> Callable[..., Optimizer]:
    """`optimizer_alone(setting=value, ...)` on the catalog of its own."""
    return partial(optimizer_on, catalog_alone)
