"""Two workers write one table, and both have a new column first: who asks later writes by what the other was
promised."""

from pathlib import Path

import orjson
import pytest

from ingest.model.link import TableKey, WrittenFlush
from lake.log_schema import TypedColumn, WantedColumn
from lake.settings import ChangeMode, ChangeSettings
from tests.changes.support.written_table import WrittenTable, rows_of, source
from tests.ingest.support.change_messages import LONG, TEXT, debezium, key_of
from tests.ingest.support.fake_kafka import FakeBroker

KEY = TableKey(("id",), "upsert", "offset")


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> FakeBroker:
    made = FakeBroker()
    made.install(monkeypatch)
    return made


def kinds(written: WrittenFlush | None) -> dict[str, object]:
    assert written is not None
    return {name: column.kind for name, column in written.new.items()}


@pytest.mark.parametrize("mode", ["upsert", "history"])
@pytest.mark.parametrize(
    ("other", "column", "kind"),
    [("string", "size__long", "long"), ("long", "size", "long"), ("int", "size", "long")],
)
def test_a_change_goes_where_the_type_of_the_other_writer_leaves_it(
    tmp_path: Path, broker: FakeBroker, mode: ChangeMode, other: str, column: str, kind: str
) -> None:
    """A column of a number, which the other writer was promised as text: the number has a second one."""
    key = KEY if mode == "upsert" else None
    table = WrittenTable(tmp_path, broker, [source("orders", ChangeSettings(mode=mode))], key=key)
    table.faster = {"size": TypedColumn("/size", other), "id": TypedColumn("/id", "long")}
    fields = {"id": LONG, "size": LONG}
    table.add((0, key_of(7), debezium("c", None, {"id": 7, "size": 5}, fields, lsn=1)))
    flush = table.write()
    (row,) = rows_of(flush)
    assert {name: row[name] for name in row if name.startswith("size")} == {column: 5}
    assert kinds(flush)[column] == kind
    # What the other was promised is a column of the same commit.
    assert kinds(flush).keys() >= {"size", "id"}


@pytest.mark.parametrize("packed", [False, True], ids=["at once", "in open files"])
@pytest.mark.parametrize(
    ("other", "value", "stored"),
    [
        (TypedColumn("/n", "long"), "5", 5),
        (TypedColumn("/n", "long"), "five", None),
        ("/n", "five", "five"),
        ("/N", "five", "five"),
    ],
    ids=["a type", "a type that does not hold it", "the same", "another spelling"],
)
def test_a_record_goes_where_what_the_other_writer_was_promised_leaves_it(
    tmp_path: Path, broker: FakeBroker, other: WantedColumn, value: str, stored: object, *, packed: bool
) -> None:
    """A value that its column cannot hold is in `_errors`."""
    table = WrittenTable(tmp_path, broker, [source("logs")])
    table.faster = {"n": other}
    table.add((0, None, orjson.dumps({"time": "2026-11-20T21:00:00Z", "message": "m", "n": value})))
    if packed:
        table.pack()
    flush = table.write()
    (row,) = rows_of(flush)
    assert row.get("n") == stored
    assert [(each["field"], each["value"]) for each in row.get("_errors") or ()] == (
        [("/n", "five")] if stored is None else []
    )
    assert table.dead() == []


def test_records_beside_a_history_go_where_the_other_writer_leaves_them(
    tmp_path: Path, broker: FakeBroker
) -> None:
    """A table of two topics, one of records and one of changes."""
    sources = [source("logs"), source("changes", ChangeSettings(mode="history"))]
    table = WrittenTable(tmp_path, broker, sources)
    table.faster = {"n": TypedColumn("/n", "long"), "name": TypedColumn("/name", "long")}
    table.add((0, None, orjson.dumps({"n": "5"})))
    table.add((1, key_of(7), debezium("c", None, {"name": "a"}, {"name": TEXT}, lsn=1)))
    rows = {row["_topic"]: row for row in rows_of(table.write())}
    assert rows["logs"]["n"] == 5
    assert rows["changes"]["name__string"] == "a"
