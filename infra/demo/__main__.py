"""`python -m infra.demo`: the whole line on this machine, fed and counted."""

from pathlib import Path
from typing import Annotated

import typer

from infra.demo.produce import RECORDS_DEFAULT
from infra.demo.run import run_demo
from lake.command_line import run_program
from lake.terminal import TerminalConsole

app = typer.Typer(
    help="The demo: logs of made-up tenants and of the services themselves, from Kafka to Trino.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def main() -> None:
    """Everything runs on loopback; the state is thrown away at the next start."""


@app.command()
def run(
    check: Annotated[
        bool, typer.Option("--check", help="end after the sums; exit code 1 where one does not hold")
    ] = False,
    records: Annotated[int, typer.Option(help="records of the first load", min=1)] = RECORDS_DEFAULT,
    seed: Annotated[int, typer.Option(help="the same seed gives the same kinds of records")] = 1,
    state: Annotated[Path | None, typer.Option(help="folder of the services' data and logs")] = None,
) -> None:
    """Starts the services, produces logs, waits until every record is a row or a dead letter, and stays until
    Ctrl-C."""
    folder = state or Path("state") / ("demo-check" if check else "demo")
    run_demo(folder.absolute(), records, seed, check=check, console=TerminalConsole())


if __name__ == "__main__":
    run_program(app)
