"""Whether a command that a page names still exists: `python -m ROOM VERB --OPTION` and `make TARGET`.

The Typer applications know the verbs and options of the rooms, the Makefile its targets. A program without
a Typer application is asked for the help of its verb, as a person would ask.
"""

import contextlib
import importlib
import importlib.util
import io
import re
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol
from unittest import mock

import typer
from typer.core import TyperGroup
from typer.main import get_command

ROOMS = ("lake", "catalog", "ingest", "optimize", "query", "ui", "infra", "tests")
_PROGRAM = re.compile(rf"python3? -m ((?:{'|'.join(ROOMS)})(?:\.\w+)*)\b([^|;&><#)]*)")
# A program whose first module only begins it.
_BEGUN_FROM = re.compile(r"from (\w[\w.]*) import app$", re.MULTILINE)
_MAKE = re.compile(r"(?:^|&& |\$ )make ([a-z][a-z-]*)")
_VERB = re.compile(r"[a-z][a-z-]*")
_TARGET = re.compile(r"^([a-z][a-z-]*):", re.MULTILINE)


class Command(Protocol):
    """A verb, or a group of verbs."""

    @property
    def params(self) -> Sequence[Any]:
        """Its arguments and options."""


def targets(makefile: Path) -> set[str]:
    """The targets of a Makefile that a person may name."""
    return set(_TARGET.findall(makefile.read_text()))


def wrong_commands(code: str, make_targets: set[str]) -> Iterator[str]:
    """A sentence for every command in a piece of code (a line, or what stands between backticks) that does
    not exist."""
    for name in _MAKE.findall(code):
        if name not in make_targets:
            yield f"the Makefile has no target `{name}`"
    for module, rest in _PROGRAM.findall(code):
        if (wrong := _wrong_program(module, rest.split())) is not None:
            yield wrong


def _wrong_program(module: str, words: Sequence[str]) -> str | None:
    if not _exists(module):
        return f"there is no module `{module}`"
    program = _main_module(module)
    if program is None:
        return None
    command = _command(program)
    if command is None:
        return _wrong_verb_of_plain_program(module, program, words)
    return _wrong_words(module, command, words)


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # a parent is missing
        return False


def _main_module(module: str) -> str | None:
    """The module that runs, where it is one that reads a command line; None for the others."""
    spec = importlib.util.find_spec(module)
    if spec is not None and spec.submodule_search_locations is not None:
        module = f"{module}.__main__"
        spec = importlib.util.find_spec(module)
    source = "" if spec is None or spec.origin is None else Path(spec.origin).read_text()
    if (begun := _BEGUN_FROM.search(source)) is not None:
        return begun[1]
    return module if "import typer" in source or module == "ui.__main__" else None


@cache
def _command(module: str) -> Command | None:
    """The command line of a module: its Typer application, or the function that it gives to `typer.run`."""
    program = importlib.import_module(module)
    for value in (getattr(program, "app", None), getattr(program, "cli", None)):
        if isinstance(value, typer.Typer):
            return get_command(value)
    started = _run_by_typer(program)
    if started is None:
        return None
    app = typer.Typer()
    app.command()(getattr(program, started))
    return get_command(app)


def _run_by_typer(program: ModuleType) -> str | None:
    source = Path(str(program.__file__)).read_text()
    found = re.search(r"typer\.run\((\w+)\)", source) or re.search(r"app\.command\(\)\((\w+)\)", source)
    return found[1] if found else None


def _wrong_words(module: str, command: Command, words: Sequence[str]) -> str | None:
    """What is wrong with the words behind a program's name: a verb that its group has not, or an option that
    the verb has not."""
    said = f"python -m {module}"
    for word in words:
        if isinstance(command, TyperGroup) and _VERB.fullmatch(word):
            if word not in command.commands:
                return f"`{said}` has no verb `{word}`"
            command = command.commands[word]
            said = f"{said} {word}"
        elif word.startswith("--") and (option := word.partition("=")[0]) not in _options(command):
            return f"`{said}` has no option `{option}`"
    return None


def _options(command: Command) -> set[str]:
    return {"--help", *(name for each in command.params for name in (*each.opts, *each.secondary_opts))}


def _wrong_verb_of_plain_program(module: str, program: str, words: Sequence[str]) -> str | None:
    """Asks a program that uses argparse for the help of its verb."""
    verbs = [word for word in words if _VERB.fullmatch(word)][:1]
    told = io.StringIO()
    with (
        mock.patch.object(sys, "argv", [module, *verbs, "--help"]),
        contextlib.redirect_stdout(told),
        contextlib.redirect_stderr(told),
    ):
        try:
            importlib.import_module(program).main()
        except SystemExit as ended:
            if not ended.code:
                return None
    return f"`python -m {module}` has no verb `{' '.join(verbs)}`"
