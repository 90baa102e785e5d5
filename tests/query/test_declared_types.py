"""Declared types: what becomes of columns, and that what was stored before is still found."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lake.log_schema import new_log_schema
from query.model.problem import BadRequestError
from query.tables.declared_types import TYPES, changed_fields, declared_types
from tests.query.support.log_table import LogTable

START = datetime(2026, 7, 1, 8, 0, tzinfo=UTC)


def fields_after(*declarations: tuple[str, str]) -> list[dict[str, Any]]:
    """The fields of a schema with the column `status` after declarations of (field, type)."""
    schema = new_log_schema().with_strings({"status": (101, "/status"), "other": (102, "/other")}, 1).json
    last, declared = 102, set[str]()
    for name, kind in declarations:
        change = changed_fields(schema, last, name, kind, was_declared=name in declared)
        declared.add(name)
        if change is not None:
            schema, last = {**schema, "fields": change.fields}, change.last_column_id
    return [field for field in schema["fields"] if field["id"] > 100]


@given(st.lists(st.tuples(st.sampled_from(["status", "other", "new"]), st.sampled_from(TYPES)), max_size=12))
def test_after_any_declarations_every_column_is_still_there(declarations: list[tuple[str, str]]) -> None:
    """Ids and names stay distinct, no column is lost or changes its type unless it is widened, and each name
    bears the type declared last."""
    before, after = {field["id"]: field for field in fields_after()}, fields_after(*declarations)
    assert len({field["id"] for field in after}) == len(after) == len({field["name"] for field in after})
    assert before.keys() <= {field["id"] for field in after}
    assert all(field["type"] == "string" for field in after if field["id"] in before)
    kinds = {field["name"]: field["type"] for field in after}
    for name, kind in dict(declarations).items():
        assert kinds[name] == kind


def test_a_type_declared_again_takes_its_old_column_back() -> None:
    """string, long, string, long: two columns in all, which change places."""
    after = {
        field["name"]: (field["id"], field["type"])
        for field in fields_after(("status", "long"), ("status", "string"), ("status", "long"))
    }
    assert after == {"status": (103, "long"), "status__string": (101, "string"), "other": (102, "string")}


def test_a_widened_column_stays_where_it_is() -> None:
    """int to long is a change that Iceberg knows: no second column."""
    after = {
        field["name"]: (field["id"], field["type"]) for field in fields_after(("new", "int"), ("new", "long"))
    }
    assert after["new"] == (103, "long")
    assert len(after) == 3


def test_a_field_that_is_in_the_way_is_not_overwritten() -> None:
    """A record's own field of the name that the old column would take: a sentence instead of a lost
    column."""
    schema = (
        new_log_schema()
        .with_strings({"status": (101, "/status"), "status__string": (102, "/status__string")}, 1)
        .json
    )
    with pytest.raises(BadRequestError, match="step aside"):
        changed_fields(schema, 102, "status", "long", was_declared=False)


def test_a_damaged_property_counts_as_no_declaration() -> None:
    """Somebody else may have written it."""
    assert (
        declared_types({"firn.declared-types": "{"})
        == declared_types({"firn.declared-types": "[1]"})
        == declared_types({})
        == {}
    )


@pytest.mark.stack
@pytest.mark.parametrize("engine", ["duckdb", "trino"])
def test_old_and_new_values_are_found_under_one_name(
    api: httpx.Client, log_table: Callable[..., LogTable], engine: str
) -> None:
    """Rows written as text before and as numbers after the declaration, in one search; the text is where it
    was."""
    table = log_table()
    table.append(
        [
            {"timestamp": START + timedelta(seconds=at), "status": str(400 + at), "message": "before"}
            for at in range(10)
        ]
    )
    where = {"tenant": table.tenant, "stream": "logs"}
    done = api.post("/v1/streams/types", json={**where, "field": "Status", "type": "long"}).json()
    assert (done["field"], done["changed"], done["older"]) == ("status", True, "status__string")
    assert not api.post("/v1/streams/types", json={**where, "field": "status", "type": "long"}).json()[
        "changed"
    ]
    early = {"timestamp": START + timedelta(minutes=1), "message": "after"}
    table.append([{**early, "status": 400 + at} for at in range(10)])
    body = {
        **where,
        "from": START.isoformat(),
        "to": (START + timedelta(hours=1)).isoformat(),
        "engine": engine,
        "query": "status:[403 TO 405]",
    }
    rows = api.post("/v1/search", json=body).json()["rows"]
    assert sorted(
        (row["message"], str(row["fields"].get("status", row["fields"].get("status__string"))))
        for row in rows
    ) == [
        ("after", "403"),
        ("after", "404"),
        ("after", "405"),
        ("before", "403"),
        ("before", "404"),
        ("before", "405"),
    ]
    columns = {c["name"]: c for c in api.get("/v1/streams/detail", params=where).json()["schema"]}
    assert (columns["status"]["type"], columns["status"]["declared"], columns["status"]["older"]) == (
        "long",
        True,
        ["status__string"],
    )


@pytest.mark.stack
@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ({"field": "message", "type": "long"}, 400, "system column"),
        ({"field": "_offset", "type": "string"}, 400, "system column"),
        ({"field": "", "type": "long"}, 400, "cannot be"),
        ({"field": "a", "type": "varchar"}, 400, "type"),
        ({"field": "a", "type": "long", "stream": "nothing"}, 404, "no stream"),
    ],
)
def test_what_cannot_be_declared_gets_a_sentence(
    api: httpx.Client, log_table: Callable[..., LogTable], body: dict[str, Any], status: int, says: str
) -> None:
    """System columns, unknown types, streams that are not there."""
    table = log_table()
    table.append([{"timestamp": START, "message": "x"}])
    answer = api.post("/v1/streams/types", json={"tenant": table.tenant, "stream": "logs", **body})
    assert (answer.status_code, says in answer.json()["error"]["message"]) == (status, True), answer.text
