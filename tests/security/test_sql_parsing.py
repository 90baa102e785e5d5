"""Reading people's SQL costs a bounded time in a process of its own, and loses nothing of what they wrote."""

import os
import random
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import psutil
import pytest

from lake.tenant import TableId, TenantId
from query.model.cancellation import CancelledError, Run
from query.model.limits import BusyError
from query.model.problem import BadRequestError
from query.sql.sql_guard import CHARACTERS_MAX, read_statement
from query.sql.sql_readers import SqlReaders
from query.sql.sql_words import BRACKETS_MAX, PARENTHESES_MAX
from tests.stack.support.waiting import wait_for

A, B = TenantId("a"), TenantId("b")
CPU_S = 1.0
# Statements of less than 300 characters that took sqlglot from seconds to hours.
DEEP = [
    f"SELECT {'ARRAY[' * 17}1{']' * 17}",
    f"SELECT {'MAP(ARRAY[' * 12}1{'])' * 12}",
    f"SELECT {'ROW(' * 20}1{')' * 20}",
    f"SELECT {'DECIMAL(' * 18}1{')' * 18}",
    f"SELECT {'STRUCT(' * 18}1{')' * 18}",
    f"SELECT CAST(x AS {'ROW(' * 18}INT{')' * 18})",
    f"SELECT {'ARRAY[ROW(' * 9}1{')]' * 9}",
    f"SELECT {'(ARRAY[' * 17}1{'])' * 17}",
    f"SELECT {'ARRAY [ /* */' * 17}1{']' * 17}",
]


def reader_pids() -> set[int]:
    """The readers of this process that live."""
    return {
        child.pid
        for child in psutil.Process().children()
        if child.status() != psutil.STATUS_ZOMBIE and "query.sql.sql_reader_process" in child.cmdline()
    }


@pytest.fixture
def readers() -> Iterator[SqlReaders]:
    """Two processes with a second each."""
    made = SqlReaders(2, CPU_S, 20.0)
    yield made
    made.close()


@pytest.mark.finding(4)
@pytest.mark.parametrize("sql", DEEP)
def test_deep_statements_are_refused_before_they_are_parsed(sql: str) -> None:
    """In this very process, which could not be interrupted: the sentence names the bound."""
    with pytest.raises(BadRequestError, match=f"more than ({BRACKETS_MAX}|{PARENTHESES_MAX}) levels deep"):
        read_statement(sql, A, "lake")


@pytest.mark.finding(4)
def test_what_people_nest_is_read() -> None:
    """Eight levels of brackets, and more parentheses than anybody writes; one more is refused."""
    for opened, closed in (
        ("ARRAY[", "]"),
        ("ROW(", ")"),
        ("(", ")"),
        ("coalesce(a, ", ")"),
        ("lower(", ")"),
    ):
        depth = BRACKETS_MAX if opened in ("ARRAY[", "ROW(") else 24
        read_statement(f"SELECT {opened * depth}1{closed * depth} FROM logs", A, "lake")
    read_statement(f"SELECT * FROM {'(SELECT * FROM ' * 12}logs{')' * 12}", A, "lake")
    with pytest.raises(BadRequestError, match="at most 50,000"):
        read_statement("SELECT " + "a" * CHARACTERS_MAX, A, "lake")


@pytest.mark.finding(4)
@pytest.mark.long
def test_a_reader_that_takes_too_long_is_ended_and_followed(readers: SqlReaders) -> None:
    """Wide statements of allowed depth: the kernel ends the reader after its second of processor time; the
    next statement finds another one."""
    before = reader_pids()
    assert len(before) == 2
    wide = "SELECT " + ",".join(["MAP(ARRAY[" * 4 + "1" + "])" * 4] * 900)
    assert len(wide) < CHARACTERS_MAX
    with pytest.raises(BadRequestError, match="takes more than 1 s to be read"):
        readers.read(wide, A, "lake", Run(120.0), asker="a")
    assert readers.read("SELECT * FROM logs", A, "lake", Run(60.0), asker="a").tables == {TableId(A, "logs")}
    assert len(reader_pids()) == 2
    assert len(reader_pids() - before) == 1


@pytest.mark.long
@pytest.mark.finding(4)
def test_a_killed_reader_costs_nobody_an_answer(readers: SqlReaders) -> None:
    """Whoever ends it: the statement is read by another one."""
    for _ in range(3):
        for pid in reader_pids():
            os.kill(pid, signal.SIGKILL)
        assert readers.read("SELECT 1 FROM b.logs", A, "lake", Run(60.0), asker="a").tenants == {B}


@pytest.mark.long
@pytest.mark.finding(4)
def test_one_tenant_does_not_take_all_readers(readers: SqlReaders) -> None:
    """While statements of one wait in a row, another one's are read; and who leaves ends the reading."""
    wide = "SELECT " + ",".join(["MAP(ARRAY[" * 4 + "1" + "])" * 4] * 900)
    runs = [Run(120.0) for _ in range(4)]

    def ask(run: Run) -> str:
        try:
            readers.read(wide, A, "lake", run, asker="a")
        except (BadRequestError, CancelledError, BusyError) as error:
            return type(error).__name__
        return "read"

    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(ask, run) for run in runs]
        wait_for(lambda: bool(readers._asking), 30.0, "a statement being read")
        for _ in range(20):
            assert readers._idle, "all readers are at the statements of one tenant"
            readers.read("SELECT * FROM logs", B, "lake", Run(60.0), asker="b")
        for run in runs:
            run.cancel()
        assert {one.result(60.0) for one in asked} <= {"CancelledError", "BadRequestError"}


PIECES = [
    *(
        "ARRAY[",
        "]",
        "MAP(",
        "ROW(",
        ")",
        "(",
        "CAST(",
        " AS INT)",
        "x -> ",
        "CASE WHEN ",
        " THEN ",
        " END",
        "DECIMAL(",
        "1",
        "a",
        ",",
        " + ",
        "'x'",
        "NOT ",
    ),
    *(
        "SELECT ",
        " FROM logs",
        " WHERE ",
        " JOIN ",
        " ON ",
        "-",
        "EXISTS (",
        "IN (",
        "TRY(",
        "IF(",
        "[",
        "{",
        "}",
        " OVER (",
        "INTERVAL ",
        "STRUCT(",
        "::",
    ),
]


@pytest.mark.finding(4)
@pytest.mark.long
def test_no_heap_of_pieces_takes_a_reader_longer_than_its_time(readers: SqlReaders) -> None:
    """Seeded heaps, deep and wide: each is read or refused, and the processor time of all readers stays below
    the bound for each statement."""
    random_ = random.Random(4)
    pid_times: dict[int, float] = {}
    for _ in range(400):
        few = random_.sample(PIECES, 4)
        text = "SELECT " + "".join(random_.choices(few, k=random_.randint(3, 120)))
        before = {pid: _cpu_s(pid) for pid in _idle_pids(readers)}
        with suppress(BadRequestError):
            readers.read(text, A, "lake", Run(120.0), asker="a")
        for pid in _idle_pids(readers) & set(before):
            pid_times[pid] = max(pid_times.get(pid, 0.0), _cpu_s(pid) - before[pid])
    assert max(pid_times.values()) < CPU_S + 0.5


def _idle_pids(readers: SqlReaders) -> set[int]:
    """All readers, while nobody asks: to look for them among the processes of the machine takes longer than a
    statement."""
    return {reader._process.pid for reader in readers._idle}


def _cpu_s(pid: int) -> float:
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)


@pytest.mark.finding(33)
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM logs PIVOT (count(*) FOR a IN ('x', 'y'))",
        "SELECT * FROM logs UNPIVOT (a FOR b IN (c, d))",
        "SELECT * FROM logs@branch",
        'SELECT * FROM logs@"branch"',
        "SELECT * FROM acme.logs@branch AS x",
        "SELECT a FROM logs WITH (nolock)",
        "SELECT DISTINCT ON (a) b FROM logs",
        "SELECT a FROM logs CLUSTER BY a",
        "SELECT a FROM logs SORT BY a",
        "SELECT a FROM logs FOR UPDATE",
        "SELECT a FROM logs AT (timestamp => 'x')",
        "SELECT a FROM logs CONNECT BY PRIOR a = b",
        "SELECT a FROM logs LATERAL VIEW explode(b) t AS c",
        "SELECT current_timestamp(3) FROM logs",
        "SELECT ? FROM logs",
        "SELECT :x FROM logs",
        "SELECT @x FROM logs",
    ],
)
def test_no_clause_is_dropped(sql: str) -> None:
    """What Trino has not, or what would be written anew without it, is refused in a sentence."""
    with pytest.raises(BadRequestError):
        read_statement(sql, A, "lake")


SOUND = """
SELECT host, count(*) AS n FROM logs GROUP BY host HAVING count(*) > 5 ORDER BY n DESC NULLS LAST LIMIT 20
SELECT * FROM logs WHERE timestamp BETWEEN now() - INTERVAL '15' MINUTE AND now() AND message LIKE '%x\\_%' ESCAPE '\\'
SELECT date_trunc('hour', timestamp) h, approx_percentile(CAST(took AS double), 0.95) FROM logs GROUP BY 1 ORDER BY 1
SELECT * FROM logs a LEFT OUTER JOIN access b USING (request_id) WHERE a.x IS NOT DISTINCT FROM b.x
WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 5) SELECT * FROM t
SELECT sum(x) OVER (ORDER BY t ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW), first_value(x) IGNORE NULLS OVER (ORDER BY t) FROM logs
SELECT count(*) FILTER (WHERE status = '500'), count(DISTINCT host), array_agg(host ORDER BY timestamp) FROM logs
SELECT listagg(host, ',' ON OVERFLOW TRUNCATE '...' WITH COUNT) WITHIN GROUP (ORDER BY host) FROM logs
SELECT e.field FROM logs CROSS JOIN UNNEST(_errors) AS e(field, value, reason)
SELECT transform(split(message, ' '), x -> upper(x)), map(ARRAY['a'], ARRAY[1])['a'], CAST(ROW(1, 'a') AS ROW(x bigint, y varchar)).x FROM logs
SELECT a, b FROM logs GROUP BY GROUPING SETS ((a, b), (a), ()) ORDER BY a OFFSET 5 ROWS FETCH FIRST 10 ROWS ONLY
SELECT * FROM logs TABLESAMPLE BERNOULLI (10) WHERE x > ALL (SELECT y FROM access)
SELECT trim(BOTH 'x' FROM a), extract(hour FROM timestamp), timestamp AT TIME ZONE 'Europe/Berlin', position('x' IN a), substr(a, 1, 3) FROM logs
SELECT json_value(_overflow, 'lax $.a'), json_query(_overflow, 'lax $.a' WITH ARRAY WRAPPER), try_cast(a AS timestamp(6) with time zone) FROM logs
SELECT 1e3, .5, -3, decimal '1.23', date '2026-01-01', 'it''s', "a""b" FROM logs
SELECT a FROM logs UNION SELECT b FROM access EXCEPT SELECT c FROM acme.logs
SELECT * FROM logs MATCH_RECOGNIZE (ORDER BY timestamp MEASURES a.message AS m ONE ROW PER MATCH PATTERN (a b+) DEFINE b AS b.x > 1) AS m
"""


@pytest.mark.finding(33)
@pytest.mark.parametrize("sql", SOUND.strip().splitlines())
def test_sound_sql_passes(sql: str) -> None:
    """What Trino has is not refused for being spelled in one of several ways."""
    assert read_statement(sql, A, "lake").sql
