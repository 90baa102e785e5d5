"""No test asserts that something took less than so long by the clock: on a machine that does other things as
well that says nothing of the product.

Tests wait for a condition with a generous limit (`tests.stack.support.waiting`), compare CPU time or counts,
or take what the machine kept them waiting off the clock. Found by reading: a duration is a difference of
times of a clock, or what is computed from one; an upper bound of one in an `assert` is a finding, unless it
stands below with its reason.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.finding(16)

TESTS = Path(__file__).resolve().parents[1]
# Wall clocks. `process_time`, `thread_time` and CPU times of processes are none.
CLOCKS = {
    "monotonic",
    "perf_counter",
    "time",
    "monotonic_ns",
    "perf_counter_ns",
    "time_ns",
    "now",
    "monotonic_s",
}
OWNERS = {"time", "datetime", "clock"}
# Where a file has no such text it asks no clock.
ASKS = re.compile(rf"\.\s*(?:{'|'.join(sorted(CLOCKS))})\s*\(")

# file::function -> why the clock may be asked there.
EXCEPTIONS: dict[str, str] = {}


def _is_clock(node: ast.AST) -> bool:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CLOCKS):
        return False
    owner = node.func.value
    return (
        owner.id if isinstance(owner, ast.Name) else owner.attr if isinstance(owner, ast.Attribute) else ""
    ) in OWNERS


class _Durations:
    """Names of one function that hold moments of a clock, and those that hold durations."""

    def __init__(self, function: ast.AST) -> None:
        self.moments: set[str] = set()
        self.durations: set[str] = set()
        for _ in range(3):  # a name may be computed from one that is assigned further below, in a loop
            for node in ast.walk(function):
                for name, value in _assigned(node):
                    if self.is_duration(value):
                        self.durations.add(name)
                    elif self.is_moment(value):
                        self.moments.add(name)

    def is_moment(self, node: ast.AST) -> bool:
        return any(
            _is_clock(part) or (isinstance(part, ast.Name) and part.id in self.moments)
            for part in ast.walk(node)
        )

    def is_duration(self, node: ast.AST) -> bool:
        if any(isinstance(part, ast.Name) and part.id in self.durations for part in ast.walk(node)):
            return True
        return any(
            isinstance(part, ast.BinOp) and isinstance(part.op, ast.Sub) and self.is_moment(part.left)
            for part in ast.walk(node)
        )


def _assigned(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    targets: list[ast.expr] = []
    value: ast.expr | None = None
    if isinstance(node, ast.Assign):
        targets, value = node.targets, node.value
    elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.NamedExpr):
        targets, value = [node.target], node.value
    for target in targets:
        for part in ast.walk(target):
            if isinstance(part, ast.Name) and value is not None:
                yield part.id, value


def bounded_durations(function: ast.AST) -> Iterator[int]:
    """Lines of asserts of a function that bound a duration from above."""
    if not any(_is_clock(node) for node in ast.walk(function)):
        return
    known = _Durations(function)
    asserts = [node for node in ast.walk(function) if isinstance(node, ast.Assert)]
    for statement in asserts:
        for comparison in (node for node in ast.walk(statement.test) if isinstance(node, ast.Compare)):
            sides = [comparison.left, *comparison.comparators]
            for left, operator, right in zip(sides, comparison.ops, sides[1:], strict=False):
                smaller = (
                    left
                    if isinstance(operator, ast.Lt | ast.LtE)
                    else right
                    if isinstance(operator, ast.Gt | ast.GtE)
                    else None
                )
                if smaller is not None and known.is_duration(smaller):
                    yield statement.lineno


def _functions() -> Iterator[tuple[str, ast.AST]]:
    for file in sorted(TESTS.rglob("*.py")):
        if "benchmarks" in file.parts:
            continue
        text = file.read_text()
        for node in ast.walk(ast.parse(text)) if ASKS.search(text) else ():
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{file.relative_to(TESTS)}::{node.name}", node


@pytest.mark.long
def test_no_test_asserts_that_the_clock_went_on_less() -> None:
    """But for those with a reason; a reason that nobody needs any more goes."""
    found = {
        name: sorted(set(lines))
        for name, function in _functions()
        if (lines := list(bounded_durations(function)))
    }
    assert {name: lines for name, lines in found.items() if name not in EXCEPTIONS} == {}
    assert sorted(EXCEPTIONS.keys() - found.keys()) == []


@pytest.mark.parametrize(
    ("text", "is_bounded"),
    [
        ("began = time.monotonic()\nwork()\nassert time.monotonic() - began < 5", True),
        ("began = time.monotonic()\ntook = time.monotonic() - began\nassert 5 > round(took)", True),
        ("assert datetime.now(UTC) - moment < timedelta(seconds=30)", True),
        (
            (
                "began = time.monotonic()\ntimes = []\ntimes += [time.monotonic() - began]\nassert "
                "max(times) <= "
                "1"
            ),
            True,
        ),
        ("began = time.process_time()\nassert time.process_time() - began < 5", False),
        ("began = time.monotonic()\nassert time.monotonic() - began >= 0.2", False),
        ("assert asked <= moment <= datetime.now(UTC)", False),
    ],
)
def test_what_counts_as_a_bound(text: str, is_bounded: bool) -> None:
    """Upper bounds of differences of a wall clock, however they are written; lower bounds and CPU time are
    none."""
    assert bool(list(bounded_durations(ast.parse(text)))) is is_bounded
