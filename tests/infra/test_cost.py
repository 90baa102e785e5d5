"""`python -m infra cost`: what it tells, what it refuses, and that rules and prices are the reader's."""

import math
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner

from infra.__main__ import app
from infra.cost.coefficients import read_coefficients
from infra.cost.command import estimate, figure
from infra.cost.formulas import evaluate
from infra.cost.ingestion import CAUSES, PROCESSES, Work, cpu_s, requests
from infra.cost.load import Load
from infra.cost.maintenance import spans
from infra.cost.resources import NAMES, Resources
from infra.cost.sizing_rules import FILE, read_prices
from lake.errors import SettingsError
from lake.settings.ingest import FlushSettings

SMALL = Load(2_000, 500, 100, 30, 1_000)
OPTIONS = (
    *("--records-per-second", "2000", "--bytes-per-record", "500", "--tenants", "100"),
    *("--retention-days", "30", "--searches-per-day", "1000"),
)


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["cost", *arguments])
    return result.exit_code, result.output


def test_the_command_tells_resources_and_money_of_all() -> None:
    """People get tables with every part of Firn and every rival; programs get the same as JSON, and both say
    the same sum."""
    code, text = run(*OPTIONS)
    assert code == 0
    assert all(
        word in text for word in ("Kafka", "ingest", "catalog", "maintenance", "search", "PUT an hour")
    )
    assert all(name in text.replace("\n", " ") for name in ("Elasticsearch", "Loki", "VictoriaLogs"))
    code, as_json = run(*OPTIONS, "--json")
    found = orjson.loads(as_json)
    assert code == 0
    month = estimate(SMALL).firn.month
    assert figure(month) in text
    assert found["firn"]["month_sum"] == pytest.approx(month, abs=0.01)
    assert found["firn"]["month_sum"] == pytest.approx(sum(found["firn"]["month"].values()), abs=0.05)
    assert set(NAMES) <= found["firn"]["parts"]["ingest"].keys()


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (("--records-per-second", "0"), "--records-per-second 0: give a number, more than 0"),
        (("--records-per-second", "nan"), "--records-per-second nan"),
        (("--bytes-per-record", "-1"), "--bytes-per-record -1"),
        (("--tenants", "0"), "--tenants 0"),
        (("--retention-days", "inf"), "--retention-days inf"),
        (("--searches-per-day", "-3"), "--searches-per-day -3: give a number, 0 or more"),
        (("--skew", "9"), "an exponent of Zipf's law"),
        (("--storage-ratio", "0"), "--storage-ratio 0"),
        (("--flush-interval-s", "0"), "--flush-interval-s 0"),
        (("--buffer-bytes", "-5"), "--buffer-bytes -5"),
        (("--prices", "/nowhere/prices.toml"), "No such file"),
    ],
)
def test_mistakes_are_one_message_and_exit_code_2(changed: tuple[str, ...], words: str) -> None:
    """A number that no load has ends in one message that names its option, without a traceback."""
    code, text = run(*OPTIONS, *changed)
    assert code == 2
    assert words in text.replace("\n", " ")
    assert "Traceback" not in text


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("[assumptions]", "[assumption]", "[assumptions] is missing"),
        ("core_hour = {", "core_hours = {", "[prices] core_hour has to be a number"),
        ('currency = "USD"', "currency = 5", "[prices] currency has to be a text"),
        ("value = 0.08", "value = -1", "[prices] ssd_gb_month has to be a number, 0 or more"),
        ("replicas = { value = 3,", "replicas = { worth = 3,", "[kafka] kafka replicas"),
        ('cores = "raw_mb_per_second /', 'cores = "raw_mb /', "'raw_mb' is no value"),
        ('cores = "raw_mb_per_second /', "cores = \"__import__('os') /", "is not allowed"),
        ('cores = "raw_mb_per_second /', 'cores = "0 - raw_mb_per_second /', "is below 0"),
        ('key = "loki"', "", "'key' is missing"),
        ("[prices]", "[prices", "is not TOML"),
    ],
)
def test_a_price_file_with_a_mistake_is_refused_by_name(
    tmp_path: Path, old: str, new: str, words: str
) -> None:
    """What is wrong in a copy of the price file is named, with its place."""
    own = tmp_path / "own.toml"
    assert old in FILE.read_text()
    own.write_text(FILE.read_text().replace(old, new, 1))
    code, text = run(*OPTIONS, "--prices", str(own))
    assert code == 2
    assert words in text.replace("\n", " ")
    assert "Traceback" not in text


@pytest.mark.long
def test_the_readers_prices_and_rules_count(tmp_path: Path) -> None:
    """A copy with other prices and another formula gives other sums."""
    own = tmp_path / "own.toml"
    text = FILE.read_text().replace("core_hour = { value = 0.034", "core_hour = { value = 0.068", 1)
    own.write_text(text.replace('"raw_gb_per_day * retention_days * stored"', '"12345"', 1))
    before, after = estimate(SMALL), estimate(SMALL, prices=own)
    loki = "Loki, distributed, over object storage"
    assert after.rivals[loki].object_gb == 12_345
    of = before.price_file.prices.month(before.rivals[loki])["cores"]
    assert after.price_file.prices.month(after.rivals[loki])["cores"] == pytest.approx(2 * of)


def test_every_price_and_value_names_its_source() -> None:
    """Nothing in the price file is there without a page, a measurement, or the word assumption."""
    found = read_prices()
    sources = [*found.price_sources.values(), *(each.source for each in found.assumptions.values())]
    for rules in (found.kafka, *found.rivals):
        sources += [each.source for each in rules.values.values()]
        assert rules is found.kafka or rules.left_out
    assert len(sources) > 40
    for source in sources:
        assert source.startswith(("https://", "assumption", "measured here", "the formula of the same page"))


def test_every_coefficient_names_its_measurement() -> None:
    """Each has a command that exists, the file of its result, and a date."""
    found = read_coefficients()
    assert {f"cpu.{process}.{cause}" for process in PROCESSES for cause in CAUSES} <= found.by_name.keys()
    root = FILE.parents[2]
    for each in found.by_name.values():
        module = each.command.split()[2]
        assert (root / f"{module.replace('.', '/')}.py").exists() or (
            root / module.replace(".", "/")
        ).is_dir()
        assert (root / each.result).is_file()
        assert each.date.startswith("20")
        assert each.value >= 0


def test_an_unknown_coefficient_says_how_to_write_the_file() -> None:
    """A model that is newer than the file says so."""
    with pytest.raises(SettingsError, match="cost_coefficients"):
        read_coefficients()["cpu.of.nothing"]


@pytest.mark.parametrize(
    ("formula", "value"),
    [
        ("1 + 2 * 3 - 4 / 2", 5),
        ("-a + 2 * a", 7),
        ("min(a, 3) + max(1, 2, a)", 10),
        ("ceil(a / 2)", 4),
        ("1 if a > 7 else 2", 2),
        ("1 if a >= 7 else 2", 1),
    ],
)
def test_formulas_are_sums_of_named_values(formula: str, value: float) -> None:
    """The arithmetic, the functions and the choice."""
    assert evaluate(formula, {"a": 7.0}, "here") == value


@pytest.mark.parametrize(
    "formula",
    [
        *("a.b", "a[0]", "open('x')", "(lambda: 1)()", "[1, 2]", "'text'", "True", "a and 1", "min(*a)"),
        *(
            "b",
            "1 +",
            "",
            "1 / 0",
            "1e308 * 1e308",
            "min(a)",
            "ceil(1, 2)",
            "max()",
            "9 ** 9",
            "(" * 400,
            "1 < 2 < 3",
        ),
    ],
)
def test_anything_else_in_a_formula_is_refused(formula: str) -> None:
    """Attributes, calls, texts and what has no value are an error that names the place."""
    with pytest.raises(SettingsError, match="here"):
        evaluate(formula, {"a": 7.0}, "here")


@pytest.mark.parametrize("tenants", [1, 7, 200, 201, 5_000, 1_000_000])
def test_tenants_share_all_records(tenants: int) -> None:
    """Whatever their number, the classes have all tenants and all records, the busiest first."""
    load = Load(1_000, 100, tenants, 1)
    classes = list(load.by_traffic())
    assert sum(each.count for each in classes) == tenants
    assert sum(each.count * each.records_per_s for each in classes) == pytest.approx(1_000)
    rates = [each.records_per_s for each in classes]
    assert rates == sorted(rates, reverse=True)
    assert 1 / tenants <= load.searched_share * 1.000001 <= 1.000002


def test_more_of_anything_costs_more() -> None:
    """Records, retention, tenants and searches each raise the month."""
    flush = FlushSettings(buffer_bytes_max=4 << 30)
    base = estimate(SMALL, flush=flush).firn.month
    for field in ("records_per_second", "retention_days", "tenants", "searches_per_day"):
        more = replace(SMALL, **{field: getattr(SMALL, field) * 10})
        assert estimate(more, flush=flush).firn.month > base, field


def test_storage_is_what_stays_of_all_records() -> None:
    """Nearly all bytes are those of merged files; the reader's own ratio takes the place of the median's."""
    load = Load(10_000, 1_000, 50, 365)
    kept = load.raw_gb_per_day * load.retention_days
    found = estimate(load, storage_ratio=0.05).firn.parts["tables"].object_gb
    assert found == pytest.approx(kept * 0.05, rel=0.03)
    assert estimate(load).firn.parts["tables"].object_gb > found or read_coefficients()["ratio.merged"] < 0.05


@pytest.mark.long
def test_the_chosen_buffers_are_the_cheapest() -> None:
    """Where nobody says how much may wait, no other size that is tried costs less."""
    load = Load(50_000, 600, 2_000, 30)
    chosen = estimate(load).firn
    for mib in (512, 2_048, 8_192, 65_536):
        assert chosen.month <= replace(chosen, buffer_bytes=float(mib << 20)).month * 1.000001


@pytest.mark.long
def test_a_load_that_one_node_cannot_do_is_said() -> None:
    """With the default of the buffers a large load is beyond one node, and the command says what to raise."""
    found = estimate(Load(200_000, 600, 5_000, 30), flush=FlushSettings(buffer_bytes_max=512 << 20))
    assert not found.firn.keeps_up
    assert any("flush.buffer_bytes_max" in warning for warning in found.firn.warnings)
    code, text = run(*OPTIONS, "--records-per-second", "200000", "--tenants", "5000")
    assert code == 0
    assert "one node does not keep up" in text.replace("\n", " ")


def test_work_costs_by_its_causes() -> None:
    """CPU and requests are sums over seconds, records, bytes, commits and tables; files are PUTs of their
    own."""
    found = read_coefficients()
    nothing = Work(0, 0, 0, 0)
    assert sum(cpu_s(nothing, found).values()) == 0
    once = Work(0, 0, 0, 1, 0, 1)
    assert requests(once, found)["put"] == pytest.approx(1 + found["put.commit"])
    assert cpu_s(replace(once, commits=2), found)["catalog"] == 2 * found["cpu.catalog.commit"]


def test_spans_follow_retention_and_size() -> None:
    """Days from a retention of 10 days on, months from 310 on, each while its file is below the target."""
    assert spans(1e3, 9) == (1,)
    assert spans(1e3, 10) == (1, 24)
    assert spans(1e3, 309) == (1, 24)
    assert spans(1e3, 310) == (1, 24, 730)
    assert spans(1e6, 365) == (1, 24)
    assert spans(1e9, 365) == (1,)


def test_resources_add_up() -> None:
    """A sum has every resource of its parts."""
    one = Resources(*(float(at) for at in range(1, len(NAMES) + 1)))
    assert one + one == Resources(*(2.0 * at for at in range(1, len(NAMES) + 1)))
    assert not math.isnan(one.cores)
