"""What benchmarks found, kept in the repository where `--keep` asks for it: documents are written from it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer

FOLDER = Path(__file__).parent / "results"
Keep = Annotated[bool, typer.Option("--keep", help="keep the result in tests/benchmarks/results")]


def keep(name: str, result: Mapping[str, Any]) -> None:
    """Writes `<name>.json`."""
    (FOLDER / f"{name}.json").write_bytes(orjson.dumps(result, option=orjson.OPT_INDENT_2) + b"\n")
