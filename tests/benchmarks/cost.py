"""`python -m tests.benchmarks.cost --json`: ingestion at 1, 10, 100, 1,000 and 10,000 tenants, and what the
model of `infra/cost` says of it.

`--calibrate` measures what the model's coefficients come from instead: a node without traffic, small and
large records of one tenant, and 2,000 tenants whose tables begin and then go on. Of what `--keep` keeps of it
`python -m tests.benchmarks.cost_coefficients` makes the coefficients.

The machine's pace is no part of the model: CPU is compared at the pace of the run with one tenant (`pace`).
"""

import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import mean
from typing import Annotated, Any

import orjson
import typer

from infra.cost.coefficients import Coefficients, read_coefficients
from infra.cost.ingestion import cpu_s
from infra.local.ports import reserve_free
from infra.local.supervisor import Stack
from tests.benchmarks.cost_run import Case, Round, as_json, compared, run
from tests.benchmarks.kept_results import Keep, keep

WITHIN = 0.2


def at(tenants: int, records: int = 150_000, per_second: float = 2_500, interval_s: float = 10.0) -> Case:
    """A case of the check: tenants by Zipf, three intervals for those with little traffic."""
    return Case(f"{tenants}-tenants", tenants, records, per_second, interval_s, 3 * interval_s)


# One tenant sends more, since its CPU is the measure of the machine's pace. The pace of all leaves a machine
# idle enough that tables are flushed when they are due, which is what the model counts.
ONE = at(1, 400_000, 6_500, 3.0)
CHECKS = (ONE, at(10), at(100), at(1_000), at(10_000, 150_000, 1_500, 30.0))
CALIBRATION = (
    Case("idle", 1, 100, 0, 1.0, 1.0, idle_s=20.0),
    Case("small-records", 1, 400_000, 20_000, 5.0, 5.0),
    Case("large-records", 1, 200_000, 10_000, 5.0, 5.0, padding=1_200),
    Case("many-tables", 2_000, 40_000, 0, 4.0, 4.0, zipf=False, rounds=2),
    Case("few-at-once", 100, 150_000, 2_500, 10.0, 30.0),
)


def pace_of(rounds: Sequence[Round], coefficients: Coefficients) -> float:
    """CPU seconds that this machine takes for one of the coefficients', by some rounds."""
    modelled = sum(sum(cpu_s(each.work, coefficients).values()) for each in rounds)
    return sum(sum(each.cpu_s.values()) for each in rounds) / modelled


def comparison(rounds: Sequence[Round], coefficients: Coefficients) -> dict[str, Any]:
    """The model beside runs, the first of which has one tenant. `within`: how far apart they are where they
    are furthest."""
    pace = pace_of(rounds[:1], coefficients)
    found = [compared(each, coefficients, pace) for each in rounds]
    ratios = [each[what]["ratio"] for each in found for what in ("commits", "put", "cpu_s")]
    return {
        "pace": round(pace, 3),
        "within": round(max(max(ratio, 1 / ratio) - 1 for ratio in ratios), 3),
        "compared": found,
    }


def check(bootstrap: str, folder: Path, tenants: Sequence[int]) -> dict[str, Any]:
    """Runs the cases: the one with one tenant, and those of so many (none named: all)."""
    rounds = list[Round]()
    cases = [case for case in CHECKS if case is ONE or not tenants or case.tenants in tenants]
    for number, case in enumerate(cases):
        rounds += run(case, bootstrap, folder / str(number), reserve_free())
        say(rounds[-1])
    return {"rounds": as_json(rounds)}


def calibrate(bootstrap: str, folder: Path) -> dict[str, Any]:
    """Runs what the coefficients come from."""
    rounds = list[Round]()
    for number, case in enumerate(CALIBRATION):
        found = run(case, bootstrap, folder / str(number), reserve_free())
        for each in found:
            say(each)
        rounds += found
    return {"rounds": as_json(rounds)}


def say(found: Round) -> None:
    """Tells of a round on stderr."""
    told = {
        "tenants": found.tenants,
        "seconds": found.seconds,
        "commits": found.commits,
        "cpu_s": dict(found.cpu_s),
        "kernel_s": round(sum(found.kernel_s.values()), 2),
        "requests": dict(found.requests),
    }
    print(f"{found.case}: {told}", file=sys.stderr, flush=True)


def conditions(loads: Sequence[float]) -> dict[str, Any]:
    """When and where it was measured, and the load averages before and after."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "load_average": round(mean(loads), 1),
    }


def main(
    calibrating: Annotated[
        bool, typer.Option("--calibrate", help="measure what the coefficients come from")
    ] = False,
    tenants: Annotated[
        list[int] | None,
        typer.Option(help="only the run with so many tenants, beside that with one; repeatable"),
    ] = None,
    as_text: Annotated[bool, typer.Option("--json", help="print JSON alone")] = False,
    keeps: Keep = False,
) -> None:
    """Measures. Ends with 1 where the model is further from a run than
    a fifth."""
    load_before = os.getloadavg()[0]
    with (
        tempfile.TemporaryDirectory(prefix="firn-bench-") as scratch,
        Stack(Path(scratch), tied=True) as stack,
    ):
        stack.start("kafka")
        bootstrap, folder = stack.address("kafka"), Path(scratch) / "runs"
        found = calibrate(bootstrap, folder) if calibrating else check(bootstrap, folder, tenants or ())
    result = {**conditions([load_before, os.getloadavg()[0]]), **found}
    if keeps:
        keep("cost_calibration" if calibrating else "cost", result)
    told = (
        found if calibrating else comparison([Round(**each) for each in found["rounds"]], read_coefficients())
    )
    typer.echo(orjson.dumps(told, option=None if as_text else orjson.OPT_INDENT_2).decode())
    if not calibrating and told["within"] > WITHIN:
        raise SystemExit(1)


if __name__ == "__main__":
    typer.run(main)
