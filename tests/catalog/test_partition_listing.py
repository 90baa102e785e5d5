"""Lists of partitions of a fleet: what a page looks at, by plans and counts of the database, not by time."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection, text

from catalog.commit.partition_listing import At, NameRange, Wanted, list_dirty, list_groups
from catalog.store.database import Database, migrate, partitions, tables

TABLES, HOURS = 50, 40


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[Connection]:
    """A database of 50 tables with 40 hours each; the last hour of every tenth one has two files."""
    database = Database(f"sqlite:///{tmp_path}/catalog.db")
    migrate(database)
    with database.write() as writing:
        writing.execute(tables.insert(), [_table(at) for at in range(1, TABLES + 1)])
        writing.execute(
            partitions.insert(),
            [_hour(at, hour) for at in range(1, TABLES + 1) for hour in range(HOURS)],
        )
    with database.read() as reading:
        yield reading
    database.close()


def _table(at: int) -> dict[str, object]:
    name = {"ident": f"t{at}\x1flogs", "namespace": f"t{at}", "name": "logs", "kind": "table"}
    place = {"uuid": str(at), "location": f"file:///w/{at}", "metadata_location": f"file:///w/{at}/1.json"}
    return {"id": at, **name, **place, "created_ms": 0, "changed_ms": 0}


def _hour(table: int, hour: int) -> dict[str, object]:
    crowded = hour == HOURS - 1 and table % 10 == 0
    counts = {"files": 2 if crowded else 1, "delete_files": 0, "bytes": 100 * (hour + 1), "records": 1}
    name = f"timestamp_hour=2026-11-{hour // 24 + 1:02d}-{hour % 24:02d}"
    return {"table_id": table, "partition": name, **counts, "changed_ms": hour * 1_000 + table}


def _listed(connection: Connection, wanted: Wanted, limit: int, looked_at: int) -> list[list[At]]:
    pages, after = list[list[At]](), None
    while not pages or after is not None:
        found, after = list_dirty(connection, wanted, after=after, limit=limit, looked_at=looked_at)
        pages.append([(row["changed-ms"], row["table-id"], row["partition"]) for row in found])
    return pages


def test_a_round_reads_the_crowded_partitions_alone(connection: Connection) -> None:
    """However many others there are: by an index of these, in the order of their changes."""
    traced = list[str]()
    driver = connection.connection.driver_connection
    assert driver is not None
    driver.set_trace_callback(traced.append)
    pages = _listed(connection, Wanted(files_min=2), limit=1_000, looked_at=20_000)
    driver.set_trace_callback(None)
    assert [row[1] for row in pages[0]] == [10, 20, 30, 40, 50]
    for statement in traced:
        (plan,) = (
            row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}") if " p " in row[3]
        )
        assert "partitions_crowded" in plan, plan
        assert "SCAN" not in plan, plan
    assert len(pages) == 1


@pytest.mark.long
@pytest.mark.parametrize(("limit", "looked_at"), [(1_000, 20_000), (7, 140), (1, 1), (3, 2), (5, 2_000)])
@pytest.mark.parametrize(
    "wanted",
    [
        Wanted(),
        Wanted(files_min=2),
        Wanted(files_min=3),
        Wanted(data_files_max=1, bytes_min=3_900),
        Wanted(since_ms=5_000, before_ms=9_000, data_files_max=1, bytes_min=700),
    ],
)
def test_pages_of_any_size_list_what_is_asked_for_once(
    connection: Connection, wanted: Wanted, limit: int, looked_at: int
) -> None:
    """In the order of the last change; a page may be short, and only the last one has none after it."""
    pages = _listed(connection, wanted, limit, looked_at)
    rows = connection.execute(
        text(
            "SELECT changed_ms, table_id, partition FROM partitions WHERE changed_ms >= :since "
            "AND changed_ms < :before AND files + delete_files >= :files AND files <= :most "
            "AND bytes >= :bytes "
            "ORDER BY changed_ms, table_id, partition"
        ),
        {
            "since": wanted.since_ms,
            "before": wanted.before_ms,
            "files": wanted.files_min,
            "most": wanted.data_files_max,
            "bytes": wanted.bytes_min,
        },
    )
    assert [each for page in pages for each in page] == [tuple(row) for row in rows]
    assert max(map(len, pages)) <= limit


def test_a_page_looks_at_so_many_partitions_and_no_more(connection: Connection) -> None:
    """Where hardly any is asked for: nobody waits until all were looked at."""
    seldom = Wanted(bytes_min=10**9)
    pages = _listed(connection, seldom, limit=10, looked_at=200)
    assert len(pages) == TABLES * HOURS // 200 + 1
    assert set(map(len, pages)) == {0}
    names = NameRange("timestamp_month=2026-12", 23)
    at, looks = (0, ""), 0
    while at is not None:
        found, at = list_groups(connection, names, bytes_max=10**9, start=at, looked_at=200)  # type: ignore[assignment]
        looks += 1
        assert found == []
    assert looks == TABLES * HOURS // 200


def _steps(connection: Connection, work: Callable[[], object]) -> int:
    """How many steps SQLite takes for something, in hundreds."""
    driver, steps = connection.connection.driver_connection, list[int]()
    assert driver is not None
    driver.set_progress_handler(lambda: steps.append(1), 100)
    work()
    driver.set_progress_handler(None, 100)
    return len(steps)


@pytest.mark.long
def test_a_page_takes_no_more_steps_however_many_partitions_there_are(connection: Connection) -> None:
    """Neither one by which nothing is found, nor one of groups, wherever in the list it begins."""
    seldom, names = Wanted(data_files_max=1, bytes_min=10**9), NameRange("timestamp_hour=2026-12", 23)

    def page() -> None:
        list_dirty(connection, seldom, after=(2_000, 0, ""), limit=10, looked_at=200)

    def groups() -> None:
        list_groups(connection, names, bytes_max=10**9, start=(5, ""), looked_at=200)

    before = _steps(connection, page), _steps(connection, groups)
    assert min(before) > 1
    with connection.begin_nested() if connection.in_transaction() else connection.begin():
        more = range(TABLES + 1, 10 * TABLES)
        connection.execute(tables.insert(), [_table(at) for at in more])
        connection.execute(partitions.insert(), [_hour(at, hour) for at in more for hour in range(HOURS)])
    after = _steps(connection, page), _steps(connection, groups)
    assert max(a - b for a, b in zip(after, before, strict=True)) <= 2, (before, after)


def test_a_database_of_before_gets_the_indexes(tmp_path: Path) -> None:
    """By its next start, and a new one has them as well."""
    database = Database(f"sqlite:///{tmp_path}/catalog.db")
    migrate(database)
    wanted = {
        "partitions_crowded",
        "tables_by_location",
        "dropped_tables_by_location",
        "dropped_tables_by_uuid",
    }

    def there() -> set[str]:
        with database.read() as reading:
            rows = reading.execute(text("SELECT name FROM sqlite_master WHERE type = 'index'"))
            return wanted & {str(row[0]) for row in rows}

    assert there() == wanted
    with database.write() as writing:
        for name in wanted:
            writing.execute(text(f"DROP INDEX {name}"))
        writing.execute(text("DELETE FROM schema_version WHERE version >= 4"))
    assert there() == set()
    assert migrate(database) == (3, 4)
    assert there() == wanted
    database.close()
