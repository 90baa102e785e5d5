"""`python -m tests.prove`: the proofs that take too long for every run of the tests.

Each proof is a pytest run with larger numbers and a seed of its own; the longest ones are several, of other
seeds. The newest run of each is kept in tests/proofs/<proof>.json with its commit and the figures that its
tests have recorded (`record_property`), so that a run that was interrupted goes on where it stopped, and
everybody can see on which commit a proof was made. A run that fails does not replace one that passed.
"""

import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated
from xml.etree import ElementTree

import orjson
import typer

RESULTS = Path(__file__).parent / "proofs"
# Far enough for a part that tries many seeds from its own on.
SEEDS_APART = 1_000_000


@dataclass(frozen=True)
class Proof:
    """What is run: pytest's arguments, and the numbers that make it long. `part`: how many others of other
    seeds come before it."""

    name: str
    arguments: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)
    part: int = 0


def in_parts(parts: int, name: str, arguments: tuple[str, ...], environment: dict[str, str]) -> list[Proof]:
    """So many proofs, each with these numbers."""
    return [Proof(f"{name}-{part + 1}", arguments, environment, part) for part in range(parts)]


WITH_PROOFS_OF_THEIR_OWN = ("cost_model", "hot_tenant", "isolation", "many_tenants")
PAGES_WITH_PROOFS_OF_THEIR_OWN = ("keycloak", "tasks", "running_search", "screenshots")
PROOFS = (
    Proof("conformance", ("tests/catalog/test_conformance.py",), {"FIRN_PROVE": "1"}),
    Proof(
        "catalog-crashes",
        (
            "tests/catalog/test_crashes.py",
            "tests/catalog/test_lost_answers.py",
            "tests/catalog/test_hanging_storage.py",
        ),
        {"FIRN_PROVE": "1", "FIRN_CATALOG_KILLS": "100", "FIRN_CATALOG_RACE_S": "60"},
    ),
    Proof(
        "catalog-engines", ("tests/catalog/test_dirty_by_engines.py",), {"FIRN_CATALOG_ENGINE_COMMITS": "500"}
    ),
    Proof(
        "catalog-requests", ("tests/catalog/test_malformed_requests.py",), {"FIRN_CATALOG_REQUESTS": "5000"}
    ),
    Proof(
        "catalog-updates",
        ("tests/catalog/test_updates.py", "tests/catalog/test_name_journal.py"),
        {"FIRN_FUZZ_EXAMPLES": "1000"},
    ),
    Proof(
        "fuzz",
        ("tests/lake", "tests/ingest", "-m", "not stack"),
        {"FIRN_FUZZ_EXAMPLES": "3000", "FIRN_APPLIED_CHANGES": "100"},
    ),
    Proof(
        "json-columns",
        ("tests/ingest/test_json_columns.py", "-k", "generated or changed or any_bytes"),
        {"FIRN_JSON_RECORDS": "10000000", "FIRN_FUZZ_EXAMPLES": "5000"},
    ),
    Proof("data-sets", ("tests/stack/test_datasets.py",), {"FIRN_PROVE": "1"}),
    Proof("layout", ("tests/ingest/test_layout_datasets.py",), {"FIRN_ONE_OF": "1"}),
    *in_parts(
        4, "protocol-model", ("tests/faults/model/test_protocol_model.py",), {"FIRN_MODEL_RUNS": "25000"}
    ),
    *in_parts(
        4,
        "crash-matrix",
        ("tests/faults/crash/test_crash_matrix.py",),
        {"FIRN_PROVE": "1", "FIRN_MATRIX_KILLS": "50"},
    ),
    *in_parts(
        3,
        "change-streams",
        ("tests/faults/streams",),
        {"FIRN_STREAM_TRANSACTIONS": "20000", "FIRN_STREAM_KILLS": "20"},
    ),
    Proof(
        "line",
        (
            *("tests/stack", "-m", "prove"),
            *(f"--ignore=tests/stack/test_{name}.py" for name in WITH_PROOFS_OF_THEIR_OWN),
        ),
        {"FIRN_PROVE": "1"},
    ),
    Proof("cost-model", ("tests/stack/test_cost_model.py",), {"FIRN_PROVE": "1"}),
    Proof("hot-tenant", ("tests/stack/test_hot_tenant.py",), {"FIRN_PROVE": "1"}),
    Proof("many-tenants", ("tests/stack/test_many_tenants.py",), {"FIRN_PROVE": "1"}),
    Proof(
        "spark-crashes",
        (
            "tests/ingest/test_spark_engine.py",
            "tests/ingest/test_spark_core.py",
            "tests/changes/test_keyed_tables.py",
        ),
        {"FIRN_PROVE": "1", "FIRN_TEST_KILLS": "50"},
    ),
    Proof(
        "backfill",
        ("tests/ingest/test_backfill_on_stack.py", "tests/ingest/test_backfill_topic_on_stack.py"),
        {"FIRN_PROVE": "1"},
    ),
    Proof(
        "secured",
        (
            "tests/security/test_secured_kafka.py",
            "tests/stack/test_golden.py",
            "tests/stack/test_nasty_input.py",
            "tests/stack/test_exactly_once.py",
            "tests/stack/test_parking.py",
            "tests/stack/test_tools_tail.py",
            "tests/stack/test_tools_dead_letters.py",
            "tests/stack/test_tools_reset.py",
            "tests/stack/test_tools_status.py",
            "tests/ingest/test_backfill_topic_on_stack.py",
            "tests/ingest/test_spark_engine.py",
        ),
        {"FIRN_PROVE": "1", "FIRN_TEST_KAFKA": "secured", "FIRN_TEST_KILLS": "4"},
    ),
    Proof(
        "kafka-by-token",
        ("tests/security/test_kafka_by_token.py", "tests/stack/test_golden.py"),
        {"FIRN_TEST_KAFKA": "token", "FIRN_PROVE": "1"},
    ),
    Proof("drills", ("tests/drills",), {"FIRN_PROVE": "1"}),
    Proof("schema-registry", ("tests/contracts/test_schema_registry.py",), {"FIRN_PROVE": "1"}),
    Proof(
        "local-stack", ("tests/infra/test_local_stack.py", "tests/infra/test_forked.py"), {"FIRN_PROVE": "1"}
    ),
    Proof(
        "both-databases",
        (
            "tests/catalog",
            "-m",
            "stack",
            "-k",
            "sqlite or postgres",
            "--ignore=tests/catalog/test_conformance.py",
        ),
        {"FIRN_PROVE": "1"},
    ),
    Proof("releases", ("tests/releases",), {"FIRN_PROVE": "1"}),
    Proof("images", ("tests/infra/test_images_start.py",), {"FIRN_PROVE": "1"}),
    Proof("helm", ("tests/infra/test_helm_chart.py",), {"FIRN_PROVE": "1"}),
    Proof("oidc", ("tests/ui/test_keycloak.py",), {"FIRN_PROVE": "1"}),
    Proof(
        "pages",
        ("tests/ui", *(f"--ignore=tests/ui/test_{name}.py" for name in PAGES_WITH_PROOFS_OF_THEIR_OWN)),
        {"FIRN_PROVE": "1"},
    ),
    Proof("tasks", ("tests/ui/test_tasks.py",), {"FIRN_PROVE": "1"}),
    Proof(
        "running-search",
        ("tests/ui/test_running_search.py", "tests/query/test_progress.py"),
        {"FIRN_PROVE": "1"},
    ),
    Proof("isolation", ("tests/stack/test_isolation.py",), {"FIRN_PROVE": "1"}),
    Proof("exactly-once", ("tests/stack/test_exactly_once.py",), {"FIRN_TEST_KILLS": "60"}),
    Proof(
        "prometheus",
        ("tests/infra/test_prometheus_scrapes.py", "tests/infra/test_prometheus_faults.py"),
        {"FIRN_PROVE": "1"},
    ),
    Proof("flink", ("tests/changes/test_flink.py",), {"FIRN_PROVE": "1"}),
    Proof("rewrite", ("tests/optimize/test_rewrite.py",), {"FIRN_PROVE": "1"}),
    Proof("cluster", ("tests/optimize/test_cluster.py",), {"FIRN_PROVE": "1"}),
    Proof(  # what every run of the tests leaves out, and no other proof has
        "rest",
        (
            "tests/optimize/test_merge_beside_ingestion.py",
            "tests/query/test_cold_in_engines.py",
            "tests/query/test_audit_trail.py",
            "tests/changes/test_seen_by_people.py",
            "tests/security/test_turns.py",
            "tests/security/test_ui_text.py",
            "tests/security/test_letters_table.py",
            "tests/security/test_jvm_parts.py",
        ),
        {"FIRN_PROVE": "1"},
    ),
    Proof("optimize-s3", ("tests/optimize/test_s3.py",), {"FIRN_PROVE": "1"}),
    Proof("optimize-crashes", ("tests/optimize/test_crashes.py",), {"FIRN_TEST_KILLS": "50"}),
    Proof("search-engines", ("tests/query/test_two_engines.py",), {"FIRN_SEARCH_QUERIES": "300"}),
    Proof(
        "token-filters",
        (
            "tests/lake/token_filter/test_exactness.py",
            "tests/lake/token_filter/test_exactness_on_trino.py",
            "tests/query/test_token_filters.py",
            "tests/query/test_filtered_searches.py",
            "tests/query/test_words_of_all_scripts.py",
        ),
        {
            "FIRN_PROVE": "1",
            "FIRN_FILTER_QUESTIONS": "100000",
            "FIRN_FILTER_QUESTIONS_TRINO": "10000",
            "FIRN_SEARCH_QUERIES": "400",
        },
    ),
    Proof("search-hostile", ("tests/query/test_hostile_input.py",), {"FIRN_HOSTILE_INPUTS": "2000"}),
    Proof("alert-crashes", ("tests/query/test_alert_crashes.py",), {"FIRN_PROVE": "1"}),
    Proof("search-requests", ("tests/query/test_fuzz.py",), {"FIRN_FUZZ_REQUESTS": "5000"}),
    Proof(
        "security-leaks",
        (
            "tests/security/test_routes.py",
            "tests/security/test_spelled_names.py",
            "tests/security/test_sql_views.py",
            "tests/security/test_secrets_in_output.py",
            "tests/query/test_system_tenant.py",
        ),
        {"FIRN_PROVE": "1"},
    ),
    Proof("merged-bounds", ("tests/security/test_merged_bounds.py",), {"FIRN_BOUNDS_TABLES": "30"}),
    Proof("security-words", ("tests/security/test_words.py",), {"FIRN_PROVE": "1"}),
    Proof(
        "security-requests", ("tests/security/test_fuzz_services.py",), {"FIRN_SECURITY_REQUESTS": "20000"}
    ),
    Proof(
        "search-export",
        ("tests/query/test_export_on_stack.py",),
        {"FIRN_PROVE": "1", "FIRN_EXPORT_ROWS": "5000000"},
    ),
    Proof(
        "security-batches",
        ("tests/security/test_security_batches.py", "tests/security/test_unreadable_batches.py"),
        {"FIRN_PROVE": "1", "FIRN_SECURITY_BATCHES": "2000"},
    ),
    Proof("security-commits", ("tests/security/test_hostile_commits.py",), {"FIRN_SECURITY_COMMITS": "5000"}),
    Proof(
        "no-maintenance",
        ("tests/security/test_no_maintenance.py",),
        {"FIRN_PROVE": "1", "FIRN_TEST_COMMITS": "2000"},
    ),
    Proof(
        "months",
        ("tests/simulation/test_months.py", "tests/simulation/test_upkeep.py"),
        {"FIRN_PROVE": "1", "FIRN_MONTHS_TENANTS": "200", "FIRN_MONTHS_DAYS": "90"},
    ),
    Proof(
        "full-speed",
        ("tests/optimize/test_full_speed.py",),
        {"FIRN_PROVE": "1", "FIRN_TEST_FULL_SPEED_S": "600"},
    ),
)


def main(
    only: Annotated[
        list[str] | None,
        typer.Option(help="names of proofs, or their beginnings, repeatable; all where none is given"),
    ] = None,
    seed: Annotated[int, typer.Option(help="of everything random")] = 1,
    again: Annotated[
        bool, typer.Option("--again", help="also those that passed on this commit already")
    ] = False,
) -> None:
    """Runs the proofs that have not passed on this commit yet."""
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    failed = []
    for proof in PROOFS:
        if only and not proof.name.startswith(tuple(only)):
            continue
        if not again and passed_on(proof.name, commit, RESULTS):
            continue
        result = _run(proof, seed)
        keep(proof.name, {"commit": commit, **result}, RESULTS)
        if not result["passed"]:
            failed.append(proof.name)
    if failed:
        raise SystemExit(f"not proven: {', '.join(failed)}")


def passed_on(name: str, commit: str, folder: Path) -> bool:
    """Return whether the kept run of a proof passed on this commit."""
    kept = _kept(name, folder)
    return kept is not None and bool(kept["passed"]) and kept["commit"] == commit


def keep(name: str, result: Mapping[str, object], folder: Path) -> None:
    """Write a run of a proof to its file in `folder`, in place of the one before it; one that passed is
    replaced only by another that passed."""
    kept = _kept(name, folder)
    if kept is not None and kept["passed"] and not result["passed"]:
        return
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.json").write_bytes(orjson.dumps(result, option=orjson.OPT_INDENT_2))


def _kept(name: str, folder: Path) -> dict[str, object] | None:
    file = folder / f"{name}.json"
    return dict(orjson.loads(file.read_bytes())) if file.exists() else None


def _run(proof: Proof, seed: int) -> dict[str, object]:
    started_s = time.monotonic()
    seed += proof.part * SEEDS_APART
    environment = {**os.environ, **proof.environment, "FIRN_TEST_SEED": str(seed)}
    with tempfile.NamedTemporaryFile(suffix=".xml") as report:
        options = (
            "-o",
            "timeout=7200",
            "-o",
            "junit_family=xunit1",
            "--override-ini=addopts=-ra --strict-markers",
            f"--junit-xml={report.name}",
        )
        command = [sys.executable, "-m", "pytest", "-q", *options, *proof.arguments]
        print(f"{proof.name}: {' '.join(command)}", flush=True)
        done = subprocess.run(command, env=environment, check=False)
        figures = _figures(Path(report.name))
    return {
        "passed": done.returncode == 0,
        "seed": seed,
        "numbers": proof.environment,
        "took_s": round(time.monotonic() - started_s),
        **({"figures": figures} if figures else {}),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }


def _figures(report: Path) -> dict[str, dict[str, str]]:
    """What tests have recorded, by the test's name; nothing where pytest has not come to its end."""
    if not report.stat().st_size:
        return {}
    cases = ElementTree.parse(report).iter("testcase")
    found = {
        case.get("name", ""): {each.get("name", ""): each.get("value", "") for each in case.iter("property")}
        for case in cases
    }
    return {name: figures for name, figures in found.items() if figures}


if __name__ == "__main__":
    typer.run(main)
