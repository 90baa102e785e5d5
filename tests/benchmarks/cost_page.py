"""`python -m tests.benchmarks.cost_page`: writes docs/cost.md from the price file, the coefficients and the
kept results, so that no figure of it is typed by hand. A test holds that it is what this makes.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from infra.cost.coefficients import Coefficients, read_coefficients
from infra.cost.command import Estimate, compared_rows, estimate, figure, parts_rows
from infra.cost.load import Load
from infra.cost.sizing_rules import Value
from tests.benchmarks.cost import CHECKS, WITHIN, comparison
from tests.benchmarks.cost_coefficients import kept, merged_bytes
from tests.benchmarks.cost_run import Round

PAGE = Path(__file__).resolve().parents[2] / "docs" / "cost.md"
EXAMPLE = Load(200_000, 600, 5_000, 365, 20_000)
COMMAND = """python -m infra cost --records-per-second 200000 --bytes-per-record 600 --tenants 5000 \\
    --retention-days 365 --searches-per-day 20000"""
# What the demo's shapes and the data sets are, by the name that the results have.
KINDS = {
    "nginx_json": "demo: nginx as JSON",
    "audit": "demo: audit events of a cloud, deep JSON",
    "application": "demo: an application's JSON",
    "kubernetes": "demo: containers' logs with their metadata",
    "access_combined": "demo: access log, combined format",
    "syslog_5424": "demo: syslog, RFC 5424",
    "access-caddy.jsonl.zst": "Caddy as JSON",
    "access-combined.log.zst": "access log of a real site, combined format",
    "access-nginx.jsonl.zst": "nginx as JSON",
    "access-weblogs.jsonl.zst": "sample web logs as JSON",
    "cloudtrail.jsonl.zst": "CloudTrail, few records of many columns",
    "syslog-rfc3164.log.zst": "syslog, RFC 3164",
    "syslog-rfc5424.log.zst": "syslog, RFC 5424",
    "windows-events.jsonl.zst": "Windows events",
    "zeek.jsonl.zst": "Zeek, 19 kinds mixed",
}
HALF = 0.5


def page() -> str:
    """The page."""
    found = estimate(EXAMPLE)
    sections = (
        head(found),
        *example(found),
        *others(found),
        *where_firn_stands(found),
        *compression(kept("storage")),
        *checked(kept("cost"), read_coefficients()),
        *assumptions(found),
        *coefficients(read_coefficients()),
    )
    return "\n\n".join(sections) + "\n"


def head(found: Estimate) -> str:
    """What the page is."""
    return f"""# What it costs

`python -m infra cost` tells what a load takes and costs: cores, memory, storage, requests to the object
store, network and money. What Firn takes follows from measured coefficients, each with its measurement;
what others take follows from their published rules. Prices, assumptions and rules stand in
`infra/cost/prices.toml`: copy it, put your own in, and give it with `--prices`. The prices there are round
figures near public list prices, without any discount ({found.price_file.prices.currency}).

This page is written by `python -m tests.benchmarks.cost_page`; do not change it by hand."""


def example(found: Estimate) -> Iterator[str]:
    """The example on Firn."""
    firn, load = found.firn, found.load
    yield "## An example"
    yield f"```\n{COMMAND}\n```"
    yield (
        f"{load.raw_gb_per_day:,.0f} GB a day, {load.tenants:,} tenants whose traffic follows Zipf's law. "
        "One node with "
        f"{firn.flushes.rules.workers} workers makes {figure(firn.flushes.per_s)} commits of tables a "
        "second, with "
        f"`flush.buffer_bytes_max = {firn.buffer_bytes:.0f}`, which is what makes the month cheapest; "
        f"`--buffer-bytes` asks for another."
    )
    yield table(parts_rows(found))
    if found.as_set.keeps_up:
        default = f"a month would cost {figure(found.as_set.month)}"
    else:
        default = "one node would not keep up"
    yield (
        "Memory for waiting records decides how many commits there are, and with them the requests: with "
        "the default of "
        f"512 MiB {default}. Cores are what is busy on average divided by the utilisation that the price "
        "file aims at. "
        "Kafka is part of the bill, since Firn reads from it; who has one already sets its values to 0. A "
        "tenant's records "
        "are taken to come to every worker; with a partitioner by tenant there are fewer commits. What the "
        "coefficients "
        "do not tell is what a busier hour needs, a standby node, the catalog's PostgreSQL, and people."
    )


def others(found: Estimate) -> Iterator[str]:
    """The comparison."""
    yield "## Beside others"
    yield (
        "The same load by the published sizing rules of Elasticsearch, Loki and VictoriaLogs. A rule that "
        "nobody publishes "
        "is an assumption and is named so below; what no rule is known of is left out, in favour of the "
        "others:"
    )
    yield "\n".join(f"- {rules.name}: {rules.left_out}." for rules in found.price_file.rivals)
    yield table(compared_rows(found))


def where_firn_stands(found: Estimate) -> Iterator[str]:
    """What the comparison says, for and against Firn."""
    prices, firn = found.price_file.prices, found.firn.month
    months = {name: prices.month_sum(taken) for name, taken in found.rivals.items()}
    yield "### Where Firn stands"
    yield (
        "The founding documents want to save more than half against Elasticsearch. By these rules and "
        "prices Firn costs, of "
        "what each of the others costs:"
    )
    lines = []
    for name, month in months.items():
        share = firn / month
        meant = ""
        if name.startswith("Elasticsearch"):
            meant = ": more than half is saved" if share < HALF else ": half is **not** saved"
        elif share > 1:
            meant = ": Firn costs **more**"
        lines.append(f"- {name}: {share * 100:.0f} %{meant}")
    yield "\n".join(lines)
    parts = {name: prices.month_sum(each) for name, each in found.firn.parts.items()}
    dearest = sorted(parts, key=lambda name: -parts[name])
    told = ", ".join(f"{name} {parts[name] / firn * 100:.0f} %" for name in dearest)
    search = found.firn.parts["search"]
    yield (
        "Nobody has run this load. Extrapolated are: commits with buffers of many GiB (runs had 512 MiB), "
        "the CPU of searches (a line from tables of megabytes to those of many gigabytes a week), and the "
        "requests of searches that find none of their files on the disk. The rest was measured on machines "
        "of two cores."
    )
    yield (
        f"Of Firn's bill: {told}. Searches are counted for Firn alone ({figure(search.cores)} cores); the "
        "others' rules "
        "do not tell what theirs take. VictoriaLogs takes least CPU and needs no Kafka; its disks cost more "
        "than an object "
        "store, and a second copy of them is not counted."
    )


def compression(result: Mapping[str, Any]) -> Iterator[str]:
    """Ratios by kind of log."""
    yield "## Compression by kind of log"
    yield (
        f"Bytes of records as they come, divided by bytes of merged Parquet files with their token filters "
        f"(`python -m tests.benchmarks.storage`, {result['date']}). Small data sets compress worse than a "
        "month of the "
        "same: most of the data sets here have some ten thousand records. Give your own with "
        "`--storage-ratio`, as bytes "
        "of files for one byte of records."
    )
    rows: list[tuple[str, ...]] = [
        ("", "records", "bytes a record", "as ingestion writes them", "merged", "--storage-ratio")
    ]
    for name, kind in KINDS.items():
        each = result["sources"][name]
        rows.append(
            (
                kind,
                f"{each['rows']:,}",
                f"{each['raw_bytes'] / each['rows']:,.0f}",
                f"{each['raw_bytes'] / each['small_bytes']:.1f}",
                f"**{each['raw_bytes'] / merged_bytes(each):.1f}**",
                f"{merged_bytes(each) / each['raw_bytes']:.3f}",
            )
        )
    yield table(rows)


def checked(result: Mapping[str, Any], measured: Coefficients) -> Iterator[str]:
    """The model against runs."""
    told = comparison([Round(**each) for each in result["rounds"]], measured)
    yield "## The model beside runs"
    yield (
        f"`python -m tests.benchmarks.cost`, {result['date']}, {result['machine']}, load average "
        f"{result['load_average']}: each run sends records of tenants by Zipf at a pace, and counts "
        "until all are "
        f"committed. The machine took {told['pace']:.2f} CPU seconds for one of the coefficients', by the "
        "run with one "
        "tenant; the others are compared at that pace. The model knows the records, the pace at which they "
        "came and the "
        f"settings, not the commits. Furthest apart: {told['within'] * 100:.0f} % (bound: 20 %)."
    )
    yield from _limits_of_the_check(result, told["within"])
    rows: list[tuple[str, ...]] = [
        ("tenants", "commits, model", "measured", "PUT, model", "measured", "CPU s, model", "measured")
    ]
    for each in told["compared"]:
        pairs = [(each[what]["model"], each[what]["measured"]) for what in ("commits", "put", "cpu_s")]
        rows.append((f"{each['tenants']:,}", *(figure(value) for pair in pairs for value in pair)))
    yield table(rows)


def _limits_of_the_check(result: Mapping[str, Any], within: float) -> Iterator[str]:
    """What the kept runs do not show."""
    kept_tenants = {each["tenants"] for each in result["rounds"]}
    if missing := [f"{case.tenants:,}" for case in CHECKS if case.tenants not in kept_tenants]:
        yield f"No run is kept with {', '.join(missing)} tenants."
    calibrated = [each["cpu_s"] for each in kept("cost_calibration")["rounds"]]
    if shared := [f"{each['tenants']:,}" for each in result["rounds"] if each["cpu_s"] in calibrated]:
        yield f"The run with {', '.join(shared)} tenants is one of those that the coefficients come from."
    if within > WITHIN:
        yield (
            f"**These runs do not show the bound.** At a load average of {result['load_average']} tables are "
            "flushed later than they are due, and the same work takes more CPU from one minute to the next; "
            "they are to be repeated on a quiet machine."
        )


def assumptions(found: Estimate) -> Iterator[str]:
    """Prices, assumptions and the others' rules, each with its source."""
    prices = found.price_file
    yield "## Prices, assumptions and rules"
    rows: list[tuple[str, ...]] = [("", "value", "source")]
    for name, source in prices.price_sources.items():
        rows.append((f"`{name}`", f"{getattr(prices.prices, name):g}", source))
    yield table(rows)
    yield table([("", "value", "source"), *_values(prices.assumptions), *_values(prices.kafka.values)])
    for rules in prices.rivals:
        yield f"### {rules.name}"
        yield table([("", "value", "source"), *_values(rules.values)])
        yield "```\n" + "\n".join(f"{name} = {formula}" for name, formula in rules.formulas.items()) + "\n```"


def _values(values: Mapping[str, Value]) -> Iterator[tuple[str, ...]]:
    for name, each in values.items():
        yield f"`{name}`", f"{each.value:g}", each.source


def coefficients(found: Coefficients) -> Iterator[str]:
    """All coefficients with their measurement."""
    yield "## Coefficients"
    yield (
        "From the kept results in `tests/benchmarks/results`, written by `python -m "
        "tests.benchmarks.cost_coefficients`. "
        "CPU seconds are those of one core of the machine that measured; such machines differ by up to two "
        "times."
    )
    rows: list[tuple[str, ...]] = [("", "value", "unit", "", "measured by", "date")]
    for name, each in found.by_name.items():
        rows.append((f"`{name}`", f"{each.value:.4g}", each.unit, each.note, f"`{each.command}`", each.date))
    yield table(rows)


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows as a table of Markdown, the first one its head."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def main() -> None:
    """Writes the page."""
    PAGE.write_text(page())
    typer.echo(f"wrote {PAGE}")


if __name__ == "__main__":
    typer.run(main)
