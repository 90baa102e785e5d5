"""Text of records and names on a terminal: visible, and never an order to it."""

import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table
from typer.testing import CliRunner

from ingest.cli.dead_letters import _table
from ingest.cli.program import app as ingest
from ingest.decode.dead_letter import any_letter
from ingest.kafka.topic_mac import TopicMac
from lake.command_line import run_program
from lake.errors import NotFoundError
from lake.settings import IngestSettings
from lake.terminal import TerminalConsole, json_text, visible
from query.cli import command_line
from query.cli.command_line import _print_row

pytestmark = pytest.mark.finding(23)

ROOMS = ("catalog", "ingest", "optimize", "query", "infra", "lake")
# The title of the window, the clipboard, a link, a cleared screen by ESC and by C1, a line written over, one
# that reads backwards, markup of rich.
HOSTILE = "\x1b]0;owned\x07\x1b]52;c;ZXZpbA==\x07\x1b]8;;http://evil\x07x\x1b[2J\x9b2J\x85a\rb\x08\x7f\u202egnp.exe\u2066\u200f[red]r[/red][link=http://evil]l[/link]\\"
MARKUP, BACKWARDS = "[red]r[/red][link=http://evil]l[/link]", "\u202egnp.exe"
# What rich itself sends for colours.
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def _printed(show: Callable[[TerminalConsole], object], **options: Any) -> str:
    out = io.StringIO()
    show(TerminalConsole(file=out, force_terminal=True, width=4_000, **options))
    return out.getvalue()


def _is_harmless(shown: str) -> None:
    assert UNSAFE.search(COLOURS.sub("", shown)) is None, repr(shown)
    assert "\x1b]" not in shown


@given(st.text())
def test_whatever_a_text_holds_nothing_of_it_reaches_the_terminal_raw(text: str) -> None:
    """By itself, in a table, and as JSON, which says exactly what it was."""
    _is_harmless(visible(text))
    _is_harmless(_printed(lambda console: console.print(text)))
    document = {text: [text]}
    assert json.loads(json_text(document)) == document
    _is_harmless(json_text(document))
    if UNSAFE.search(text) is None:
        assert visible(text) == text, "other text is shown as it is"


def test_tables_and_markup_are_text() -> None:
    """Cells are neither links nor colours."""
    table = Table("name", "other", "third")
    table.add_row(HOSTILE, MARKUP, BACKWARDS)
    shown = _printed(lambda console: console.print(table))
    _is_harmless(shown)
    assert MARKUP in shown
    assert r"\x1b]0;owned" in shown
    assert r"\u202e" in shown


def test_rows_of_a_search_and_of_a_tail_are_text() -> None:
    """Severity, message, names and values of fields, times."""
    row = {
        "timestamp": HOSTILE,
        "severity": HOSTILE,
        "level": HOSTILE,
        "message": HOSTILE,
        "fields": {HOSTILE: HOSTILE},
    }
    shown = _printed(
        lambda console: _print_row(row, console, as_json=False), markup=True, highlight=False, soft_wrap=True
    )
    _is_harmless(shown)
    assert shown.count("[link=http://evil]") >= 3


def test_json_of_rows_is_exact_and_harmless(capsys: pytest.CaptureFixture[str]) -> None:
    """C1 and what turns the direction of writing are escaped as well."""
    _print_row({"message": HOSTILE}, TerminalConsole(), as_json=True)
    told = capsys.readouterr().out
    assert json.loads(told) == {"message": HOSTILE}
    _is_harmless(told)


def test_explanations_and_errors_are_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`explain-message` of a hostile message, and an error that names a hostile name."""
    file = tmp_path / "message"
    file.write_bytes(json.dumps({"message": HOSTILE, HOSTILE: HOSTILE}, ensure_ascii=False).encode())
    done = CliRunner().invoke(
        ingest,
        ["explain-message", "--file", str(file), "--header", f"tenant={HOSTILE.replace(chr(7), '')}"],
        env={"FIRN_CONFIG": "", "COLUMNS": "300"},
    )
    assert done.exit_code == 0, done.output
    assert "owned" in done.stdout
    _is_harmless(done.stdout)

    def fails() -> None:
        raise NotFoundError(f"there is no {HOSTILE}")

    with pytest.raises(SystemExit):
        run_program(fails)
    _is_harmless(capsys.readouterr().err)


def test_lists_of_dead_letters_are_text() -> None:
    """The reason, the table and the bytes are whatever somebody wrote."""
    message = Message(
        topic="dead", partition=0, offset=0, key=b"k", value=HOSTILE.encode(), headers=[], timestamp=(1, 9)
    )
    letter = replace(
        any_letter(message, TopicMac(IngestSettings())), reason=MARKUP, table=MARKUP, was_topic=HOSTILE
    )
    shown = _printed(lambda console: console.print(_table([letter])))
    _is_harmless(shown)
    assert shown.count(MARKUP) == 2


def test_every_console_is_the_one_that_shows_text_as_text() -> None:
    """No room takes rich's own, prints rows by itself, or takes markup without saying so."""
    root = Path(command_line.__file__).parents[1]
    for path in (path for room in ROOMS for path in (root / room).rglob("*.py")):
        if path.name != "terminal.py":
            assert not re.search(
                r"rich\.console import .*\bConsole\b|(?<!Terminal)\bConsole\(", path.read_text()
            ), f"{path} takes rich's console"
