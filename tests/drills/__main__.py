"""`python -m tests.drills NAME ... [--json]`: disasters on the real stack, one drill for each page of
docs/runbooks.

A drill starts a stack of its own, lets records flow, breaks it, runs the commands of its page, and looks for
every record by its identity. It fails where a record is lost or doubled that the page does not call lost,
where an alert that the page names would not fire, and where a command of the page has not been run.
"""

import random
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated

import orjson
import typer

from infra.local.supervisor import Stack
from tests.drills.support.runbook import Runbook, pages
from tests.drills.support.scene import Play, Scene


@dataclass(frozen=True)
class Outcome:
    """What a drill has shown. `figures`: records, lost, doubled, and what else it counted."""

    drill: str
    took_s: int
    alerts: list[str]
    commands: list[str]
    figures: dict[str, object]


def module_of(page: Runbook) -> str:
    """The module that holds a page's drill."""
    return f"tests.drills.{page.name.replace('-', '_')}"


def take(page: Runbook, seed: int) -> Outcome:
    """Carries out one drill; raises AssertionError where it fails."""
    module = import_module(module_of(page))
    play: Play = module.play
    started_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="firn-drill-") as name:
        folder = Path(name)
        with (
            Stack(folder / "stack", tied=True, warehouse=getattr(module, "WAREHOUSE", None)) as stack,
            Scene(stack, folder, page, random.Random(seed)) as scene,
        ):
            figures = play(scene)
            scene.check_page()
    assert figures["lost"] == figures["doubled"] == 0, figures
    took_s = round(time.monotonic() - started_s)
    return Outcome(page.name, took_s, scene.fired, scene.ran, dict(figures))


def main(
    names: Annotated[list[str] | None, typer.Argument(help="of drills; all where none is given")] = None,
    listed: Annotated[bool, typer.Option("--list", help="name the drills, and run none")] = False,
    seed: Annotated[int, typer.Option(help="of everything random")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="print a JSON object a line")] = False,
) -> None:
    """Carries out drills; ends with 1 at the first one that fails."""
    known = {page.name: page for page in pages()}
    if strange := set(names or ()) - known.keys():
        raise typer.BadParameter(f"{', '.join(sorted(strange))}; the drills are {', '.join(known)}")
    for name in names or known:
        page = known[name]
        if listed:
            shown = {"drill": name, "title": page.title, "page": f"docs/runbooks/{name}.md"}
            typer.echo(orjson.dumps(shown).decode() if as_json else f"{name:28}{page.title}")
            continue
        print(f"{name}: {page.title}", file=sys.stderr, flush=True)
        outcome = asdict(take(page, seed))
        typer.echo(
            orjson.dumps(outcome).decode()
            if as_json
            else f"{name}: {', '.join(f'{key} {value}' for key, value in outcome['figures'].items())}"
        )


if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
    app.command()(main)
    app()
