"""Turns at the engine in process: a tenant that reads everything leaves the others their processors."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest

from query.executors.engine_turns import EngineTurns
from query.model.cancellation import CancelledError, Run, TimeOverError
from tests.ingest.support.fake_clock import FakeClock

PATIENCE_S = 60.0
PROCESSORS = 2


class Waiting(Run):
    """A run that tells when it has to wait."""

    def __init__(self) -> None:
        super().__init__(PATIENCE_S)
        self.waits = threading.Event()

    def check(self) -> None:
        super().check()
        self.waits.set()


@dataclass
class Statements:
    """Statements that have begun and not ended."""

    turns: EngineTurns = field(default_factory=lambda: EngineTurns(PROCESSORS))
    running: ExitStack = field(default_factory=ExitStack)

    def begins(self, tenant: str, *, is_scan: bool) -> bool:
        """Whether a statement of a tenant, which waits for nobody, may begin."""
        try:
            self.running.enter_context(self.turns.one(tenant, Run(0.0), is_scan=is_scan))
        except TimeOverError:
            return False
        return True


@pytest.fixture
def statements() -> Iterator[Statements]:
    made = Statements()
    with made.running:
        yield made


def test_a_tenant_has_one_scan_at_a_time(statements: Statements) -> None:
    """And all of them together as many as there are processors; who reads little waits for none of them."""
    assert statements.begins("greedy", is_scan=True)
    assert not statements.begins("greedy", is_scan=True)
    assert statements.begins("other", is_scan=True)
    assert not statements.begins("third", is_scan=True)
    assert all(statements.begins(tenant, is_scan=False) for tenant in ("greedy", "other", "third"))


def test_a_tenant_reads_little_so_often_at_once_as_there_are_processors(statements: Statements) -> None:
    """However many tenants do so; a scan is one of them."""
    assert statements.begins("two", is_scan=True)
    begun = {
        tenant: sum(statements.begins(tenant, is_scan=False) for _ in range(3))
        for tenant in ("one", "two", "three")
    }
    assert begun == {"one": 2, "two": 1, "three": 2}
    assert not statements.begins("one", is_scan=True)


def test_a_statement_that_has_ended_leaves_its_turn(statements: Statements) -> None:
    """Also one that failed."""
    with pytest.raises(ZeroDivisionError), statements.turns.one("greedy", Run(PATIENCE_S), is_scan=True):
        raise ZeroDivisionError
    assert statements.begins("greedy", is_scan=True)


def test_who_waits_longest_is_next() -> None:
    """A turn that is given back is that one's, whoever asks at this moment."""
    turns, began, ends = EngineTurns(PROCESSORS), threading.Event(), threading.Event()

    def scan(run: Run) -> None:
        with turns.one("third", run, is_scan=True):
            began.set()
            ends.wait(PATIENCE_S)

    with ThreadPoolExecutor(1) as pool, ExitStack() as first, ExitStack() as second:
        first.enter_context(turns.one("greedy", Run(PATIENCE_S), is_scan=True))
        second.enter_context(turns.one("other", Run(PATIENCE_S), is_scan=True))
        run = Waiting()
        waiting = pool.submit(scan, run)
        assert run.waits.wait(PATIENCE_S)
        first.close()
        for tenant in ("greedy", "fourth"):
            with pytest.raises(TimeOverError), turns.one(tenant, Run(0.0), is_scan=True):
                raise AssertionError(f"{tenant} went before the one that waits")
        assert began.wait(PATIENCE_S)
        ends.set()
        waiting.result(PATIENCE_S)


def test_who_has_gone_waits_no_longer() -> None:
    """And nobody waits for him."""
    turns = EngineTurns(PROCESSORS)
    with ThreadPoolExecutor(1) as pool, turns.one("greedy", Run(PATIENCE_S), is_scan=True):
        run = Waiting()

        def scan() -> None:
            with turns.one("greedy", run, is_scan=True):
                raise AssertionError("it began")

        gone = pool.submit(scan)
        assert run.waits.wait(PATIENCE_S)
        run.cancel()
        with pytest.raises(CancelledError, match="caller has gone"):
            gone.result(PATIENCE_S)
    with turns.one("greedy", Run(0.0), is_scan=True):
        pass


def test_waiting_is_no_work() -> None:
    """Of what a tenant may search in a day it takes nothing."""
    clock, turns = FakeClock(), EngineTurns(PROCESSORS)

    class Passing(Run):
        """Time passes while it waits, then it is let in."""

        def check(self) -> None:
            clock.s += 5.0
            others.close()

    run = Passing(PATIENCE_S, clock)
    with ExitStack() as others:
        others.enter_context(turns.one("greedy", Run(PATIENCE_S), is_scan=True))
        with turns.one("greedy", run, is_scan=True):
            clock.s += 2.0
    assert (run.waited_s, run.worked_s, run.left_s) == (5.0, 2.0, PATIENCE_S - 7.0)
