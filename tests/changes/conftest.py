"""What tests of changes share beside the services."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.stack.support.line import Line
from tests.stack.support.tool_line import ToolLine


@pytest.fixture
def tools(line: Line) -> Iterator[Callable[..., ToolLine]]:
    """`tools(topics, **settings)`; ingesters are ended after the test."""
    made: list[ToolLine] = []

    def make(topics: Any, **settings: Any) -> ToolLine:
        made.append(ToolLine(line, topics, **settings))
        return made[-1]

    try:
        yield make
    finally:
        for one in made:
            one.ingester.kill()
