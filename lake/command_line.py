"""How every program of Firn begins and ends."""

import traceback
from collections.abc import Callable

import typer

from lake.errors import FirnError
from lake.memory import share_arenas
from lake.terminal import visible


def run_program(program: Callable[[], object]) -> None:
    """Runs a command line; an expected problem is one sentence on stderr, in one line, and exit code 2.

    So is wrong usage; an error that nobody foresaw shows its trace and ends with 2 as well. 1 is an answer:
    what was looked at is not as it should be.
    """
    share_arenas()
    try:
        program()
    except FirnError as error:
        typer.secho(visible(f"error: {error}"), fg=typer.colors.RED, err=True)
        raise SystemExit(2) from None
    except Exception:  # noqa: BLE001 - Python itself would end with 1
        traceback.print_exc()
        raise SystemExit(2) from None
