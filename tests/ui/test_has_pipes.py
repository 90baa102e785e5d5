"""The page and the API agree on which searches have pipes."""

import random

import pytest

from query.model.problem import BadRequestError
from query.pipes.parts import split_pipes
from ui.components.pipes import before_pipes, has_pipes


def test_the_page_knows_a_pipe_as_the_api_does() -> None:
    """Of anything that can be read at all."""
    draws = random.Random(31)
    read = 0
    for _ in range(3_000):
        text = "".join(
            draws.choices(['"', "|", "||", "\\", "a", " ", "'", "(", ")", "it's"], k=draws.randint(0, 8))
        )
        try:
            parts = split_pipes(text)
        except BadRequestError:
            continue
        read += 1
        assert has_pipes(text) is (len(parts) > 1), text
        assert before_pipes(text) == parts[0][1], text
    assert read > 1_000


@pytest.mark.parametrize("text", ["", "a || b", 'path:"a|b"', "a \\| b"])
def test_no_pipe(text: str) -> None:
    assert not has_pipes(text)
