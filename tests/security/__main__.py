"""`python -m tests.security`: tries every finding again, says which mends hold, and counts what comes out of
the services and should not.

    python -m tests.security --json          one JSON object on stdout, pytest's own words on stderr
    python -m tests.security --only 2,6      some of the findings

A finding is held where at least one test names it (`@pytest.mark.finding(N)`) and each of its tests passed.
Counts come from tests that record one under its name (`record_property`); those of several tests are added
up, and what no test has counted is null, with a sentence. Exit code 1 where a finding is not held or a test
failed."""

import contextlib
import os
import sys
from collections import defaultdict
from pathlib import Path
from typing import Annotated, Any

import orjson
import pytest
import typer

from tests.conftest import PROVE_VARIABLE
from tests.security.findings import FINDINGS

HERE = Path(__file__).parent
# What tests of this folder and of `ELSEWHERE` count, by the name they record it under.
COUNTS = (
    "routes",
    "unauthenticated_open",
    "cross_tenant_leaks",
    "secrets_found_in_output",
    "masked_bytes_found",
    "hung",
)
# Tests of other rooms that count for it too.
ELSEWHERE = (str(HERE.parent / "query" / "test_system_tenant.py"),)


class Outcomes:
    """A pytest plugin: what became of each test, by the findings that it names."""

    def __init__(self, only: frozenset[int]) -> None:
        self._only = only
        self._numbers: dict[str, tuple[int, ...]] = {}
        self._passed: dict[str, bool] = {}
        self.counts: dict[str, Any] = dict.fromkeys(COUNTS)

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
            for name, value in report.user_properties:
                if name in self.counts:
                    known = self.counts[name]
                    self.counts[name] = value if known is None else known + value

    def figures(self) -> dict[str, Any]:
        """The counts, and a sentence for each that no test has made."""
        absent = {name: "no test that ran counts it" for name, value in self.counts.items() if value is None}
        return {**self.counts, **({"not_counted": absent} if absent else {})}

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
    os.environ[PROVE_VARIABLE] = "1"  # the long ones too
    with contextlib.redirect_stdout(sys.stderr):
        code = pytest.main(["-q", "-p", "no:cacheprovider", str(HERE), *ELSEWHERE], plugins=[outcomes])
    found = outcomes.findings()
    if as_json:
        print(orjson.dumps({**outcomes.figures(), "findings": found}).decode())
    else:
        for number, finding in found.items():
            print(
                f"{number:>3}  {'held' if finding['held'] else 'OPEN'}  {finding['tests']:>3} tests  "
                f"{finding['title']}"
            )
        for name, value in outcomes.figures().items():
            print(f"{name}: {value}")
    raise SystemExit(0 if code == 0 and all(finding["held"] for finding in found.values()) else 1)


if __name__ == "__main__":
    typer.run(main)
