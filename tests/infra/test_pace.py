"""How fast the cores were while tests and benchmarks ran."""

import subprocess
import sys
from math import isnan

import pytest

from tests.pace import Pace, pace_of


@pytest.mark.parametrize(
    ("times", "pace"),
    [([], 1.0), ([4.0], 1.0), ([4.0] * 50 + [8.0] * 50, 2 / 3), ([1.0] + [4.0] * 99, 1.0)],
    ids=["nothing yet", "one", "half of the time at half the pace", "an error of the clock"],
)
def test_the_pace_is_the_best_by_the_mean(times: list[float], pace: float) -> None:
    assert pace_of(times) == pytest.approx(pace)


def test_it_is_sampled_beside_what_runs() -> None:
    with Pace() as pace:
        assert 0.0 < pace.mean() <= 1.0


def test_what_runs_has_its_result_though_the_sampler_is_killed() -> None:
    with Pace() as pace:
        pace._process.kill()
        pace._process.join()
        assert isnan(pace.mean())


def test_a_command_is_run_and_its_exit_code_given_on() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.pace", sys.executable, "-c", "print('did'); raise SystemExit(3)"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 3
    assert ran.stdout.startswith("did\ntook 0 min ")
    assert "of their best pace" in ran.stdout
