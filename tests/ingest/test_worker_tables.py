"""The entries that a worker has of its tables."""

import gc
from weakref import ref

import orjson
import pytest

from ingest.model.link import TableView
from ingest.node.worker_tables import WorkerTable, WorkerTables
from lake.log_schema import new_log_schema, shared_schema
from lake.marks import NO_MARKS
from lake.tenant import TableId, TenantId

A, B = TableId(TenantId("a"), "logs"), TableId(TenantId("b"), "logs")
VIEW, NEWER = (TableView(uuid, "file:///t", b"{}", NO_MARKS) for uuid in ("u", "newer"))


@pytest.fixture
def tables() -> WorkerTables[WorkerTable]:
    """None met yet."""
    return WorkerTables(WorkerTable)


def test_a_table_is_asked_for_once(tables: WorkerTables[WorkerTable]) -> None:
    """And not once it is known."""
    assert tables.ask([A, B]) == [A, B]
    assert tables.ask([A, B]) == []
    tables.opened({A: VIEW}, [])
    assert tables.ask([A, B]) == []
    assert (tables[A].takes_rows, tables[B].takes_rows) == (True, False)


def test_a_postponed_table_is_known_later(tables: WorkerTables[WorkerTable]) -> None:
    tables.ask([A])
    tables.opened({}, [A])
    assert tables[A].is_postponed
    tables.opened({A: VIEW}, [])
    assert not tables[A].is_postponed
    assert tables.views_of([A, B]) == {A: VIEW}


def test_a_parked_table_has_no_view_until_it_is_released(tables: WorkerTables[WorkerTable]) -> None:
    """What was asked before does not make it live, and nobody asks for it; it is held before it is
    released."""
    tables.ask([A])
    tables.park(A, "parking")
    tables.opened({A: VIEW}, [])
    assert tables.ask([A]) == []
    assert (tables[A].takes_rows, tables[A].is_parking, tables.any_parked) == (False, True, True)
    tables[A].is_held = True
    assert (tables[A].takes_rows, tables[A].is_parking, tables.any_parked) == (False, False, True)
    tables.release({A: NEWER})
    assert (tables[A].takes_rows, tables[A].view, tables.any_parked) == (True, NEWER, False)


def test_a_table_that_is_parked_while_it_is_held_is_held_no_more(tables: WorkerTables[WorkerTable]) -> None:
    """The drain has failed: what comes goes to the parking topic again."""
    tables.park(A, "first")
    tables[A].is_held = True
    tables.park(A, "second")
    assert (tables[A].is_parking, tables[A].parking) == (True, "second")


def test_the_schema_that_a_table_was_written_by_stays_until_it_is_parked(
    tables: WorkerTables[WorkerTable],
) -> None:
    """A worker of thousands of tables with as many schemas reads none of them anew for each flush."""
    spelled = [
        orjson.dumps(new_log_schema().with_strings({f"s{at}": (90, f"/s{at}")}, 1).json)
        for at in range(1_000)
    ]
    tables.opened({A: TableView("u", "file:///t", spelled[0], NO_MARKS)}, [])
    view = tables.views_of([A])[A]
    schema = ref(view.log_schema)

    def is_there() -> bool:
        for each in spelled[1:]:
            shared_schema(each)
        gc.collect()
        return schema() is not None

    assert is_there()
    assert view.log_schema is schema()
    tables.park(A, "parking")
    assert not is_there()
