"""Arrow and DuckDB without pandas, where pandas is installed beside them."""

import subprocess
import sys

import pytest

ARROW = """
import sys
from lake.arrow_start import start_arrow
start_arrow()
import pyarrow as pa
pa.array([1, None, "x"][:2])
assert "pandas" not in sys.modules, "Arrow has imported pandas"
table = pa.table({"n": [1, 2]})
import pandas
assert list(table.to_pandas()["n"]) == [1, 2]
assert pa.Table.from_pandas(pandas.DataFrame({"n": [3]}))["n"].to_pylist() == [3]
"""
DUCKDB = """
import sys
from lake.arrow_start import hide_pandas
hide_pandas()
import duckdb
import pyarrow as pa
with duckdb.connect() as connection:
    connection.register("numbers", pa.table({"n": [1, 2]}))
    assert connection.execute("SELECT n FROM numbers WHERE n > ?", [1]).fetchall() == [(2,)]
assert "pandas" not in sys.modules, "DuckDB has imported pandas"
"""
LOOKED = """
import sys
import {module}
print(sorted({{"pandas", "fastapi", "duckdb", "pyspark"}} & set(sys.modules)))
"""


@pytest.mark.long
@pytest.mark.parametrize("program", [ARROW, DUCKDB])
def test_it_works_without_pandas(program: str) -> None:
    """Front end and Spark in the same process lose nothing."""
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("module", ["ingest.cli.program", "query.__main__"])
@pytest.mark.long
def test_a_start_imports_nothing_that_only_some_of_its_commands_need(module: str) -> None:
    """Tools of the command line would wait for it."""
    program = LOOKED.format(module=module)
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.long
def test_a_worker_process_imports_no_command() -> None:
    """A process that is spawned imports its parent's main module first."""
    look = (
        "import sys; import ingest.__main__; print(sorted({*sys.modules} & {'typer', 'lake', 'ingest.cli'}))"
    )
    done = subprocess.run([sys.executable, "-c", look], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
