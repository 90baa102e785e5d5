"""The model of costs beside runs of the real node: with 1,000 tenants within a fifth, and its requests."""

from collections.abc import Callable
from pathlib import Path

import pytest

from infra.cost.coefficients import read_coefficients
from infra.cost.ingestion import requests
from infra.local.ports import reserve_free
from infra.local.supervisor import Stack
from tests.benchmarks.cost import ONE, WITHIN, at, pace_of
from tests.benchmarks.cost_run import Case, compared, run
from tests.benchmarks.storage_requests import GET, LIST, PUT

pytestmark = [pytest.mark.stack, pytest.mark.prove]


def test_a_thousand_tenants_cost_what_the_model_says(
    services: Stack, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """CPU seconds, commits and requests of 150,000 records of 1,000 tenants by Zipf are the model's within a
    fifth, on a machine of any pace: a run with one tenant tells how much slower or faster it is."""
    coefficients, bootstrap = read_coefficients(), services.address("kafka")
    (one,) = run(ONE, bootstrap, tmp_path / "one", reserve_free())
    (many,) = run(at(1_000), bootstrap, tmp_path / "many", reserve_free())
    found = compared(many, coefficients, pace_of([one], coefficients))
    for what in ("commits", "put", "cpu_s"):
        record_property(what, found[what])
    for what in ("commits", "put", "cpu_s"):
        assert found[what]["model"] == pytest.approx(found[what]["measured"], rel=WITHIN), (what, found)


def test_requests_are_as_many_as_the_model_says(services: Stack, tmp_path: Path) -> None:
    """Each table of 100 is created and then appended to: of the commits that there were, the model's PUTs are
    within a fifth; nothing is read or listed."""
    case = Case("small", 100, 4_000, 0, 2.0, 2.0, zipf=False, rounds=2)
    first, second = run(case, services.address("kafka"), tmp_path / "small", reserve_free())
    assert (first.new_tables, second.new_tables) == (100, 0)
    assert min(first.commits, second.commits) >= 100
    for found in (first, second):
        asked = requests(found.work, read_coefficients())
        assert asked["put"] == pytest.approx(found.requests[PUT], rel=WITHIN)
        assert found.requests[GET] + found.requests[LIST] <= 0.05 * found.requests[PUT]
