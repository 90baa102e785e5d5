"""Rules of sizing as a file has them: named values, each with its source, and formulas over these and the
load."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.cost.coefficients import read_toml
from infra.cost.formulas import evaluate
from infra.cost.load import Load
from infra.cost.resources import NAMES, Prices, Resources
from lake.errors import SettingsError

FILE = Path(__file__).with_name("prices.toml")


@dataclass(frozen=True, slots=True)
class Value:
    """A value and where it comes from: a page, a measurement, or that it is an assumption."""

    value: float
    source: str


@dataclass(frozen=True, slots=True)
class Rules:
    """How much something takes. `formulas` are evaluated in their order, each may use those before it; the
    ones named as a resource are the result. `left_out`: what no rule is known of."""

    key: str
    name: str
    values: Mapping[str, Value]
    formulas: Mapping[str, str]
    left_out: str = ""

    def taken(self, load: Load, shared: Mapping[str, float]) -> Resources:
        """What it takes for a load; `shared`: values that all rules may use. Raises SettingsError."""
        known = {**of_load(load), **shared, **{name: each.value for name, each in self.values.items()}}
        for name, formula in self.formulas.items():
            known[name] = evaluate(formula, known, f"{self.key}, {name}")
            if name in NAMES and known[name] < 0:
                raise SettingsError(f"{self.key}, {name}: {formula!r} is below 0 for this load")
        return Resources(**{name: known[name] for name in NAMES if name in self.formulas})


@dataclass(frozen=True, slots=True)
class PriceFile:
    """Everything that a reader can change: prices, assumptions, and the rules of others."""

    prices: Prices
    price_sources: Mapping[str, str]
    assumptions: Mapping[str, Value]
    kafka: Rules
    rivals: Sequence[Rules]

    @property
    def shared(self) -> dict[str, float]:
        """Values that all rules may use."""
        return {name: each.value for name, each in self.assumptions.items()}


def of_load(load: Load) -> dict[str, float]:
    """What formulas may ask of a load."""
    return {
        "records_per_second": load.records_per_second,
        "bytes_per_record": load.bytes_per_record,
        "tenants": float(load.tenants),
        "retention_days": load.retention_days,
        "searches_per_day": load.searches_per_day,
        "raw_gb_per_day": load.raw_gb_per_day,
        "raw_mb_per_second": load.bytes_per_s / 1e6,
    }


def read_prices(path: Path = FILE) -> PriceFile:
    """The price file. Raises SettingsError."""
    found = read_toml(path)
    if missing := [name for name in ("prices", "assumptions", "kafka", "rival") if name not in found]:
        raise SettingsError(f"{path}: [{missing[0]}] is missing; begin with a copy of infra/cost/prices.toml")
    prices = found["prices"]
    return PriceFile(
        Prices.of(prices, str(path)),
        {name: each["source"] for name, each in prices.items() if isinstance(each, dict)},
        _values(found["assumptions"], f"{path}: [assumptions]"),
        _rules(found["kafka"], f"{path}: [kafka]"),
        [_rules(each, f"{path}: [[rival]]") for each in found["rival"]],
    )


def _values(found: Any, where: str) -> dict[str, Value]:
    values = dict[str, Value]()
    for name, each in found.items():
        try:
            values[name] = Value(float(each["value"]), str(each["source"]))
        except (TypeError, KeyError, ValueError):
            raise SettingsError(
                f"{where} {name}: write {name} = {{ value = NUMBER, source = TEXT }}"
            ) from None
    return values


def _rules(found: Any, where: str) -> Rules:
    try:
        key, name, formulas = found["key"], found["name"], found["formulas"]
    except (TypeError, KeyError) as error:
        raise SettingsError(f"{where}: {error} is missing") from None
    if bad := [each for each in formulas if not isinstance(formulas[each], str)]:
        raise SettingsError(f"{where} {key}: the formula {bad[0]} has to be a text")
    return Rules(
        key, name, _values(found.get("values", {}), f"{where} {key}"), formulas, found.get("left_out", "")
    )
