"""`python -m query boards`: a tenant's boards, and the same as files of JSON, a board each, which may be kept
in git. Answers are JSON, an object a line."""

import sys
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import orjson
import typer

from lake.errors import RefusedError
from lake.terminal import json_text
from query.cli.command_line import Tenant
from query.cli.remote import open_remote

BYTES_MAX = 1024 * 1024
PATH = "/v1/boards"

boards_cli = typer.Typer(help="Boards of searches.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="the board's name")]


@boards_cli.command("list")
def list_boards(tenant: Tenant) -> None:
    """List a tenant's boards."""
    with open_remote() as remote:
        for board in remote.get(PATH, {"tenant": tenant})["boards"]:
            _say(board)


@boards_cli.command("export")
def export(
    tenant: Tenant,
    folder: Annotated[Path, typer.Argument(help="where the files go, each named as its board")],
) -> None:
    """Write a tenant's boards into files, NAME.json, over those that are there; the same boards give the same
    files."""
    folder.mkdir(parents=True, exist_ok=True)
    with open_remote() as remote:
        for line in remote.get(PATH, {"tenant": tenant})["boards"]:
            board = remote.get(f"{PATH}/{line['name']}", {"tenant": tenant})["board"]
            path = folder / f"{line['name']}.json"
            options = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
            path.write_bytes(orjson.dumps(board, option=options))
            _say({"board": line["name"], "file": str(path)})


@boards_cli.command("apply")
def apply(
    tenant: Tenant,
    files: Annotated[list[Path], typer.Argument(help="files, each named as its board")],
    replace: Annotated[
        bool, typer.Option("--replace", help="delete the tenant's boards that are in none of the files")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="say what would change, and change nothing")
    ] = False,
) -> None:
    """Keep the boards of files, each in place of the one of its name."""
    boards = {path.stem: _read(path) for path in files}
    if len(boards) < len(files):
        raise RefusedError("two of the files have the same name; a board is named as its file")
    with open_remote() as remote:
        known = {line["name"] for line in remote.get(PATH, {"tenant": tenant})["boards"]}
        for name, board in boards.items():
            if dry_run:
                _say({"board": name, "outcome": "would be changed" if name in known else "would be made"})
            else:
                kept = remote.put(f"{PATH}/{quote(name, safe='')}", {"tenant": tenant, "board": board})
                _say({"board": name, "outcome": kept["outcome"]})
        for name in sorted(known - boards.keys()) if replace else ():
            if not dry_run:
                remote.delete(f"{PATH}/{name}", {"tenant": tenant})
            _say({"board": name, "outcome": "would be deleted" if dry_run else "deleted"})


@boards_cli.command("delete")
def delete(tenant: Tenant, name: Name) -> None:
    """Delete a board."""
    with open_remote() as remote:
        remote.delete(f"{PATH}/{quote(name, safe='')}", {"tenant": tenant})


def _read(path: Path) -> dict[str, Any]:
    """A board as a file has it; the API says what is wrong in it. Raises RefusedError."""
    try:
        with path.open("rb") as file:
            raw = file.read(BYTES_MAX + 1)
    except OSError as error:
        raise RefusedError(f"{path} cannot be read: {error.strerror}") from error
    try:
        board = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise RefusedError(f"{path} is no JSON of at most {BYTES_MAX:,} bytes: {error}") from error
    if not isinstance(board, dict):
        raise RefusedError(f"{path} holds no board: a JSON object with title, from, to, refresh_s and tiles")
    return board


def _say(told: dict[str, Any]) -> None:
    sys.stdout.write(json_text(told) + "\n")
