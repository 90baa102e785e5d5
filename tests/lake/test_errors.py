"""The tree of exceptions."""

import inspect
from pathlib import Path

import lake.errors
from lake.errors import FatalError, FirnError, Reason, RetryableError

OPERATORS_PAGE = Path(__file__).parents[2] / "docs" / "ingest.md"


def test_tree_in_the_docstring_is_the_tree() -> None:
    """The drawing names every exception, each below its parent."""
    names = {
        name: kind
        for name, kind in vars(lake.errors).items()
        if inspect.isclass(kind) and issubclass(kind, FirnError)
    }
    lines = [line.strip() for line in (lake.errors.__doc__ or "").splitlines() if "──" in line]
    drawn = [line.replace("│", "").split("── ")[1].split()[0] for line in lines]
    assert sorted(drawn) == sorted(name for name in names if name != "FirnError")
    for line, name in zip(lines, drawn, strict=True):
        is_root = line.startswith(("├──", "└──")) and name in ("RetryableError", "FatalError")
        assert names[name].__mro__[1] is (
            FirnError
            if is_root
            else RetryableError
            if issubclass(names[name], RetryableError)
            else FatalError
        )


def test_every_error_is_either_retryable_or_fatal() -> None:
    """Whoever catches can always tell whether to wait or to stop."""
    for kind in (*RetryableError.__subclasses__(), *FatalError.__subclasses__()):
        assert issubclass(kind, RetryableError) != issubclass(kind, FatalError)
        assert kind.__doc__


def test_operators_are_told_of_every_reason_for_dead_letters() -> None:
    """One row of the page's table each: the reason, its cause, what to do."""
    rows = [line for line in OPERATORS_PAGE.read_text().splitlines() if line.startswith("|")]
    for reason in Reason:
        assert any(row.startswith(f"| `{reason.value}` |") and row.count("|") == 4 for row in rows), reason
