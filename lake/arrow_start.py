"""Starts Arrow and DuckDB without pandas.

Both import it wherever it is installed. Where front end or Spark have brought it, it would take every process
of the other rooms 0.2 CPU seconds and 56 MB for nothing.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType

import pyarrow as pa

PANDAS = "pandas"


class _NoPandas(MetaPathFinder):
    """Finds no pandas, wherever it is installed."""

    def find_spec(self, name: str, _path: Sequence[str] | None, _target: ModuleType | None = None) -> None:
        if name == PANDAS:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def start_arrow() -> None:
    """Lets Arrow look for pandas while none is to be found: it looks once in a process, at the first array
    made of Python's values. Whoever imports pandas later has it, and Arrow's conversions with it."""
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.scalar(None)
    finally:
        sys.meta_path.remove(finder)


def hide_pandas() -> None:
    """Lets nobody in this process find pandas: DuckDB looks for it with each parameter."""
    sys.meta_path.insert(0, _NoPandas())
