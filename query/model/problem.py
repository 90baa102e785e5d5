"""What is wrong with a question, as a value: one sentence for the person who asked it, with the place and
what to write instead."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Problem:
    """`position` and `length` count characters of the query text; None where the fault lies elsewhere."""

    message: str
    position: int | None = None
    length: int | None = None
    suggestion: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(self).items() if value is not None}


class BadRequestError(Exception):
    """Carries a Problem out of a deep place to the edge, which answers 400."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


def refuse(
    message: str, *, position: int | None = None, length: int | None = None, suggestion: str | None = None
) -> BadRequestError:
    """The exception for a problem."""
    return BadRequestError(Problem(message, position, length, suggestion))
