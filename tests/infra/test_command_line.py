"""`python -m infra` without services: help, wrong words, and what it says of an empty state folder."""

import signal
import sys
import threading
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from infra.__main__ import app, one_clear_message, parse_database, parse_pairs, parse_ports
from infra.local.services import SERVICES
from lake.errors import SettingsError


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.output


def test_help_names_every_command_and_service() -> None:
    """`--help` tells the commands in the order they are used and every service there is."""
    code, text = run("--help")
    assert code == 0
    assert all(f"python -m infra {verb}" in text for verb in ("doctor", "up", "status", "logs", "down"))
    assert all(name in text for name in SERVICES)


def test_ports_and_variables_are_parsed() -> None:
    """`--port` takes SERVICE=PORT and `--env` NAME=VALUE, whose value may hold an equals sign."""
    assert parse_ports(["kafka=9092", "trino=0"]) == {"kafka": 9092, "trino": 0}
    assert parse_pairs(["A=b=c"], "--env") == {"A": "b=c"}
    assert parse_ports(None) == {}
    assert parse_database(None) is None


@pytest.mark.parametrize("text", ["kafka", "=1", "kafka=x", "kafka=-1", "kafka=70000"])
def test_wrong_port_is_refused(text: str) -> None:
    """A port that is no number of a port is refused with the words that were wrong."""
    with pytest.raises(SettingsError, match="--port"):
        parse_ports([text])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("up", "kafca"), "there is no service 'kafca'"),
        (("down", "kafca"), "there is no service 'kafca'"),
        (("logs", "kafca"), "there is no service 'kafca'"),
        (("logs", "kafka"), "kafka has no log"),
        (("up", "kafka", "--database", "oracle"), "use sqlite or postgres"),
        (("up", "kafka", "--warehouse", "ftp://x"), "unknown scheme"),
    ],
)
def test_mistakes_are_one_message_and_exit_code_2(
    tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    """A mistake on the command line ends in one message without traceback, and nothing is started."""
    code, text = run(*arguments, "--state", str(tmp_path))
    assert code == 2
    assert words in text.replace("\n", " ")
    assert "Traceback" not in text
    assert not (tmp_path / "logs").exists()


def test_state_folder_that_cannot_be_made_is_one_message(tmp_path: Path) -> None:
    """A state folder below a file is an error that names it and says what to do."""
    (tmp_path / "file").touch()
    code, text = run("up", "kafka", "--state", str(tmp_path / "file/state"))
    assert code == 2
    assert "cannot use the state folder" in text
    assert "--state" in text


def test_status_of_an_empty_folder_says_how_to_start(tmp_path: Path) -> None:
    """Where nothing was started, `status` says so and how to start."""
    code, text = run("status", "--state", str(tmp_path))
    assert code == 0
    assert "python -m infra up" in text


AGAIN_MAX_S = 20.0


class InterruptedWhenDeleted:
    """Its destructor is where Ctrl-C arrives."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


def test_an_interruption_that_python_drops_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is raised inside of a destructor is dropped, and later signals are ignored: without a second try
    the program could only be killed."""
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)
    before = {number: signal.getsignal(number) for number in numbers}

    def program() -> None:
        with one_clear_message():
            InterruptedWhenDeleted()
            threading.Event().wait(AGAIN_MAX_S)

    try:
        with pytest.raises(typer.Exit) as ended:
            program()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert ended.value.exit_code == 128 + signal.SIGINT
