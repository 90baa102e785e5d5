"""What a backfill has done: shown while it runs, and at its end."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from lake.clock import SYSTEM_CLOCK, Clock

SHOW_EVERY_S = 5.0


@dataclass
class BackfillReport(ABC):
    """Counts of one run. `records` are all that were read or known to be there; of these `skipped` were
    brought in before.

    Of `masked` ones something was masked; `withheld` are values that could not be.

    `rows` may be more than the rest where a record carries several. `dead_letters` were sent by this run,
    `dead_letters_before` by earlier ones.
    """

    say: Callable[[str], None]
    records: int = 0
    rows: int = 0
    dead_letters: int = 0
    dead_letters_before: int = 0
    skipped: int = 0
    commits: int = 0
    masked: int = 0
    withheld: int = 0
    clock: Clock = SYSTEM_CLOCK
    _began_s: float = field(init=False)
    _shown_s: float = field(init=False)

    def __post_init__(self) -> None:
        self._began_s = self._shown_s = self.clock.monotonic_s()

    @property
    def seconds(self) -> float:
        """Since the start."""
        return self.clock.monotonic_s() - self._began_s

    def show(self, at: str) -> None:
        """Says how far it is, every few seconds. `at`: what is being read."""
        now_s = self.clock.monotonic_s()
        if now_s - self._shown_s < SHOW_EVERY_S:
            return
        self._shown_s = now_s
        rate = self.records / max(self.seconds, 0.001)
        self.say(
            f"{self._progress()}, {self.records:,} records ({rate:,.0f} a second), {self.rows:,} rows; now "
            f"{at}"
        )

    @abstractmethod
    def _progress(self) -> str:
        """How much of what there is to read was read."""

    @abstractmethod
    def _own(self) -> dict[str, int]:
        """Counts of this kind of backfill alone."""

    def to_json(self) -> dict[str, Any]:
        """All counts."""
        return {
            **self._own(),
            "records": self.records,
            "rows": self.rows,
            "dead_letters": self.dead_letters,
            "dead_letters_before": self.dead_letters_before,
            "skipped": self.skipped,
            "masked": self.masked,
            "withheld": self.withheld,
            "commits": self.commits,
            "seconds": round(self.seconds, 3),
        }

    def to_renderable(self) -> RenderableType:
        """For a person."""
        table = Table("", "", show_header=False, box=None)
        for name, value in self.to_json().items():
            if isinstance(value, int | float):
                table.add_row(name.replace("_", " "), Text(f"{value:,}", justify="right"))
        return table


@dataclass
class FilesReport(BackfillReport):
    """Of an archive. `blank` are blank lines. `failed`: files that were refused or could not be read to their
    ends, each with a sentence."""

    files_total: int = 0
    files: int = 0
    blank: int = 0
    failed: dict[str, str] = field(default_factory=dict)

    def _progress(self) -> str:
        return f"{self.files + len(self.failed):,} of {self.files_total:,} files"

    def _own(self) -> dict[str, int]:
        return {"files": self.files, "blank": self.blank}

    def to_json(self) -> dict[str, Any]:
        return {**super().to_json(), "failed": self.failed}

    def to_renderable(self) -> RenderableType:
        table = super().to_renderable()
        assert isinstance(table, Table)
        for uri, sentence in self.failed.items():
            table.add_row(Text("failed", style="red"), Text(f"{uri}: {sentence}"))
        return table


@dataclass
class TopicReport(BackfillReport):
    """Of a topic. `live` are records that live ingestion has brought in, or will. `ranges`: partition, first
    offset, end of what is read."""

    topic: str = ""
    ranges: Sequence[tuple[int, int, int]] = ()
    offsets: int = 0  # read so far
    live: int = 0

    def _progress(self) -> str:
        return f"{self.offsets:,} of {sum(end - start for _, start, end in self.ranges):,} offsets"

    def _own(self) -> dict[str, int]:
        return {"offsets": self.offsets, "live": self.live}

    def to_json(self) -> dict[str, Any]:
        partitions = [
            {"partition": partition, "from": start, "to": end} for partition, start, end in self.ranges
        ]
        return {"topic": self.topic, "partitions": partitions, **super().to_json()}
