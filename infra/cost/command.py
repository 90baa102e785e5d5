"""`python -m infra cost`: what a load takes and costs, on Firn and on others."""

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich.table import Column, Table

from infra.cost.coefficients import read_coefficients
from infra.cost.firn import Sizing, cheapest_buffer
from infra.cost.flushes import MIB
from infra.cost.load import Load
from infra.cost.resources import NAMES, Resources
from infra.cost.sizing_rules import FILE as PRICES
from infra.cost.sizing_rules import PriceFile, read_prices
from lake.errors import SettingsError
from lake.settings.ingest import FlushSettings
from lake.terminal import TerminalConsole

LABELS = {
    "cores": "cores",
    "memory_gib": "memory, GiB",
    "ssd_gb": "SSD, GB",
    "hdd_gb": "HDD, GB",
    "object_gb": "object storage, GB",
    "put_per_hour": "PUT an hour",
    "get_per_hour": "GET an hour",
    "list_per_hour": "LIST an hour",
    "network_gb_per_hour": "network, GB an hour",
    "storage_gb_per_hour": "to and from storage, GB an hour",
}


@dataclass(frozen=True, slots=True)
class Estimate:
    """A load on Firn, with the buffers that were asked for or are cheapest, and as the setting's default has
    them, and on the others."""

    load: Load
    price_file: PriceFile
    firn: Sizing
    as_set: Sizing

    @property
    def rivals(self) -> dict[str, Resources]:
        """What the others take, by name."""
        shared = self.price_file.shared
        return {rules.name: rules.taken(self.load, shared) for rules in self.price_file.rivals}

    @property
    def columns(self) -> dict[str, Resources]:
        """Everything that is compared, by what it is called."""
        sizings = (self.firn, self.as_set) if self.as_set.keeps_up else (self.firn,)
        found = {f"Firn, {_memory(each)} of buffers": each.taken for each in sizings}
        return {**found, **self.rivals}

    def as_json(self) -> dict[str, Any]:
        """Everything, for programs."""
        prices = self.price_file.prices
        return {
            "load": asdict(self.load),
            "currency": prices.currency,
            "firn": {
                "buffer_bytes": self.firn.buffer_bytes,
                "workers": self.firn.flushes.rules.workers,
                "commits_per_s": round(self.firn.flushes.per_s, 3),
                "parts": {name: _rounded(asdict(part)) for name, part in self.firn.parts.items()},
                "warnings": self.firn.warnings,
                **self._priced(self.firn.taken),
            },
            "compared": {name: self._priced(each) for name, each in self.columns.items()},
        }

    def _priced(self, taken: Resources) -> dict[str, Any]:
        prices = self.price_file.prices
        return {
            **_rounded(asdict(taken)),
            "month": {kind: round(money, 2) for kind, money in prices.month(taken).items()},
            "month_sum": round(prices.month_sum(taken), 2),
        }


def _memory(sizing: Sizing) -> str:
    return f"{sizing.buffer_bytes / MIB / 1_024:g} GiB"


def _rounded(values: dict[str, float]) -> dict[str, float]:
    return {name: round(value, 3) for name, value in values.items()}


def estimate(
    load: Load,
    *,
    prices: Path = PRICES,
    flush: FlushSettings | None = None,
    storage_ratio: float | None = None,
) -> Estimate:
    """What a load takes, by the price file and the settings of `flush`; where these do not say how much may
    wait in memory, by as much as makes the month cheapest. Raises SettingsError."""
    price_file, settings = read_prices(prices), flush or FlushSettings()
    default = float(FlushSettings().buffer_bytes_max)
    as_set = Sizing(load, read_coefficients(), price_file, settings, default, storage_ratio)
    if "buffer_bytes_max" in settings.model_fields_set:
        firn = replace(as_set, buffer_bytes=float(settings.buffer_bytes_max))
    else:
        firn = cheapest_buffer(as_set)
    return Estimate(load, price_file, firn, as_set)


def figure(value: float) -> str:
    """A figure for people: three digits, or whole where it is larger."""
    if value == 0:
        return "0"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def parts_rows(found: Estimate) -> list[tuple[str, ...]]:
    """The table of Firn's parts: a header, a row a resource, the money of a month."""
    parts, prices = found.firn.parts, found.price_file.prices
    columns = [*parts.items(), ("together", found.firn.taken)]
    return _rows(columns, prices.currency, [prices.month_sum(each) for _, each in columns])


def compared_rows(found: Estimate) -> list[tuple[str, ...]]:
    """The table that compares: a header, a row a resource, the money of a month by kind and in all."""
    prices, columns = found.price_file.prices, list(found.columns.items())
    months = [prices.month(each) for _, each in columns]
    rows = _rows(columns, prices.currency, [sum(month.values()) for month in months])
    kinds = [
        (f"{kind}, {prices.currency} a month", *(figure(month[kind]) for month in months))
        for kind in months[0]
    ]
    return [*rows[:-1], *kinds, rows[-1]]


def _rows(
    columns: Sequence[tuple[str, Resources]], currency: str, sums: Sequence[float]
) -> list[tuple[str, ...]]:
    rows = [("", *(name for name, _ in columns))]
    for name in NAMES:
        values = [getattr(each, name) for _, each in columns]
        if any(values):
            rows.append((LABELS[name], *map(figure, values)))
    return [*rows, (f"{currency} a month", *map(figure, sums))]


def show(found: Estimate, console: TerminalConsole) -> None:
    """Prints both tables, and what is to be said of them."""
    firn = found.firn
    console.print(
        f"{found.load.raw_gb_per_day:,.0f} GB a day; {firn.flushes.rules.workers} workers, "
        f"{figure(firn.flushes.per_s)} commits a second"
    )
    for rows in (parts_rows(found), compared_rows(found)):
        table = Table(rows[0][0], *(_column(name) for name in rows[0][1:]))
        for row in rows[1:]:
            table.add_row(*row)
        console.print(table)
    for warning in firn.warnings:
        console.print(f"note: {warning}")
    if found.as_set.month > firn.month * 1.01:
        console.print(
            f"note: this takes flush.buffer_bytes_max = {firn.buffer_bytes:.0f}; with its default "
            + (
                f"a month costs {figure(found.as_set.month)}"
                if found.as_set.keeps_up
                else "one node does not keep up"
            )
        )
    console.print("prices, assumptions and the others' rules: " + str(PRICES.relative_to(PRICES.parents[2])))


def _column(name: str) -> Column:
    return Column(name, justify="right")


def cost(
    records_per_second: Annotated[float, typer.Option(help="Records that come, on average.")],
    bytes_per_record: Annotated[float, typer.Option(help="Bytes of a record as it comes.")],
    tenants: Annotated[int, typer.Option(help="Tenants, with one table each; streams count as tenants.")],
    retention_days: Annotated[float, typer.Option(help="Days that records stay.")],
    searches_per_day: Annotated[float, typer.Option(help="Searches of all people.")] = 0.0,
    skew: Annotated[
        float, typer.Option(help="How unlike tenants are: the exponent of Zipf's law; 0: all alike.")
    ] = 1.0,
    flush_interval_s: Annotated[
        float | None, typer.Option(help="The setting flush.interval_s; without it its default.")
    ] = None,
    buffer_bytes: Annotated[
        int | None,
        typer.Option(help="The setting flush.buffer_bytes_max; without it what makes a month cheapest."),
    ] = None,
    storage_ratio: Annotated[
        float | None,
        typer.Option(
            help="Bytes of merged files for one byte of your records; without it the median of the data sets."
        ),
    ] = None,
    prices: Annotated[
        Path | None, typer.Option(help="Your own copy of the file of prices, assumptions and rules.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Everything as JSON.")] = False,
) -> None:
    """Tell what a load takes and costs: cores, memory, storage, requests, network and money, on Firn by
    measured coefficients, and on Elasticsearch, Loki and VictoriaLogs by their published rules."""
    if storage_ratio is not None and not 0 < storage_ratio <= 10:
        raise SettingsError(f"--storage-ratio {storage_ratio:g}: a number above 0, such as 0.1")
    load = Load(records_per_second, bytes_per_record, tenants, retention_days, searches_per_day, skew)
    found = estimate(
        load,
        prices=prices or PRICES,
        flush=_flush(flush_interval_s, buffer_bytes),
        storage_ratio=storage_ratio,
    )
    if as_json:
        sys.stdout.write(orjson.dumps(found.as_json(), option=orjson.OPT_INDENT_2).decode() + "\n")
    else:
        show(found, TerminalConsole(width=200))


def _flush(interval_s: float | None, buffer_bytes: int | None) -> FlushSettings:
    given = {"interval_s": interval_s, "buffer_bytes_max": buffer_bytes}
    for name, value in given.items():
        if value is not None and not 0 < value < float("inf"):
            option = "--flush-interval-s" if name == "interval_s" else "--buffer-bytes"
            raise SettingsError(f"{option} {value:g}: give a number, more than 0")
    return FlushSettings.model_validate({name: value for name, value in given.items() if value is not None})
