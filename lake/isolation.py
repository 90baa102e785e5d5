"""How work fails alone: an error that nobody foresaw is told with its trace, counted, and goes no further.

For the places where one table's, record's or task's fault must not stop the others. Elsewhere such an error
ends the process, which starts anew.
"""

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import structlog

log = structlog.get_logger()


@dataclass(slots=True)
class Isolated:
    """What became of the work. `error`: what it raised; None where it went well."""

    error: Exception | None = None


@contextmanager
def isolate(
    event: str,
    count: Callable[[], object] | None = None,
    *,
    foreseen: tuple[type[Exception], ...] = (),
    **told: object,
) -> Iterator[Isolated]:
    """Runs what is inside; its error is logged as `event` with what is `told`, counted by `count`, kept and
    not raised. Raises what is `foreseen`: whoever called knows what to do about that."""
    outcome = Isolated()
    try:
        yield outcome
    except foreseen:
        raise
    except Exception as error:
        log.exception(event, **told)
        if count is not None:
            count()
        outcome.error = error


def raised_at(error: BaseException) -> str:
    """File and line that an error comes from: what a log may say of one whose text may quote a record or a
    query."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
