"""Which alerts of infra/prometheus would fire, by what the services show before a disaster and during it."""

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path

import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.infra.support.promtool import FOLDER, promtool

QUIET_MIN, RISING_MIN, LASTING_MIN = 20, 10, 90
NAMES = frozenset(
    rule["alert"] for rule in yaml.safe_load((FOLDER / "rules.yaml").read_text())["groups"][0]["rules"]
)
Series = dict[str, float]


def series(job: str, page: str) -> Series:
    """The series of a page of metrics, with the job that Prometheus adds, and its `up`."""
    shown = {
        _spelled(sample.name, {**sample.labels, "job": job}): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name.startswith("firn_") and not sample.name.endswith("_created")
    }
    return {**shown, **up(job, 1)}


def up(job: str, value: int) -> Series:
    """What Prometheus notes of a job by itself."""
    return {_spelled("up", {"job": job}): value}


def fires(alert: str, before: Mapping[str, float], during: Mapping[str, float]) -> bool:
    """Whether a rule fires where the services show `before` for 20 minutes, get to `during` within ten, and
    stay there for an hour and a half. Promtool evaluates the rule as Prometheus would."""
    end_min = QUIET_MIN + RISING_MIN + LASTING_MIN
    firing = f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})'
    test = {
        "interval": "1m",
        "input_series": [
            {"series": name, "values": _values(name, before.get(name), during.get(name))}
            for name in {**before, **during}
        ],
        "promql_expr_test": [
            {
                "expr": f"count(max_over_time(({firing})[{end_min}m:1m]))",
                "eval_time": f"{end_min}m",
                "exp_samples": [{"labels": "{}", "value": 1}],
            }
        ],
    }
    rules = {
        "rule_files": [str(FOLDER / "rules.yaml")],
        "evaluation_interval": "1m",
        "tests": [test],
    }
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "drill.yaml"
        file.write_text(json.dumps(rules))
        try:
            promtool("test", "rules", str(file))
        except AssertionError as failure:
            if "got: nil" not in str(failure):
                raise
            return False
    return True


def _spelled(name: str, labels: Mapping[str, str]) -> str:
    return f"{name}{{{', '.join(f'{key}={json.dumps(value)}' for key, value in sorted(labels.items()))}}}"


def _values(name: str, before: float | None, during: float | None) -> str:
    """In promtool's notation; `_`: the series is not there. A counter that was not there began at 0."""
    quiet = f"_x{QUIET_MIN}" if before is None else f"{before:.6f}x{QUIET_MIN}"
    if during is None:
        return quiet
    began = 0.0 if "_total{" in name else during
    start = began if before is None else before
    step = (during - start) / RISING_MIN
    return f"{quiet} {start:.6f}{step:+.6f}x{RISING_MIN} {during:.6f}x{LASTING_MIN}"
