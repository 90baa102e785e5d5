"""Erasures that the search API asks for, done beside the rounds: each request of the catalog's work list in
its turn, under the leader's lease.

A request stays on the list until its answer is saved, so that the next leader goes on with one that a crash
or a lost lease interrupted. What one request fails with ends neither the others nor the rounds.
"""

import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

import structlog

from lake.catalog_client import CatalogClient, TableName
from lake.clock import Clock, epoch_ms
from lake.erasure_work import REQUEST_KIND, ErasureAnswer, ErasureRequest, ErasureWork
from lake.errors import FirnError, NotFoundError, ProtocolError
from lake.extras_client import Task
from lake.isolation import raised_at
from lake.metrics import OPTIMIZE_ERASURES
from lake.storage import AnyStorage
from optimize.erase_rows import HaltedError, RowErasure, Tools

LOOKS_ON, LOOK_ON_EVERY_S = 10, 0.1
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Erasures:
    """The requests of a catalog's list; `only`: those for these tables (none named: all)."""

    tools: Tools
    work: ErasureWork
    only: Collection[TableName] = ()

    @classmethod
    def of(
        cls,
        catalog: CatalogClient,
        storage: AnyStorage,
        clock: Clock,
        *,
        work_list: CatalogClient | None = None,
        lease: str | None = None,
        halted: Callable[[], bool] = lambda: False,
        only: Collection[TableName] = (),
        token_filter: bool = True,
    ) -> "Erasures":
        """What carries erasures out with these parts. `work_list`: the control service beside another
        catalog, which knows nothing of the leader's lease. `token_filter`: the setting merge.token_filter."""
        work = ErasureWork(catalog, lease)
        if work_list is not None and work_list is not catalog:
            work = ErasureWork(work_list)
        return cls(Tools(catalog, storage, clock, lease, halted, token_filter), work, only)

    def run(self) -> int:
        """Carries out what is asked for, until nothing is; how many requests. Raises FirnError where the list
        cannot be read or written.

        Who got an answer often asks for more: rows that came meanwhile, the next table. So the list is looked
        at for a moment longer.
        """
        done, looks = 0, 1
        try:
            while looks and not self.tools.halted():
                found = self._sweep()
                done, looks = done + found, LOOKS_ON if found else looks - 1
                threading.Event().wait(LOOK_ON_EVERY_S if looks else 0.0)
        except NotFoundError:
            return done  # a catalog without a work list
        except HaltedError:
            return done
        if done:
            self.work.drop_old_answers(epoch_ms(self.tools.clock.now()))
        return done

    def _sweep(self) -> int:
        """Carries out each request that is there once, so that none waits for ever behind others."""
        done = 0
        for task in self.work.requests():
            if self.tools.halted():
                return done
            done += self._carry_out(task)
        return done

    def _carry_out(self, task: Task) -> bool:
        """Whether the request was taken up, and has ended."""
        request_id = task.id.removeprefix(f"{REQUEST_KIND}:")
        answer = self.work.answer(request_id) or ErasureAnswer(request_id)
        if answer.state == "working":
            try:
                request = ErasureRequest.of(task)
            except ProtocolError as error:
                self._settle(replace(answer, state="failed", problem=str(error)))
                return True
            if self.only and request.table not in self.only:
                return False
            self._settle(self._answered(request, answer))
        else:  # who saved the answer died before the request was gone
            self.work.drop_request(request_id)
        return True

    def _answered(self, request: ErasureRequest, answer: ErasureAnswer) -> ErasureAnswer:
        version = self.work.save(answer)  # says that somebody is there
        erasure = RowErasure(self.tools, request, replace(answer, version=version), self.work.save)
        try:
            return erasure.erase()
        except FirnError as error:
            problem = str(error)
        except HaltedError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one table, the others go on
            log.error("optimize.erasure_fault", fault=type(error).__name__, at=raised_at(error))  # noqa: TRY400
            problem = f"an unexpected fault ({type(error).__name__}), which the optimizer's log tells more of"
        return replace(erasure.answer, state="failed", problem=problem)

    def _settle(self, answer: ErasureAnswer) -> None:
        self.work.save(answer)
        self.work.drop_request(answer.id)
        OPTIMIZE_ERASURES.labels(answer.state).inc()
        log.info(
            "optimize.erased",
            request=answer.id,
            outcome=answer.state,
            rows=answer.rows,
            files=answer.files_rewritten + answer.files_removed,
            snapshots=answer.snapshots_expired,
        )
