"""How programs end."""

import pytest

from lake.command_line import run_program
from lake.errors import PrerequisiteError


def test_an_expected_problem_is_one_whole_line_and_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    """However long it is and whatever brackets are in it; no trace."""
    sentence = "set [[ingest.topics]] " + "or another thing " * 20

    def program() -> None:
        raise PrerequisiteError(sentence)

    with pytest.raises(SystemExit) as ended:
        run_program(program)
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"error: {sentence}\n"


def test_a_fault_of_ours_keeps_its_trace() -> None:
    """It is no sentence for an operator."""

    def program() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_program(program)
