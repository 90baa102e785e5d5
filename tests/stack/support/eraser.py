"""What the optimizer does about erasures, without Spark and without its rounds, which would change the tables
of other tests as well: a thread of this process over the work list of the shared catalog."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from lake.catalog_client import CatalogClient
from lake.clock import SystemClock
from lake.errors import FirnError
from lake.storage import open_storage
from optimize.erasures import Erasures

LOOK_EVERY_S = 1.0  # all the time that tests run, each look being a request


class Eraser:
    """Carries erasures out until it is ended."""

    def __init__(self, catalog: CatalogClient) -> None:
        self._stop = threading.Event()
        self._turn = threading.Lock()
        self._erasures = Erasures.of(catalog, open_storage(), SystemClock(), halted=self._stop.is_set)
        self._thread = threading.Thread(target=self._work, name="eraser", daemon=True)
        self._thread.start()

    @contextmanager
    def paused(self) -> Iterator[Erasures]:
        """Nobody carries out what is asked for inside, unless the test does."""
        with self._turn:
            yield self._erasures

    def end(self) -> None:
        """Ends the thread."""
        self._stop.set()
        self._thread.join(30.0)

    def _work(self) -> None:
        while not self._stop.wait(LOOK_EVERY_S):
            with self._turn:
                try:
                    self._erasures.run()
                except FirnError:
                    continue  # a catalog that a test stopped for a while
