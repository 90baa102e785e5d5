"""Kills at named steps of the protocol: nothing is lost, nothing is doubled."""

import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from infra.local.supervisor import Stack
from ingest.model.fault_point import STEPS
from tests.faults.crash_matrix import LISTED, OF_ONE, OF_SEVERAL, OTHERS, cases, run_matrix

# In every run of the tests two of the listed cases; the long proofs kill two hundred times.
KILLS = int(os.environ.get("FIRN_MATRIX_KILLS", "2"))


def test_every_named_step_is_among_the_cases() -> None:
    """No step is left out, and the cases that everybody asks about come first."""
    every = [*LISTED, *OTHERS]
    assert {case.step for case in every} >= set(STEPS)
    assert len(set(every)) == len(every)
    assert cases(8, random.Random(1)) == list(LISTED)
    assert cases(200, random.Random(1))[:8] == list(LISTED)


def test_few_kills_are_of_the_listed_cases_and_each_is_drawn() -> None:
    """A run with few kills takes different listed cases, and over some seeds every one has its turn."""
    drawn = [cases(4, random.Random(seed)) for seed in range(50)]
    assert all(len(set(each)) == 4 and set(each) <= set(LISTED) for each in drawn)
    assert {case for each in drawn for case in each} == set(LISTED)


def test_several_nodes_are_also_paused_and_taken_away() -> None:
    assert set(cases(len(LISTED) + len(OF_SEVERAL), random.Random(1), 2)) == {*OF_SEVERAL, *LISTED}
    of_all = {case for case in (*LISTED, *OTHERS) if case.step not in OF_ONE}
    assert set(cases(200, random.Random(1), 2)) == {*OF_SEVERAL, *of_all}


@pytest.mark.stack
@pytest.mark.timeout(60 * KILLS + 600)
@pytest.mark.parametrize("nodes", [pytest.param(1, marks=pytest.mark.prove), 2])
def test_nothing_is_lost_or_doubled_however_a_process_dies(
    nodes: int, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """SIGKILL of worker, main process, catalog and broker at named steps while records flow, and of one of
    two nodes that share the input: every identity is in its table once, or a dead letter."""
    seed = int(os.environ.get("FIRN_TEST_SEED", random.SystemRandom().randrange(10**9)))
    with Stack(tmp_path / "stack", tied=True) as stack:
        stack.start("kafka", "catalog")
        result = run_matrix(stack, tmp_path, KILLS, seed, nodes)
    record_property("result", result)
    print(result)
    assert (result["lost"], result["doubled"]) == (0, 0), result
    by_step = result["by_step"]
    assert isinstance(by_step, dict)
    reached, kills = Counter[str](), Counter[str]()
    for case, counted in by_step.items():
        reached[case.partition("/")[0]] += counted["reached"]
        kills[case.partition("/")[0]] += counted["kills"]
    assert KILLS - reached.total() <= max(1, KILLS // 10), f"too many steps were not reached: {by_step}"
    # One that was tried once may have been missed: a process dies where it comes to the step in time.
    never = [step for step, times in kills.items() if times > 1 and not reached[step]]
    assert not never, f"steps that nobody has died at: {never}"
