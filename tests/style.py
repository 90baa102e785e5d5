"""`python -m tests.style`: how dense the code is, in figures to look at; nothing fails by them.

A node is one of Python's syntax tree (`ast.walk`), a line is any line of a file. So "nodes per line" tells
how much a reader has to take in at a glance, whatever the line length; PyIceberg, httpx, datasette and arroyo
lie between 4.4 and 5.1.
"""

import ast
import io
import statistics
import subprocess
import tokenize
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOMS = ("lake", "catalog", "ingest", "optimize", "query", "ui", "infra", "tests")
LONG = 120
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(slots=True)
class Density:
    """What was counted in one room."""

    lines: int = 0
    long_lines: int = 0
    nodes: int = 0
    comments: int = 0
    functions: list[int] = field(default_factory=list)  # nodes of each
    longest: int = 0  # lines of the longest function
    modules: Counter[str] = field(default_factory=Counter)  # by folder

    def add(self, path: Path) -> None:
        """Counts one file."""
        text = path.read_text()
        tree = ast.parse(text)
        lines = text.splitlines()
        self.lines += len(lines)
        self.long_lines += sum(len(line) > LONG for line in lines)
        self.comments += _comments(text)
        self.nodes += sum(1 for _ in ast.walk(tree))
        self.modules[str(path.parent)] += path.name != "__init__.py"
        for function in (node for node in ast.walk(tree) if isinstance(node, _Function)):
            self.functions.append(sum(1 for _ in ast.walk(function)))
            self.longest = max(self.longest, (function.end_lineno or function.lineno) - function.lineno + 1)

    def row(self) -> tuple[str, ...]:
        """As the report shows it."""
        folder, modules = self.modules.most_common(1)[0]
        sizes = sorted(self.functions)
        return (
            str(self.lines),
            f"{self.nodes / self.lines:.1f}",
            f"{statistics.median(sizes):.0f} / {sizes[int(len(sizes) * 0.9)]}",
            f"{100 * self.long_lines / self.lines:.1f} %",
            f"{100 * self.comments / self.lines:.1f}",
            f"{modules} ({folder})",
            str(self.longest),
        )


def _comments(text: str) -> int:
    return sum(
        token.type == tokenize.COMMENT for token in tokenize.generate_tokens(io.StringIO(text).readline)
    )


def main() -> None:
    """Prints a row for each room, one for the product and one for all."""
    counted = {name: Density() for name in (*ROOMS, "product", "all")}
    listed = subprocess.run(
        ["git", "ls-files", "*.py"], check=True, capture_output=True, text=True
    ).stdout.split()
    for path in map(Path, listed):
        room = path.parts[0]
        for name in (room, "all") if room == "tests" else (room, "product", "all"):
            counted[name].add(path)
    heads = (
        "lines",
        "nodes a line",
        "nodes a function, median / p90",
        f"over {LONG}",
        "comments per 100",
        "largest folder",
        "longest function",
    )
    table = Table("room", *heads)
    for name, density in counted.items():
        table.add_row(name, *density.row())
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
