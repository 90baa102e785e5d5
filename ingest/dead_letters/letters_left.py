"""Dead letters that can be no rows of `system.dead_letters`. They stay where they are, in their topic:
another dead letter for each would be read as well, and so on without an end."""

from collections import Counter
from dataclasses import dataclass

import structlog

from ingest.model.source import Source
from lake.errors import Rejected

log = structlog.get_logger()


@dataclass(slots=True)
class _Stretch:
    """Letters of one partition and one reason: how many, between which offsets."""

    letters: int
    first: int
    last: int


class LettersLeft:
    """Counts them by reason, and tells where they are."""

    def __init__(self) -> None:
        self._stretches: dict[tuple[Source, str], _Stretch] = {}

    def note(self, source: Source, first: int, next_offset: int, why: Rejected) -> None:
        """Notes the offsets `[first, next_offset)`."""
        letters, last = next_offset - first, next_offset - 1
        known = self._stretches.setdefault((source, why.reason.value), _Stretch(0, first, last))
        known.letters += letters
        known.first, known.last = min(known.first, first), max(known.last, last)

    def take(self) -> Counter[str]:
        """How many there were since the last call, by reason. Logs one line for each partition and reason."""
        counts = Counter[str]()
        for (source, reason), each in self._stretches.items():
            counts[reason] += each.letters
            log.warning(
                "letters.not_stored",
                topic=source.topic,
                partition=source.partition,
                reason=reason,
                letters=each.letters,
                first=each.first,
                last=each.last,
            )
        self._stretches.clear()
        return counts
