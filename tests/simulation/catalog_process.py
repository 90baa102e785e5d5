"""`python -m tests.simulation.catalog_process CLOCK COUNTS PORT_FILE`: the real catalog, on the
simulation's clock.

What `catalog serve` does, with three things that only a test may do: the clock is that of a file,
SQLite's own clock (which decides between processes) is the same one, and the statements that SQLite runs
are counted, into a file as well. Settings come from the environment, as always.
"""

import mmap
import os
import struct
import sys
import threading
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, event

from catalog.http import services
from catalog.http.app import create_app
from catalog.store.database import Database, migrate
from lake.clock import epoch_us
from lake.http_server import bounded_server
from lake.listening import listen
from lake.logs import configure_logs
from lake.memory import share_arenas
from lake.settings import CatalogSettings
from tests.simulation.moved_clock import SharedClock

COUNT = struct.Struct("<q")
# An hour goes by in seconds: what the catalog does every minute it does every other second.
UPKEEP_S = 2.0
SHUTDOWN_S = 10
_JULIAN_EPOCH, _DAY_US = 2_440_587.5, 86_400_000_000


class Statements:
    """Counts what SQLite runs for requests, in a file that others read. What the catalog does every minute,
    in threads of the storage, goes by the machine's time and has nothing to do with them."""

    def __init__(self, file: Path) -> None:
        file.write_bytes(COUNT.pack(0))
        with file.open("r+b") as opened:
            self._map = mmap.mmap(opened.fileno(), COUNT.size)
        self._count = 0

    def __call__(self, _: str) -> None:
        if threading.current_thread().name.startswith("storage"):
            return
        self._count += 1
        self._map[:] = COUNT.pack(self._count)


def _leave_with(parent: int) -> None:
    """Ends this process when the simulation's has ended, however that was."""
    while os.getppid() == parent:
        threading.Event().wait(1.0)
    os._exit(1)


def main() -> None:
    """Serves until it is stopped."""
    share_arenas()
    threading.Thread(target=_leave_with, args=(os.getppid(),), daemon=True).start()
    clock_file, counts_file, port_file = map(Path, sys.argv[1:])
    clock, statements = SharedClock(clock_file), Statements(counts_file)

    def julian_day(_: str) -> float:
        return _JULIAN_EPOCH + epoch_us(clock.now()) / _DAY_US

    def prepare(connection: Any, _: object) -> None:
        connection.create_function("julianday", 1, julian_day)
        connection.set_trace_callback(statements)

    event.listen(Engine, "connect", prepare)
    configure_logs("catalog")
    services.UPKEEP_INTERVAL_S = UPKEEP_S
    settings = CatalogSettings.load()
    migrate(Database(settings.database_url.get_secret_value()))
    listener = listen(settings.http.host, 0)
    app = create_app(settings, clock)
    server = bounded_server(app, settings.http, shutdown_s=SHUTDOWN_S, loop="uvloop", proxy_headers=False)
    whole = port_file.with_suffix(".part")
    whole.write_text(str(listener.getsockname()[1]))
    whole.rename(port_file)
    server.run(sockets=[listener])


if __name__ == "__main__":
    main()
