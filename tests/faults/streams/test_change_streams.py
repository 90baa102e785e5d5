"""Tables follow a real database, whatever dies: the small form of `python -m tests.faults.change_streams`."""

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from infra.local.supervisor import Stack
from tests.faults.change_streams import run_streams
from tests.faults.streams.killed_ingester import KINDS, KilledIngester
from tests.faults.streams.source_table import SourceColumn, SourceTable

# In every run of the tests some hundred transactions; the long proofs make many more.
TRANSACTIONS = int(os.environ.get("FIRN_STREAM_TRANSACTIONS", "100"))
KILLS = int(os.environ.get("FIRN_STREAM_KILLS", "1"))
PER_S = 50.0


def test_every_kind_of_kill_comes_before_one_comes_again() -> None:
    drawn = KilledIngester.draw(2 * len(KINDS), random.Random(1))
    assert set(drawn[: len(KINDS)]) == set(drawn[len(KINDS) :]) == set(KINDS)


def test_a_column_is_read_from_where_the_lake_may_have_it() -> None:
    """A renamed one from its old name as well, one of another type from its second column, too."""
    table = SourceTable("orders")
    table.columns = [SourceColumn("b", "text", ["b__string", "b", "a"]), SourceColumn("c", "date")]
    query = table.stored_query("t", ["id", "b", "a"])
    assert query == 'SELECT id, coalesce(CAST("b" AS varchar), CAST("a" AS varchar)), NULL FROM t'


@pytest.mark.stack
@pytest.mark.timeout(120 * KILLS + 600)
def test_tables_are_what_their_source_is_whatever_dies(
    stack: Stack, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Random transactions of PostgreSQL through Debezium's connector: in the end each table is equal to its
    source in Trino, and no snapshot has a key twice."""
    seed = int(os.environ.get("FIRN_TEST_SEED", random.SystemRandom().randrange(10**9)))
    print(f"seed {seed}")
    stack.start("postgres", "connect")
    try:
        result = run_streams(stack, tmp_path, TRANSACTIONS, KILLS, seed, PER_S)
    finally:
        stack.stop("connect", "postgres")
    record_property("result", result)
    print(result)
    assert (result["different"], result["doubled_in_any_snapshot"], result["dead_letters"]) == (0, 0, 0), (
        result
    )
    assert result["rows_found"] == result["rows_expected"]
