"""What a backfill has done: shown while it runs, and at its end."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

SHOW_EVERY_S = 5.0


@dataclass
class BackfillReport:
    """Counts of one run. `records` are all that were read or known to be there; of these `skipped` were there before, `blank` are blank lines.

    `rows` may be more than the rest where a record carries several. `dead_letters` were sent by this run, `dead_letters_before` by earlier ones.
    `failed`: files that were refused or could not be read to their ends, each with a sentence.
    """

    files_total: int
    say: Callable[[str], None]
    files: int = 0
    records: int = 0
    rows: int = 0
    dead_letters: int = 0
    dead_letters_before: int = 0
    skipped: int = 0
    blank: int = 0
    commits: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    _began_s: float = field(default_factory=time.monotonic)
    _shown_s: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.monotonic() - self._began_s

    def show(self, at: str) -> None:
        """Says how far it is, every few seconds. `at`: the file that is being read."""
        now_s = time.monotonic()
        if now_s - self._shown_s < SHOW_EVERY_S:
            return
        self._shown_s = now_s
        done = self.files + len(self.failed)
        rate = self.records / max(self.seconds, 0.001)
        self.say(f"{done:,} of {self.files_total:,} files, {self.records:,} records ({rate:,.0f} a second), {self.rows:,} rows; now {at}")

    def to_json(self) -> dict[str, Any]:
        """All counts."""
        return {
            "files": self.files,
            "records": self.records,
            "rows": self.rows,
            "dead_letters": self.dead_letters,
            "dead_letters_before": self.dead_letters_before,
            "skipped": self.skipped,
            "blank": self.blank,
            "commits": self.commits,
            "failed": self.failed,
            "seconds": round(self.seconds, 3),
        }

    def to_renderable(self) -> RenderableType:
        """For a person."""
        table = Table("", "", show_header=False, box=None)
        for name, value in self.to_json().items():
            if name != "failed":
                table.add_row(name.replace("_", " "), Text(f"{value:,}", justify="right"))
        for uri, sentence in self.failed.items():
            table.add_row(Text("failed", style="red"), Text(f"{uri}: {sentence}"))
        return table
