"""What the optimizer is asked for on behalf of erasures, through the catalog's work list, and its answers."""

import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import datetime

from lake.catalog_client import CatalogClient
from lake.clock import Clock
from lake.erasure_work import ErasureAnswer, ErasureRequest, ErasureWork
from lake.errors import FirnError, NotFoundError, RefusedError, UnavailableError
from lake.metrics import QUERY_ERASURES_WAITING
from query.erasure.job import Asked, Erasure
from query.erasure.table_search import Look

# An optimizer that runs takes a request up within seconds, unless it carries out others.
PATIENCE_S = 30.0
ASK_AGAIN_MIN_S, ASK_AGAIN_MAX_S = 0.2, 2.0


class OptimizerRequests:
    """One request at a time for each erasure. `save` keeps an erasure; `forget_copies` removes copies of
    files that are kept on this machine. For one thread."""

    def __init__(
        self,
        work_list: CatalogClient,
        save: Callable[[Erasure], None],
        forget_copies: Callable[[Sequence[str]], None],
        clock: Clock,
    ) -> None:
        self._work = ErasureWork(work_list)
        self._save = save
        self._forget_copies = forget_copies
        self._clock = clock
        self._look_for_s: dict[str, float] = {}  # requests that nobody has begun with, by the monotonic clock
        self._untaken: set[str] = set()  # erasures that no optimizer has taken up for long

    def ask(self, job: Erasure, stream: str, request: ErasureRequest) -> Erasure:
        """Asks for one; the erasure that waits for it. Raises FirnError."""
        job = replace(job, asked=Asked(request.id, stream, self._clock.now().isoformat()))
        self._save(job)  # before the optimizer knows of it: after a crash it is known what to look for
        try:
            self._work.ask(request)
        except NotFoundError as error:
            raise RefusedError(
                "the catalog keeps no work list, where the optimizer, which rewrites files, could be asked; "
                "run `python -m catalog serve --control` and set control.uri, here and for the optimizer"
            ) from error
        except UnavailableError:
            return job  # it may have arrived; if not, that is found out
        return job

    def take_in(self, job: Erasure) -> Erasure:
        """The erasure with what the optimizer has answered by now. Raises RefusedError with what it failed
        with."""
        asked = job.asked
        if asked is None or asked.is_answered:
            return job
        try:
            answer = self._work.answer(asked.id)
            if answer is None and self._is_lost(asked):
                return replace(job, asked=None, message="")
        except UnavailableError:
            return job  # the catalog is away for now
        if answer is None or answer.state == "working":
            return replace(job, message=self._progress(job.id, asked, answer))
        self._note(job.id, is_untaken=False)
        if answer.state == "failed":
            raise RefusedError(str(answer.problem))
        job = self._added(job, asked, answer)
        self._save(job)
        with suppress(FirnError):  # it goes by itself after a week
            self._work.drop_answer(asked.id)
        return job

    def withdraw(self, job: Erasure) -> Erasure:
        """An erasure that has ended, with nothing asked for any more."""
        self._note(job.id, is_untaken=False)
        if job.asked is not None:
            self._look_for_s.pop(job.asked.id, None)
            with suppress(FirnError):
                self._work.drop_request(job.asked.id)
                self._work.drop_answer(job.asked.id)
        return replace(job, asked=None)

    def _is_lost(self, asked: Asked) -> bool:
        """Whether a request that nobody has begun with is not on the list either: it never arrived, or the
        catalog was restored. It may be large, so this is asked for now and then."""
        now_s = self._clock.monotonic_s()
        if now_s < self._look_for_s.setdefault(asked.id, now_s + PATIENCE_S):
            return False
        del self._look_for_s[asked.id]
        return not self._work.has_request(asked.id) and self._work.answer(asked.id) is None

    def _progress(self, job_id: str, asked: Asked, answer: ErasureAnswer | None) -> str:
        """What an erasure waits for, as a sentence."""
        since = datetime.fromisoformat(asked.since)
        is_untaken = answer is None and (self._clock.now() - since).total_seconds() > PATIENCE_S
        self._note(job_id, is_untaken=is_untaken)
        if is_untaken:
            return (
                f"waits for the optimizer, which was asked on {since:%Y-%m-%d at %H:%M:%S} UTC and has not "
                "begun: `python -m optimize status` says who runs it, `python -m optimize run` starts it"
            )
        if answer is None or not answer.files:
            return f"the optimizer is asked to take rows out of the stream {asked.stream!r}"
        return (
            f"the optimizer has written {answer.files_written} of {answer.files} files of the stream "
            f"{asked.stream!r} anew"
        )

    def _note(self, job_id: str, *, is_untaken: bool) -> None:
        (self._untaken.add if is_untaken else self._untaken.discard)(job_id)
        QUERY_ERASURES_WAITING.set(len(self._untaken))

    def _added(self, job: Erasure, asked: Asked, answer: ErasureAnswer) -> Erasure:
        """The erasure with what came of a request: added to what came of others in the same table."""
        self._look_for_s.pop(asked.id, None)
        self._forget_copies(answer.queued)
        queued = tuple(dict.fromkeys((*job.queued, *answer.queued)))
        job = replace(job.with_done(asked.stream, asdict(answer), answer.problem), queued=queued, message="")
        if answer.problem is not None:
            return replace(job, asked=None, settled=(*job.settled, asked.stream))
        return replace(job, asked=replace(asked, is_answered=True, left=answer.snapshot_id))


def wait_s(asked: Asked, now: datetime) -> float:
    """Seconds until the answer is looked for again: soon at first, for rows come meanwhile."""
    since_s = (now - datetime.fromisoformat(asked.since)).total_seconds()
    return min(max(since_s / 10, ASK_AGAIN_MIN_S), ASK_AGAIN_MAX_S)


def request_of(job: Erasure, look: Look, grace_s: float) -> ErasureRequest:
    """What the optimizer is to take away after a search."""
    return look.request(f"{job.id}-{secrets.token_hex(4)}", grace_s)
