"""Work that fails alone."""

import pytest
from structlog.testing import capture_logs

from lake.errors import UnavailableError
from lake.isolation import isolate


def test_what_nobody_foresaw_is_told_counted_and_kept() -> None:
    """And whoever called goes on."""
    counted = list[int]()
    with capture_logs() as told, isolate("work.failed", lambda: counted.append(1), table="t") as outcome:
        raise ZeroDivisionError("a fault of ours")
    assert isinstance(outcome.error, ZeroDivisionError)
    assert counted == [1]
    assert [(each["event"], each["table"], each["exc_info"]) for each in told] == [("work.failed", "t", True)]


def test_work_that_goes_well_leaves_nothing() -> None:
    with capture_logs() as told, isolate("work.failed", lambda: pytest.fail("counted")) as outcome:
        pass
    assert (outcome.error, told) == (None, [])


def test_what_is_foreseen_is_raised_and_not_told() -> None:
    """So is what ends a process."""
    for error in (UnavailableError("away"), KeyboardInterrupt()):
        with capture_logs() as told, pytest.raises(type(error)):
            with isolate("work.failed", foreseen=(UnavailableError,)):
                raise error
        assert told == []
