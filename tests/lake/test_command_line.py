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


def test_a_fault_of_ours_shows_its_trace_and_is_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    """It is no sentence for an operator, and no answer either."""

    def program() -> None:
        raise ZeroDivisionError("by nought")

    with pytest.raises(SystemExit) as ended:
        run_program(program)
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert told.startswith("Traceback (most recent call last)")
    assert told.endswith("ZeroDivisionError: by nought\n")


@pytest.mark.parametrize("ending", [SystemExit(1), KeyboardInterrupt()])
def test_what_ends_a_program_on_purpose_goes_through(ending: BaseException) -> None:
    """An answer that is not good stays 1, and Ctrl-C is Ctrl-C."""

    def program() -> None:
        raise ending

    with pytest.raises(type(ending)) as ended:
        run_program(program)
    assert ended.value is ending
