"""`python -m query.sql.sql_reader_process CPU_S MEMORY_BYTES`: reads people's SQL apart from everybody else,
so that it can be killed (see `sql_readers.py`).

A line of JSON comes in (`{"sql", "default", "catalog"}`), a line of JSON goes out: `{"sql", "tables":
[[tenant, stream], ...]}` or `{"problem": {...}}`. A statement that takes more processor time than it may ends
the process: the clock is the kernel's, which no parser holds up.
"""

import resource
import signal
import sys
from typing import Any

import orjson

from lake.tenant import TenantId
from query.model.problem import BadRequestError, Problem
from query.sql.sql_guard import read_statement


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """What is said of one statement."""
    default = None if request["default"] is None else TenantId(request["default"])
    try:
        statement = read_statement(request["sql"], default, request["catalog"])
    except BadRequestError as error:
        return {"problem": error.problem.to_json()}
    except (MemoryError, RecursionError):
        return {
            "problem": Problem("the statement is too large to be read; write it in a plainer way").to_json()
        }
    return {
        "sql": statement.sql,
        "tables": [[table.tenant.name, table.stream] for table in sorted(statement.tables)],
    }


def main(cpu_s: float, memory_bytes: int) -> None:
    """Answers until its input ends, which it does when the API ends."""
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    for line in sys.stdin.buffer:
        signal.setitimer(signal.ITIMER_PROF, cpu_s)
        said = answer(orjson.loads(line))
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.buffer.write(orjson.dumps(said) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
