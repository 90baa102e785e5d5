"""The nodes of one consumer group that a crash matrix runs: one, or several that share the input."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.stack.support.forked import family
from tests.stack.support.ingester import Ingester
from tests.stack.support.waiting import wait_for

MOVED_S = 90.0


class Nodes:
    """So many ingesters with the same settings."""

    def __init__(
        self,
        count: int,
        folder: Path,
        environment: Mapping[str, str],
        topics: Sequence[Mapping[str, Any]],
        settings: Mapping[str, str],
        draws: random.Random,
    ) -> None:
        self._draws = draws
        self.all = list[Ingester]()
        for number in range(count):
            own = folder / f"node-{number}"
            own.mkdir()
            self.all.append(Ingester(own, environment, topics, {**settings, "shares": str(count)}))

    @property
    def first(self) -> Ingester:
        return self.all[0]

    def drawn(self) -> Ingester:
        """One of those that are alive."""
        return self._draws.choice([node for node in self.all if node.alive] or self.all)

    def start(self, *, ready: bool = True, environment: Mapping[str, str] | None = None) -> None:
        """Starts those that do not run; with `ready` returns when all read, or stand by."""
        for node in self.all:
            if not node.alive:
                node.start(ready=False, environment=environment)
        if ready:
            self.wait_until(self.are_ready, MOVED_S, "all nodes being ready")

    def kill(self) -> None:
        for node in self.all:
            node.kill()

    def stop(self) -> list[int]:
        """SIGTERM to one after the other; their exit codes."""
        return [node.stop() for node in self.all]

    def are_ready(self) -> bool:
        return all(node.alive and node.is_ready() for node in self.all)

    def wait_until(self, condition: Callable[[], Any], timeout_s: float, what: str) -> None:
        """Fails with the ends of all logs."""
        try:
            wait_for(condition, timeout_s, what)
        except AssertionError as error:
            ends = "\n".join(f"---- {node.folder.name}\n{node.log()[-4_000:]}" for node in self.all)
            raise AssertionError(f"{error}\n{ends}") from error

    def parks(self, table: str) -> bool:
        """Whether the node that parks has parked a table."""
        return any(node.alive and node.has_parked(table) for node in self.all)

    def has_all(self, node: Ingester) -> bool:
        """Whether a node reads all of the input."""
        try:
            status = node.status()
        except httpx.HTTPError:
            return False
        held, total = status.get("shares", [0]), status.get("of_shares", 1)
        return bool(status["role"] == "active" and len(held) == total)

    @contextmanager
    def left_alone(self, victim: Ingester) -> Iterator[None]:
        """Inside, others have taken over what the victim read, which has just been stopped."""
        others = [node for node in self.all if node is not victim]
        self.wait_until(
            lambda: any(node.alive and self.has_all(node) for node in others),
            MOVED_S,
            "a node with all shares",
        )
        yield


@contextmanager
def paused(node: Ingester) -> Iterator[None]:
    """All processes of a node stand still, as on a machine that was suspended."""
    stopped = family(node.pid)
    for process in stopped:
        process.suspend()
    try:
        yield
    finally:
        for process in stopped:
            process.resume()
