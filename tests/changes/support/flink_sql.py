"""Flink itself: SQL statements, run in one process of it."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from infra.local import jvm_parts
from infra.local.java import CLASSIC
from infra.local.service import java_command

CATALOG = "lake"
HEAP_MB = 1024
LONGEST_S = 300.0
LOG_END = 3_000  # characters
_SOURCE = Path(__file__).resolve().parents[1] / "jvm/FlinkSql.java"
# What Flink's serializers look into.
_OPEN = ("java.lang", "java.net", "java.nio", "java.time", "java.util")


def run_in_flink(catalog_uri: str, folder: Path, statements: Sequence[str]) -> None:
    """Runs statements one after the other, each to its end; the catalog is `CATALOG` in them. `folder`: for
    the file that holds them. Fails with the end of what Flink printed."""
    options = {"type": "iceberg", "catalog-type": "rest", "uri": catalog_uri, "cache-enabled": "false"}
    spelled = ", ".join(f"'{name}' = '{value}'" for name, value in options.items())
    script = folder / "statements.sql"
    script.write_text("\n;\n".join((f"CREATE CATALOG {CATALOG} WITH ({spelled})", *statements)))
    opened = [part for each in _OPEN for part in ("--add-opens", f"java.base/{each}=ALL-UNNAMED")]
    parts = jvm_parts.fetch(jvm_parts.FLINK, print)
    java = (*java_command(CLASSIC, HEAP_MB), "-XX:+UseSerialGC", *opened, "-cp", f"{parts}/*")
    ended = subprocess.run(
        [*java, str(_SOURCE), str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LONGEST_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-LOG_END:]
