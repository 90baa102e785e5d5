"""One clock: the product asks the time of a `Clock`, which a test may move."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.local.jvm_parts import REPOSITORY

ROOMS = ("lake", "catalog", "ingest", "optimize", "query", "ui", "infra")
ASKED = {
    ("time", "time"),
    ("time", "time_ns"),
    ("time", "monotonic"),
    ("time", "monotonic_ns"),
    ("time", "perf_counter"),
    ("time", "perf_counter_ns"),
    ("datetime", "now"),
    ("datetime", "utcnow"),
    ("datetime", "today"),
    ("date", "today"),
}
# Where a file has no such text it asks no clock.
NAMED = re.compile(r"\b(time|datetime|date)\b\s*(\.|import)")

# Where the machine itself is asked, and why.
EDGES = {
    "lake/clock.py": "it is the clock",
    "ui/app_pages/tenants.py": "the front end imports no room",
    "ui/app_pages/boards.py": "the front end imports no room",
    "ui/components/auto_refresh.py": "the front end imports no room",
    "ui/components/tail_lines.py": "the front end imports no room",
    "ui/tail_reader.py": "the front end imports no room; the clock is a parameter",
    "ui/login/pending.py": "the front end imports no room; the clock is a parameter",
    "ui/login/sessions.py": "the front end imports no room; the clock is a parameter",
    "ui/components/time_range.py": "the front end imports no room",
    "ui/components/wording.py": "the front end imports no room; the moment is a parameter",
}


def _raw_calls(file: Path) -> Iterator[int]:
    """Lines that name a clock of Python's own, called or handed on."""
    text = file.read_text()
    for node in ast.walk(ast.parse(text)) if NAMED.search(text) else ():
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name | ast.Attribute):
            owner = node.value.id if isinstance(node.value, ast.Name) else node.value.attr
            if (owner, node.attr) in ASKED:
                yield node.lineno
        elif isinstance(node, ast.ImportFrom):
            yield from (node.lineno for name in node.names if (node.module, name.name) in ASKED)


@pytest.mark.long
def test_nobody_but_the_clock_asks_the_machine() -> None:
    """A reason that nobody needs any more goes."""
    files = (file for room in ROOMS for file in sorted((REPOSITORY / room).rglob("*.py")))
    found = {str(file.relative_to(REPOSITORY)): list(_raw_calls(file)) for file in files}
    found = {name: lines for name, lines in found.items() if lines}
    assert {name: lines for name, lines in found.items() if name not in EDGES} == {}
    assert sorted(EDGES.keys() - found.keys()) == []
