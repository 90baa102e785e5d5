"""Brings commits that arrive at the same time into one round, so that they share one sync of the disk and one
SQL transaction.

A round runs in a thread. While it waits for the disk, requests gather and make up the next round. A table is
in one round at a time; a few rounds may run beside each other, so that a storage that hangs does not hold up
tables that are elsewhere.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from catalog.commit.commits import Committer, CommitUnit
from catalog.model.error_response import outcome_unknown


class CommitQueue:
    """Belongs to one event loop; `submit` may be called by any of its tasks."""

    def __init__(self, committer: Committer, *, rounds_at_once: int) -> None:
        self._committer = committer
        self._rounds_max = rounds_at_once
        self._rounds = 0
        self._busy: set[str] = set()
        self._waiting: list[tuple[list[CommitUnit], asyncio.Future[None]]] = []
        self._pool = ThreadPoolExecutor(rounds_at_once, thread_name_prefix="commit")
        self._tasks: set[asyncio.Task[None]] = set()

    async def submit(self, units: Sequence[CommitUnit]) -> None:
        """Returns when every unit has its reply."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((list(units), done))
        self._start()
        # A caller that goes away does not stop its commit: others may share the round.
        await asyncio.shield(done)

    def _start(self) -> None:
        while self._rounds < self._rounds_max and (batch := self._next_batch()):
            self._rounds += 1
            task = asyncio.create_task(self._run(batch))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _next_batch(self) -> list[tuple[list[CommitUnit], asyncio.Future[None]]]:
        """Everybody who waits, except for tables that a running round has; who waits for such a table keeps
        others of it waiting too."""
        batch, staying, blocked = [], [], set(self._busy)
        for request in self._waiting:
            keys = {key for unit in request[0] for key in unit.idents}
            if keys & blocked:
                staying.append(request)
                blocked |= keys
            else:
                batch.append(request)
        self._waiting = staying
        return batch

    async def _run(self, batch: list[tuple[list[CommitUnit], asyncio.Future[None]]]) -> None:
        units = [unit for request, _ in batch for unit in request]
        keys = {key for unit in units for key in unit.idents}
        self._busy |= keys
        try:
            await asyncio.get_running_loop().run_in_executor(self._pool, self._committer.commit, units)
        except Exception as error:
            # A defect of ours must not leave callers waiting, and they must not take it for a refusal.
            for unit in units:
                unit.reply = unit.reply or unit.render(
                    outcome_unknown(
                        f"the catalog failed inside a commit ({error!r}); load the table to see whether it "
                        "happened"
                    )
                )
            raise
        finally:
            self._busy -= keys
            self._rounds -= 1
            for _, done in batch:
                if not done.done():
                    done.set_result(None)
            self._start()

    async def close(self) -> None:
        """Waits for running rounds."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))
        self._pool.shutdown(wait=True)
