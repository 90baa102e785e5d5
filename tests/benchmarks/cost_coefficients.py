"""`python -m tests.benchmarks.cost_coefficients`: writes infra/cost/coefficients.toml from the kept results.

Each coefficient is a figure of a result in tests/benchmarks/results, or follows from some by the few sums
below, and names the command that measures it and the day on which that was. `--check` only tells whether the
file is up to date.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Annotated, Any

import numpy as np
import orjson
import typer

from infra.cost.coefficients import FILE, Coefficient
from infra.cost.ingestion import CAUSES, PROCESSES
from tests.benchmarks.cost_run import Round
from tests.benchmarks.kept_results import FOLDER
from tests.benchmarks.storage_requests import GET, PUT

HEAD = """\
# What Firn takes, as measured: written by `python -m tests.benchmarks.cost_coefficients` from the results
# in tests/benchmarks/results. A test holds that it is what they give.
"""
UNITS = {
    "second": "s a s",
    "record": "s a record",
    "byte": "s a byte",
    "commit": "s a commit",
    "table": "s a table",
    "batch": "s a batch",
}
NOTES = {
    "second": "without traffic",
    "record": "least squares over the rounds of the calibration",
    "byte": "least squares over the rounds of the calibration",
    "commit": "least squares over the rounds of the calibration",
    "table": "a table that begins, beside its commit; least squares",
    "batch": "tables that are flushed and committed together; least squares",
}
DIGITS = 4
# Of the largest value; what is less counts as if it were so much, since its error is most of it.
LEAST_SHARE = 0.1
# When results were kept that do not say it themselves.
OPTIMIZE_DATE, SEARCH_DATE = "2026-11-22", "2026-11-25"
WEEK_KINDS = (
    *("rare_word_week", "rare_word_any_case_week", "absent_word_week", "status_404_week", "newest_hour"),
    *("newest_week", "histogram_week", "count_common_word_week", "top_uri_week"),
)


def kept(name: str) -> dict[str, Any]:
    """A kept result."""
    return dict(orjson.loads((FOLDER / f"{name}.json").read_bytes()))


def coefficients() -> Iterator[Coefficient]:
    """All of them."""
    yield from of_ingestion()
    yield from of_storage()
    yield from of_maintenance()
    yield from of_search()


def nonnegative_fit(rows: Sequence[Sequence[float]], values: Sequence[float]) -> list[float]:
    """What each column is worth, by least squares of the relative errors; columns that would be worth less
    than nothing are worth nothing."""
    weights = 1 / np.maximum(np.asarray(values, float), LEAST_SHARE * max(values))
    matrix, wanted = np.asarray(rows, float) * weights[:, None], np.asarray(values, float) * weights
    left = list(range(matrix.shape[1]))
    while True:
        scale = np.abs(matrix[:, left]).max(axis=0)
        found = np.linalg.lstsq(matrix[:, left] / scale, wanted, rcond=None)[0] / scale
        if (found >= 0).all():
            return [float(found[left.index(at)]) if at in left else 0.0 for at in range(matrix.shape[1])]
        left.pop(int(np.argmin(found * scale)))


def of_ingestion() -> Iterator[Coefficient]:
    """CPU by process and cause, requests, memory and metadata of ingestion."""
    result = kept("cost_calibration")
    rounds = result["rounds"]
    source = ("python -m tests.benchmarks.cost --calibrate", "cost_calibration.json", result["date"])
    idle = [each for each in rounds if each["case"] == "idle"]
    busy = [each for each in rounds if each["case"] != "idle"]
    for process in PROCESSES:
        second = sum(each["cpu_s"][process] for each in idle) / sum(each["seconds"] for each in idle)
        rows = [Round(**each).work.by_cause[1:] for each in busy]
        spent = [max(0.0, each["cpu_s"][process] - second * each["seconds"]) for each in busy]
        for cause, value in zip(CAUSES, (second, *nonnegative_fit(rows, spent)), strict=True):
            yield made(f"cpu.{process}.{cause}", value, UNITS[cause], source, NOTES[cause])
    later = [each for each in busy if each["case"] == "many-tables" and not each["new_tables"]]
    first = [each for each in busy if each["case"] == "many-tables" and each["new_tables"]]
    for kind in (PUT, GET):
        data = "files" if kind == PUT else ""
        of_commit = _beside_files(later, kind, data) / sum(each["commits"] for each in later)
        of_table = max(
            0.0,
            (_beside_files(first, kind, data) - of_commit * sum(each["commits"] for each in first))
            / sum(each["new_tables"] for each in first),
        )
        beside = " beside its data files" if kind == PUT else ""
        yield made(
            f"{kind}.commit", of_commit, f"{kind.upper()} a commit", source, f"of known tables{beside}"
        )
        yield made(
            f"{kind}.table", of_table, f"{kind.upper()} a new table", source, "beside its first commit"
        )
    yield made(
        "bytes.metadata",
        median(each["metadata_bytes_mean"] for each in later),
        "bytes a file",
        source,
        "the mean of metadata files",
    )
    yield from _of_memory(rounds, source)


def _beside_files(rounds: Sequence[Mapping[str, Any]], kind: str, data: str) -> float:
    return float(sum(each["requests"][kind] - (each[data] if data else 0) for each in rounds))


def _of_memory(rounds: Sequence[Mapping[str, Any]], source: tuple[str, str, str]) -> Iterator[Coefficient]:
    few = [each for each in rounds if each["case"] == "idle"][-1]
    many = [each for each in rounds if each["case"] == "many-tables"][-1]
    for name in ("node", "catalog"):
        base = few["rss_bytes"][name]
        of_table = max(0.0, (many["rss_bytes"][name] - base) / (many["tenants"] - few["tenants"]))
        yield made(f"memory.{name}", base, "bytes", source, "resident, with one table and without traffic")
        yield made(
            f"memory.{name}.table",
            of_table,
            "bytes a table",
            source,
            "growth from one table to 2,000, what their traffic needs for a while included",
        )


def of_storage() -> Iterator[Coefficient]:
    """How small records become, and what merging them takes."""
    result = kept("storage")
    sources = result["sources"].values()
    source = ("python -m tests.benchmarks.storage", "storage.json", result["date"])
    of_all = "the median of the data sets and the demo's shapes"
    ratio = "bytes a byte of records"
    yield made(
        "ratio.small",
        median(s["small_bytes"] / s["raw_bytes"] for s in sources),
        ratio,
        source,
        f"as ingestion writes them; {of_all}",
    )
    yield made(
        "ratio.merged",
        median(merged_bytes(s) / s["raw_bytes"] for s in sources),
        ratio,
        source,
        f"as merges write them, token filters included; {of_all}",
    )
    merge = [s["seconds_before"]["merge_cpu_s"] * s["merge_cpu_s"] / s["raw_bytes"] for s in sources]
    yield made("cpu.merge.byte", median(merge), "s a byte of records", source, of_all)


def merged_bytes(source: Mapping[str, Any]) -> float:
    """Bytes of the merged file of a source, as merges write by default. What was kept before deltas of text
    had to be asked for has them in `after_bytes`, and the others among the variants."""
    without = source["variants"].get("now_without_text_deltas")
    return float(source["after_bytes"] if without is None else source["before_bytes"] * without["bytes"])


def of_maintenance() -> Iterator[Coefficient]:
    """What a merge takes beside its bytes, and what a table takes that is only there."""
    small, asked, months = kept("optimize"), kept("cost_maintenance"), kept("months")
    source = ("python -m tests.benchmarks.optimize", "optimize.json", small.get("date", OPTIMIZE_DATE))
    yield made(
        "cpu.merge.table",
        small["cpu_s"],
        "s a merge",
        source,
        "of 12 files of 60 rows, on Spark, its start included",
    )
    source = ("python -m tests.benchmarks.cost_maintenance", "cost_maintenance.json", asked["date"])
    yield made(
        "get.merge.file", asked["get_per_file"], "GET a small file", source, "merged, proven and deleted"
    )
    yield made("put.merge", asked["put_per_merge"], "PUT a merge", source, "beside the merged file")
    week = months["weeks"][-1]
    source = ("python -m tests.simulation.months", "months.json", months["date"])
    spent_s = {name: figures["total_cpu_s"] for name, figures in week["operations"].items()}
    expiry_s = spent_s["expire"] * 24 / months["hours_counted"]
    yield made(
        "cpu.table.day",
        (expiry_s + spent_s["daily_tasks"] + spent_s["weekly_tasks"] / 7) / months["tenants"],
        "s a table and day",
        source,
        "expiry of snapshots, retention, purge, a seventh of the search for orphans; last week",
    )
    yield made(
        "bytes.metadata.table",
        week["tables"]["level"]["metadata_bytes"]["median"],
        "bytes a table",
        source,
        "metadata that stays, the median of the last week",
    )


def of_search() -> Iterator[Coefficient]:
    """What a search takes, by how much its table has of a week."""
    result = kept("cost_search")
    source = ("python -m tests.benchmarks.cost_search", "cost_search.json", result["date"])
    note = "mean of the mix; a line through ten tables of different sizes"
    yield made("cpu.search", result["cpu_s"][0], "s a search", source, note)
    week = kept("search")
    took = [week[f"{kind}_p50_s"] for kind in WEEK_KINDS]
    slope = (sum(took) / len(took) * week["cores"] - result["cpu_s"][0]) / week["week_bytes"]
    yield made(
        "cpu.search.week",
        slope,
        "s a byte of the week",
        ("python -m tests.benchmarks.search", "search.json", SEARCH_DATE),
        "mean wall seconds of nine kinds over a week of 2 million records, as if all cores were busy",
    )
    yield made("bytes.search", result["read_bytes"][0], "bytes a search", source, note)
    yield made("bytes.search.week", result["read_bytes"][1], "bytes a byte of the week", source, note)
    yield made("files.search", result["files"], "files a search", source, "mean of the mix")
    yield made(
        "memory.search",
        result["rss_bytes"],
        "bytes",
        source,
        "resident after the mix, the engine's own included",
    )


def made(name: str, value: float, unit: str, source: tuple[str, str, str], note: str) -> Coefficient:
    """A coefficient, rounded."""
    command, result, date = source
    digits = 0 if value == 0 else DIGITS - 1 - math.floor(math.log10(abs(value)))
    return Coefficient(
        name, round(float(value), digits), unit, command, f"tests/benchmarks/results/{result}", date, note
    )


def text_of(found: Sequence[Coefficient]) -> str:
    """The file."""
    blocks = [HEAD]
    for each in found:
        lines = [
            "[[coefficient]]",
            f'name = "{each.name}"',
            f"value = {each.value!r}",
            f'unit = "{each.unit}"',
        ]
        lines += [f'command = "{each.command}"', f'result = "{each.result}"', f'date = "{each.date}"']
        blocks.append("\n".join([*lines, f'note = "{each.note}"']) + "\n")
    return "\n".join(blocks)


def main(
    check: Annotated[
        bool, typer.Option("--check", help="write nothing; end with 1 if the file would change")
    ] = False,
) -> None:
    """Writes the file."""
    text = text_of(list(coefficients()))
    if check:
        raise SystemExit(int(FILE.read_text() != text))
    FILE.write_text(text)
    typer.echo(f"wrote {FILE}")


if __name__ == "__main__":
    typer.run(main)
