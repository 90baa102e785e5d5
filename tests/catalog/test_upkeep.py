"""What the catalog does now and then."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from catalog.http import services
from catalog.http.services import Services
from catalog.model import metrics

T = TypeVar("T")


class BackgroundTasks(Services):
    """Notes its tasks instead of doing them; `_compact_names` fails."""

    def __init__(self) -> None:
        self.done: list[str] = []

    async def run(self, work: Callable[..., T], *arguments: Any) -> T:
        """As the services do, in the same thread."""
        return work(*arguments)

    def _flush_names(self) -> None:
        self.done.append("flush_names")

    def _compact_names(self) -> None:
        raise ZeroDivisionError("a fault of ours")

    def _count_partitions(self) -> None:
        self.done.append("count_partitions")

    def _forget(self) -> None:
        self.done.append("forget")

    def _checkpoint(self) -> None:
        self.done.append("checkpoint")

    def _note_maintenance(self) -> None:
        self.done.append("note_maintenance")


@pytest.mark.long
def test_a_task_that_fails_is_counted_and_keeps_no_other_from_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Again and again."""
    monkeypatch.setattr(services, "UPKEEP_INTERVAL_S", 0.0)
    tasks, failures = BackgroundTasks(), metrics.background_task_failures.labels("compact_names")
    before = failures._value.get()

    async def two_turns() -> None:
        turns = asyncio.create_task(tasks.upkeep())
        async with asyncio.timeout(10.0):
            while tasks.done.count("note_maintenance") < 2:
                await asyncio.sleep(0)
        turns.cancel()

    asyncio.run(two_turns())
    assert (
        tasks.done[:10] == ["flush_names", "count_partitions", "forget", "checkpoint", "note_maintenance"] * 2
    )
    assert failures._value.get() >= before + 2
