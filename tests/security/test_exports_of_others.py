"""Findings 20 and 25: whose exports are whose, how many are kept, and what a spreadsheet makes of them."""

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pandas as pd
import pytest

from query.export.export_formats import text_cell
from tests.query.support.guarded import START, Guarded
from tests.query.support.log_table import LogTable, fresh_tenant
from tests.query.support.processes import Child
from tests.security.support.edges import limited
from tests.stack.support.waiting import wait_for
from ui.components.spreadsheet import to_csv

RANGE = {"from": START.isoformat(), "to": "2026-09-02"}
UNKNOWN = ("abcdefgh", "x" * 5_000, "%2e%2e", "..%2f..%2fetc", "a.b", "é" * 40, "a" * 65)
FORMULAS = [
    "=1+1",
    "+cmd|'/c calc'!A0",
    "-2+3",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    " =1",
    "＝1",
    "'=1",
    '"=1',
    "\x00=1",
]
PLAIN = ["", "a=b", "-12.5", "+1", "-1e9", "1-2", "x", "ü"]


def create(at: Guarded, key: str, tenant: str, **body: Any) -> httpx.Response:
    return at.ask("POST", "/v1/exports", key, json={"tenant": tenant, **RANGE, **body})


def finished(at: Guarded, key: str, made: dict[str, Any]) -> dict[str, Any]:
    """The export when it is no longer running."""

    def look() -> dict[str, Any] | None:
        job = dict(at.ask("GET", f"/v1/exports/{made['id']}", key).json())
        return None if job["state"] == "running" else job

    return wait_for(look, 60.0, "the export") or {}


@pytest.mark.stack
@pytest.mark.finding(20)
def test_a_key_that_only_reads_ends_its_own_exports_alone(keyed: Guarded) -> None:
    """Those of the tenant's write key stay, and can still be fetched; a write key may tidy up after both."""
    of_writer, of_reader, another = (create(keyed, key, "a").json() for key in ("mine", "reader", "reader"))
    for method, path in (("DELETE", ""), ("POST", "/resume")):
        refused = keyed.ask(method, f"/v1/exports/{of_writer['id']}{path}", "reader")
        assert (refused.status_code, "scope write" in refused.text) == (403, True), refused.text
    assert finished(keyed, "reader", of_writer)["rows"] == 30
    assert keyed.ask("DELETE", f"/v1/exports/{of_reader['id']}", "reader").status_code == 204
    assert keyed.ask("DELETE", f"/v1/exports/{another['id']}", "mine").status_code == 204
    assert keyed.ask("DELETE", f"/v1/exports/{of_writer['id']}", "mine").status_code == 204


@pytest.mark.stack
@pytest.mark.finding(20)
def test_foreign_and_unknown_exports_answer_alike(keyed: Guarded) -> None:
    """Same status, same words, whatever is asked, however long or odd the id: nobody learns from it what
    there is."""
    foreign = create(keyed, "theirs", "b").json()["id"]
    expected = keyed.ask("GET", "/v1/exports/neverthere", "mine")
    assert expected.status_code == 404
    for export_id in (foreign, *UNKNOWN):
        for method, path in (
            ("GET", ""),
            ("GET", "/file"),
            ("GET", "/parts/part-000000.ndjson"),
            ("POST", "/resume"),
            ("DELETE", ""),
        ):
            answer = keyed.ask(method, f"/v1/exports/{export_id}{path}", "mine")
            assert answer.status_code == 404, (method, export_id[:20], path, answer.text)
            if "%2f" not in export_id:  # then it is another route
                assert answer.text == expected.text, (method, export_id[:20], path)
    assert finished(keyed, "theirs", {"id": foreign})["rows"] == 30
    assert keyed.ask("DELETE", f"/v1/exports/{foreign}", "theirs").status_code == 204
    for erasure_id in ("x" * 5_000, "é", "abcdef"):
        assert keyed.ask("GET", f"/v1/erasures/{erasure_id}", "mine").status_code == 404


@pytest.fixture
def small(keyed: Guarded, tmp_path: Path) -> Iterator[Guarded]:
    """The keyed API where a tenant may keep three exports and 4,000 bytes of them."""
    own = limited(
        "query",
        catalog__uri=keyed.catalog.address,
        catalog__token=keyed.keys["room"],
        state=tmp_path / "state",
    )
    quota = limited("query", export__count_per_tenant=3, export__bytes_per_tenant=4_000)
    api = Child("query", tmp_path, {**keyed.environment, **own, **quota}).start()
    yield Guarded(tmp_path, keyed.catalog, api, keyed.keys, keyed.mine, keyed.theirs, keyed.environment)
    api.kill()


@pytest.mark.stack
@pytest.mark.finding(20)
def test_a_tenant_keeps_only_so_many_exports(small: Guarded) -> None:
    """Number and bytes; the refusal says what to do, doing it helps, and another tenant is not concerned."""
    narrow = {"query": 'message:"of Mine 7"'}
    made = [create(small, "mine", "a", **narrow).json() for _ in range(3)]
    refused = create(small, "reader", "a", **narrow)
    assert (refused.status_code, "delete one" in refused.text) == (429, True), refused.text
    assert create(small, "theirs", "b", **narrow).status_code == 202
    for each in made:
        assert finished(small, "mine", each)["state"] == "done"
        assert small.ask("DELETE", f"/v1/exports/{each['id']}", "mine").status_code == 204
    whole = finished(small, "mine", create(small, "mine", "a").json())
    assert whole["bytes"] > 4_000
    refused = create(small, "mine", "a")
    assert (refused.status_code, "4,000 bytes" in refused.text) == (429, True), refused.text
    assert small.ask("DELETE", f"/v1/exports/{whole['id']}", "mine").status_code == 204
    assert create(small, "mine", "a").status_code == 202


@pytest.mark.finding(25)
def test_cells_that_spreadsheets_calculate_are_marked_as_text() -> None:
    """In files for people; numbers stay numbers, and names of columns are no exception."""
    assert [text_cell(text) for text in FORMULAS] == [f"'{text}" for text in FORMULAS]
    assert [text_cell(text) for text in PLAIN] == PLAIN
    assert [text_cell(value) for value in (None, -3, 2.5, True)] == [None, -3, 2.5, True]
    frame = pd.DataFrame({"=HYPERLINK(1)": [*FORMULAS, *PLAIN], "n": range(len(FORMULAS) + len(PLAIN))})
    head, *rows = csv.reader(io.StringIO(to_csv(frame).decode(), newline=""))
    assert head == ["'=HYPERLINK(1)", "n"]
    assert [row[0] for row in rows] == [*(f"'{text}" for text in FORMULAS), *PLAIN]


@pytest.mark.stack
@pytest.mark.finding(25)
def test_exports_are_exact_unless_asked_for_a_spreadsheet(keyed: Guarded) -> None:
    """A machine's CSV has every value as it is; a person's has no formula."""
    table = LogTable(keyed.mine.catalog, "a", fresh_tenant("formulas"))
    table.append([{"timestamp": START, "message": text} for text in FORMULAS if "\x00" not in text])
    read: dict[bool, list[str]] = {}
    for safe in (False, True):
        made = finished(
            keyed,
            "mine",
            create(keyed, "mine", "a", stream=table.stream, format="csv", spreadsheet_safe=safe).json(),
        )
        text = keyed.ask("GET", f"/v1/exports/{made['id']}/file", "mine").content.decode()
        read[safe] = sorted(row["message"] for row in csv.DictReader(io.StringIO(text, newline="")))
        assert keyed.ask("DELETE", f"/v1/exports/{made['id']}", "mine").status_code == 204
    kept = sorted(text for text in FORMULAS if "\x00" not in text)
    assert read[False] == kept
    assert read[True] == sorted(f"'{text}" for text in kept)
