"""What `python -m tests.security` counts: what tests record, added up, and nothing that none has recorded."""

from typing import Any

import pytest

from tests.security.__main__ import COUNTS, Outcomes


def _report(when: str = "call", **recorded: Any) -> pytest.TestReport:
    return pytest.TestReport(
        nodeid="a test",
        location=("a file", 1, "a test"),
        keywords={},
        outcome="passed",
        longrepr=None,
        when=when,  # type: ignore[arg-type]
        user_properties=list(recorded.items()),
    )


def test_counts_of_several_tests_are_added_up() -> None:
    """Numbers and lists; other things that tests record are none of them, and a test is counted once."""
    outcomes = Outcomes(frozenset())
    for report in (
        _report(routes=7, cross_tenant_leaks=1, unauthenticated_open=["a"], p99_ms=4),
        _report(cross_tenant_leaks=2, unauthenticated_open=["b"]),
        _report("teardown", routes=7),
    ):
        outcomes.pytest_runtest_logreport(report)
    figures = outcomes.figures()
    assert (figures["routes"], figures["cross_tenant_leaks"]) == (7, 3)
    assert figures["unauthenticated_open"] == ["a", "b"]
    assert "p99_ms" not in figures


def test_what_nobody_counts_is_no_zero() -> None:
    """It is null, and a sentence says so; nothing is said where all is counted."""
    outcomes = Outcomes(frozenset())
    assert outcomes.figures() == {
        **dict.fromkeys(COUNTS),
        "not_counted": dict.fromkeys(COUNTS, "no test that ran counts it"),
    }
    zeros: dict[str, Any] = dict.fromkeys(COUNTS, 0)
    outcomes.pytest_runtest_logreport(_report(**zeros))
    assert outcomes.figures() == zeros
