"""`python -m tests.simulation.months --tenants 2000 --days 90 --json`: months of a lake in an hour. Real
catalog, real writers and commits, real maintenance, on a clock that the simulation moves.

At the end of each simulated week the figures are noted (`weekly.py`) and the result is written as far as it
is; at the end a rule (`growth.py`) says what grows. Exit code 1 where something does, or where a table has
rows too many or too few. SIGINT and SIGTERM end it with the result of what was lived.
"""

import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer

from lake.logs import configure_logs
from lake.memory import share_arenas
from tests.environment import without_settings
from tests.simulation.counted import cpu_s
from tests.simulation.designs import designs
from tests.simulation.growth import by_design, verdicts
from tests.simulation.weekly import figures_of_week
from tests.simulation.world import DAY_H, Plan, Say, World

Keep = Callable[[dict[str, Any]], object]
Ended = Callable[[], bool]
# 2,000 tenants take 1 GB.
MEMORY, MEMORY_BYTES_MIN = Path("/dev/shm"), 4 << 30
RESULT = Path(__file__).resolve().parents[1] / "benchmarks" / "results" / "months.json"


def simulate(
    world: World, hours: int, say: Say, keep: Keep = lambda _: None, ended: Ended = lambda: False
) -> dict[str, Any]:
    """Lives these hours, or until it is `ended`; the result as JSON. `keep` gets it after each week, as far
    as it is."""
    began_s, weeks = time.monotonic(), list[dict[str, Any]]()
    week_h = world.plan.week_h
    measured_s = 0.0
    while world.hour < hours and not ended():
        world.live()
        if world.hour % DAY_H == 0:
            say(_progress(world, hours, time.monotonic() - began_s))
        if world.hour % week_h == 0:
            measure_s = time.monotonic()
            weeks.append(figures_of_week(world, world.hour // week_h))
            measured_s += time.monotonic() - measure_s
            weeks[-1]["wall_s"] = round(time.monotonic() - began_s)
            say(_line(weeks[-1]))
            if weeks[-1]["wrong_rows"]:
                say("\n".join(weeks[-1]["wrong_rows"]))
            keep(result_of(world, weeks, time.monotonic() - began_s, measured_s))
    world.settle()
    return result_of(world, weeks, time.monotonic() - began_s, measured_s)


def _progress(world: World, hours: int, took_s: float) -> str:
    days, whole_s = world.hour // DAY_H, took_s * hours / world.hour
    rate = world.plan.tenants * days / took_s
    return f"day {days}: {took_s:.0f} s, {rate:.1f} tenants' days a second; all of it {whole_s:.0f} s"


def result_of(
    world: World, weeks: Sequence[dict[str, Any]], wall_s: float, measured_s: float
) -> dict[str, Any]:
    """What there is to tell."""
    expected = designs(world.plan)
    found, bounded = list(verdicts(weeks, expected)), by_design(weeks, expected) if weeks else []
    return {
        "tenants": world.plan.tenants,
        "days": round(world.hour / DAY_H, 2),
        "rows": world.node.rows,
        "rows_per_hour": world.plan.tenants * world.plan.rows_per_tenant,
        "hours_between_rounds": world.plan.round_hours,
        "hours_counted": world.plan.hours_counted,
        "wall_s": round(wall_s),
        "of_which_measuring_s": round(measured_s),
        "tenant_days_per_s": round(world.plan.tenants * world.hour / DAY_H / wall_s, 1),
        "cpu_s": _cpu_s(world),
        "done": dict(world.done),
        "dead_letters": dict(world.node.letters.reasons),
        "wrong_rows": [line for week in weeks for line in week["wrong_rows"]],
        "grows": [verdict.to_json() for verdict in found if verdict.grows]
        + [entry for entry in bounded if not entry["within"]],
        "above_third_week": [verdict.to_json() for verdict in found if verdict.is_above],
        "by_design": bounded,
        "series_judged": len(found),
        "weeks": weeks,
        "cores": os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 1),
        "date": datetime.now(UTC).date().isoformat(),
    }


def _write(file: Path, result: dict[str, Any]) -> str:
    text = orjson.dumps(result, option=orjson.OPT_INDENT_2).decode()
    file.write_text(text + "\n")
    return text


def _cpu_s(world: World) -> dict[str, float]:
    """CPU seconds, by process; node, searches and the simulation itself are one."""
    found = {
        "catalog": cpu_s(world.process.pid),
        "maintenance": cpu_s(world.upkeep.pid),
        "node_and_searches": time.process_time(),
    }
    all_s = world.meter.now(with_executors=True).cpu_s
    return {"all": round(all_s, 1), **{name: round(took_s, 1) for name, took_s in found.items()}}


def _line(week: dict[str, Any]) -> str:
    level, operations = week["tables"].get("level", {}), week["operations"]
    return (
        f"week {week['week']:2}: {week['wall_s']} s; files {level['files']}, manifests {level['manifests']}, "
        f"metadata {level['metadata_bytes']}, objects {level['objects']}; commit "
        f"{operations['commit']['cpu_ms']:.2f} ms (fresh {week['fresh']['commit']['cpu_ms']:.2f}), plan "
        f"{operations['plan_day']['cpu_ms']:.2f} and {operations['plan_everything']['cpu_ms']:.2f} ms, "
        f"maintenance {week['maintenance_cpu_s_per_hour']:.2f} s/h, "
        f"database {week['database']['used_bytes'] >> 10} KiB, "
        f"memory {week['memory_mb']}, kept {week['kept']['node_tables']}, wrong {len(week['wrong_rows'])}"
    )


def lived(
    plan: Plan,
    days: int,
    folder: Path,
    say: Say,
    *,
    keep: Keep = lambda _: None,
    ended: Ended = lambda: False,
    spark: bool = False,
) -> dict[str, Any]:
    """Lives so many days with a lake in a folder; the result as JSON, see `simulate`."""
    with World(folder, plan, spark=spark) as world:
        return {
            **simulate(world, days * DAY_H, say, keep, ended),
            "executor": "spark" if spark else "processes",
        }


def _in_memory() -> Path | None:
    """Where files lie in memory; None: nowhere. What the machine's disk takes to sync a file is nobody's cost
    here, and would be most of the hour."""
    has_room = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= MEMORY_BYTES_MIN
    return MEMORY if has_room else None


def _told_to_end() -> Ended:
    """Whether SIGINT or SIGTERM has come: then the hour is brought to its end, and the result is what there
    is until then. A second one ends it at once."""
    came = threading.Event()

    def note(number: int, _: object) -> None:
        came.set()
        signal.signal(number, signal.SIG_DFL)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, note)
    return came.is_set


def main(
    tenants: Annotated[int, typer.Option(help="tenants at any time", min=10)] = 2_000,
    days: Annotated[int, typer.Option(help="simulated days", min=1)] = 90,
    rows: Annotated[float, typer.Option(help="records of a tenant in an hour, on the average of all")] = 0.2,
    round_hours: Annotated[
        int, typer.Option(help="simulated hours between rounds of maintenance", min=1)
    ] = 6,
    seed: Annotated[int, typer.Option(help="of everything random")] = 1,
    spark: Annotated[bool, typer.Option(help="merges by Spark, else in two processes")] = False,
    folder: Annotated[
        Path | None,
        typer.Option(
            help="where the lake lies; in memory by default where there is room, else in a temporary folder"
        ),
    ] = None,
    result: Annotated[Path, typer.Option(help="file that gets the result")] = RESULT,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON alone")] = False,
) -> None:
    """Lives the months and keeps the result."""

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    kept = without_settings()
    for name in [name for name in os.environ if name not in kept]:
        del os.environ[name]
    os.environ["FIRN_CONFIG"] = ""
    configure_logs("simulation", level=logging.ERROR)
    share_arenas()  # as every program does
    plan = Plan(tenants, rows, seed, round_hours)
    with tempfile.TemporaryDirectory(prefix="firn-months-", dir=folder or _in_memory()) as place:
        found = lived(
            plan,
            days,
            Path(place),
            say,
            keep=lambda each: _write(result, each),
            ended=_told_to_end(),
            spark=spark,
        )
    text = _write(result, found)
    brief = {name: value for name, value in found.items() if name not in ("weeks", "by_design")}
    typer.echo(text if as_json else orjson.dumps(brief, option=orjson.OPT_INDENT_2).decode())
    if found["grows"] or found["wrong_rows"]:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
