"""`python -m tests.security`: tries every finding again and says which mends hold.

    python -m tests.security --json          one JSON object on stdout, pytest's own words on stderr
    python -m tests.security --only 2,6      some of them

A finding is held where at least one test names it (`@pytest.mark.finding(N)`) and each of its tests passed.
Exit code 1 where one is not."""

import contextlib
import sys
from collections import defaultdict
from pathlib import Path
from typing import Annotated, Any

import orjson
import pytest
import typer

from tests.security.findings import FINDINGS

HERE = Path(__file__).parent
# What the matrix of routes and keys records of itself (`record_property`), see test_routes.py.
RECORDED = {"routes": 0, "cross_tenant": None, "unauthenticated_open": None, "hung": None}


class Outcomes:
    """A pytest plugin: what became of each test, by the findings that it names."""

    def __init__(self, only: frozenset[int]) -> None:
        self._only = only
        self._numbers: dict[str, tuple[int, ...]] = {}
        self._passed: dict[str, bool] = {}
        self.recorded: dict[str, Any] = dict(RECORDED)

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        kept = []
        for item in items:
            numbers = tuple(n for marker in item.iter_markers("finding") for n in marker.args)
            if unknown := set(numbers) - set(FINDINGS):
                raise pytest.UsageError(
                    f"{item.nodeid} names finding {min(unknown)}, which findings.py does not list"
                )
            self._numbers[item.nodeid] = numbers
            if not self._only or self._only & set(numbers):
                kept.append(item)
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        passed = report.passed and self._passed.get(report.nodeid, True)
        self._passed[report.nodeid] = passed
        if report.when == "call":
            self.recorded |= {name: value for name, value in report.user_properties if name in RECORDED}

    def findings(self) -> dict[str, dict[str, Any]]:
        """Per finding its title, the number of its tests, those that failed, and whether it is held."""
        tests: dict[int, list[str]] = defaultdict(list)
        for nodeid in self._passed:
            for number in self._numbers[nodeid]:
                tests[number].append(nodeid)
        wanted = self._only or FINDINGS.keys()
        return {str(number): self._finding(number, tests[number]) for number in sorted(wanted)}

    def _finding(self, number: int, tests: list[str]) -> dict[str, Any]:
        failed = [nodeid for nodeid in tests if not self._passed[nodeid]]
        return {
            "title": FINDINGS[number],
            "held": bool(tests) and not failed,
            "tests": len(tests),
            "failed": failed,
        }


def main(
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object on stdout")] = False,
    only: Annotated[str, typer.Option(help="numbers of findings, with commas between them; empty: all")] = "",
) -> None:
    """Tries the findings again."""
    outcomes = Outcomes(frozenset(int(number) for number in only.split(",") if number))
    with contextlib.redirect_stdout(sys.stderr):
        code = pytest.main(["-q", "-p", "no:cacheprovider", str(HERE)], plugins=[outcomes])
    found = outcomes.findings()
    if as_json:
        print(orjson.dumps({"findings": found, **outcomes.recorded}).decode())
    else:
        for number, finding in found.items():
            print(
                f"{number:>3}  {'held' if finding['held'] else 'OPEN'}  {finding['tests']:>3} tests  "
                f"{finding['title']}"
            )
    raise SystemExit(0 if code == 0 and all(finding["held"] for finding in found.values()) else 1)


if __name__ == "__main__":
    typer.run(main)
