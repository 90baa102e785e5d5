"""Figures by groups: both engines give what is computed in plain Python."""

import math
import random
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from lake.clock import SystemClock
from lake.storage import local_path, open_storage
from query.executors.embedded import EmbeddedExecutor
from query.executors.executor import Executor
from query.executors.trino import TrinoExecutor
from query.files.file_index import FileIndex
from query.language.search_language import parse_search
from query.language.search_sql import compile_search
from query.model.cancellation import Run
from query.model.problem import BadRequestError
from query.model.table_view import EPOCH, table_id
from query.search.lag import UnknownLag
from query.search.search import Searcher, SearchRequest
from query.stats.groups import ByNumber, ByTime, ByValue, Group
from query.stats.measures import Measure
from query.stats.stats import Order, StatsRequest, statement, stats, to_row
from tests.query.support.log_table import LogTable, fresh_tenant
from tests.query.support.one_file import one_file, schema
from tests.query.support.reference import START, TYPES, matches, random_query, records
from tests.stack.support.line import Line

ROWS, QUESTIONS = 400, 40
END = START + timedelta(hours=3)
_NUMBER = re.compile(r"-?[0-9]{1,30}(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,2})?")
NUMBERS = ("bytes", "took", "status")
# Percentiles are approximated: by how many places among the sorted values they may be off.
PLACES_OFF = 0.05


def number(value: Any) -> float | None:
    if isinstance(value, str):
        return float(value) if _NUMBER.fullmatch(value) else None
    return None if value is None else float(value)


def key(group: Group, row: Mapping[str, Any]) -> Any:
    """The key of a row's group, by other means than the engines'."""
    if isinstance(group, ByValue):
        value = row.get(group.field)
        return group.missing if value is None else value
    if isinstance(group, ByNumber):
        value = number(row.get(group.field))
        return (
            None
            if value is None
            else math.floor((value - group.offset) / group.width) * group.width + group.offset
        )
    at: datetime = row["timestamp"]
    if group.width_s:
        since = (at - EPOCH).total_seconds() - group.offset_s
        return EPOCH + timedelta(seconds=since // group.width_s * group.width_s + group.offset_s)
    day = at.astimezone(ZoneInfo(group.zone)).replace(hour=0, minute=0, second=0, microsecond=0)
    first = {
        "day": day,
        "week": day - timedelta(days=day.weekday()),
        "month": day.replace(day=1),
        "quarter": day.replace(month=(day.month - 1) // 3 * 3 + 1, day=1),
        "year": day.replace(month=1, day=1),
    }
    return first[group.calendar or ""].astimezone(UTC)


def measured(measure: Measure, rows: Sequence[Mapping[str, Any]]) -> Any:
    node = parse_search(measure.where)
    rows = [row for row in rows if matches(node, row)]
    if measure.kind == "count":
        return len(rows)
    values = [row[measure.field or ""] for row in rows if row.get(measure.field or "") is not None]
    if measure.kind == "values":
        return len(values)
    if measure.kind == "distinct":
        return len(set(values))
    numbers = sorted(found for value in values if (found := number(value)) is not None)
    if measure.kind == "percentile" or not numbers:
        return numbers or None
    if measure.kind in ("sum", "avg"):
        total = math.fsum(numbers)
        return total if measure.kind == "sum" else total / len(numbers)
    return numbers[0] if measure.kind == "min" else numbers[-1]


def expected(asked: StatsRequest, rows: Sequence[Mapping[str, Any]]) -> dict[tuple[Any, ...], list[Any]]:
    node, grouped = (
        parse_search(asked.search.query),
        defaultdict[tuple[Any, ...], list[Mapping[str, Any]]](list),
    )
    for row in rows:
        if matches(node, row):
            grouped[tuple(key(group, row) for group in asked.groups)].append(row)
    if not asked.groups:
        grouped.setdefault((), [])
    return {keys: [measured(each, found) for each in asked.measures] for keys, found in grouped.items()}


def agree(asked: StatsRequest, found: Sequence[tuple[Any, ...]], rows: Sequence[Mapping[str, Any]]) -> None:
    wanted, width = expected(asked, rows), len(asked.groups)
    assert [row[:width] for row in found] == list(dict.fromkeys(row[:width] for row in found))
    assert {row[:width] for row in found} == wanted.keys(), asked
    for row in found:
        for measure, value, right in zip(asked.measures, row[width:], wanted[row[:width]], strict=True):
            if measure.kind == "percentile" and right is not None:
                at = (measure.percent or 0) / 100 * (len(right) - 1)
                reach = max(1, math.ceil(PLACES_OFF * len(right)))
                low, high = max(0, math.floor(at) - reach), min(len(right) - 1, math.ceil(at) + reach)
                assert right[low] <= value <= right[high], (asked, measure, value, right)
            elif isinstance(right, float):
                assert value == pytest.approx(right, rel=1e-9), (asked, measure)
            else:
                assert value == right, (asked, measure)


def question(random_: random.Random, table: SearchRequest) -> StatsRequest:
    """Any two groupings, any three measures."""
    groups: list[Group] = [
        ByTime(random_.choice([60, 600, 3_600, 7_000]), offset_s=random_.choice([0, 300])),
        ByTime(
            calendar=random_.choice(["day", "week", "month", "quarter", "year"]),
            zone=random_.choice(["UTC", "Europe/Berlin", "America/St_Johns"]),
        ),
        ByValue(random_.choice(["severity", "path", "status", "bytes", "ok", "took"])),
        ByValue("severity", missing="none"),
        ByNumber(random_.choice(NUMBERS), random_.choice([10, 0.5, 1e9]), random_.choice([0, 3])),
    ]
    measures = [
        Measure("count"),
        Measure("count", where=random_query(random_)),
        Measure("values", random_.choice(["path", "ok", "bytes"])),
        Measure("distinct", random_.choice(["path", "status", "message"])),
        *(Measure(kind, random_.choice(NUMBERS)) for kind in ("min", "max", "sum", "avg")),
        Measure("percentile", random_.choice(NUMBERS), random_.choice([0, 50, 95, 100]), where="severity:*"),
    ]
    query = random_.choice(["", random_query(random_)])
    search = SearchRequest(table.table, table.start, table.end, query, engine=table.engine)
    return StatsRequest(
        search, tuple(random_.sample(groups, random_.randint(0, 2))), tuple(random_.sample(measures, 3))
    )


@pytest.mark.long
def test_the_embedded_engine_computes_what_python_does(tmp_path: Path) -> None:
    table = one_file(tmp_path, ROWS, 11)
    random_ = random.Random(12)
    for _ in range(QUESTIONS):
        asked = question(random_, SearchRequest(table.source.view.id, START, END))
        condition = compile_search(parse_search(asked.search.query), schema()).condition
        select, warnings = statement(asked, schema(), condition, is_exact=True)
        assert not warnings
        agree(asked, [to_row(asked, row) for row in table.run(select)], table.rows)


@pytest.mark.stack
def test_both_engines_compute_what_python_does(line: Line, tmp_path: Path) -> None:
    table = LogTable(line.catalog, fresh_tenant("stats"), types=TYPES)
    rows = table.append(records(ROWS, 13), rows_per_file=100)
    settings, storage = line.query_settings(state=str(tmp_path)), open_storage()
    engines: tuple[Executor, ...] = (
        EmbeddedExecutor(
            settings,
            lambda uris, _: [str(local_path(uri)) for uri in uris],
            lambda: [local_path(warehouse(line))],
        ),
        TrinoExecutor(settings),
    )
    searcher = Searcher(line.catalog, FileIndex(storage), engines, settings, UnknownLag(), SystemClock())
    random_ = random.Random(14)
    for _ in range(QUESTIONS // 3):
        for engine in ("duckdb", "trino"):
            asked = question(random_, SearchRequest(table.id, START, END, engine=engine))
            found = stats(searcher, asked, Run(60.0))
            assert (found.is_cut, found.basis.engine) == (False, engine)
            agree(asked, found.rows, rows)


def warehouse(line: Line) -> str:
    uri = line.catalog.warehouse
    assert uri is not None
    return uri


def test_the_largest_groups_come_first_and_it_is_said_that_there_are_more() -> None:
    asked = StatsRequest(
        SearchRequest(table_id("t", "logs"), START, END),
        (ByValue("path"),),
        (Measure("count"),),
        order=(Order(1, is_descending=True),),
        groups_max=2,
    )
    select, _ = statement(asked, schema(), None, is_exact=True)
    assert select.sql("duckdb").endswith('ORDER BY "Figure 1" DESC, "Figure 0" ASC LIMIT 3')


@pytest.mark.parametrize(
    ("group", "measure", "said"),
    [
        (ByTime(0), Measure("count"), "a second or more"),
        (ByTime(60, "day"), Measure("count"), "either a width"),
        (ByTime(calendar="day", zone="Mars/Base"), Measure("count"), "no time zone"),
        (ByTime(60, field="path"), Measure("count"), "holds no times"),
        (ByNumber("path", 0), Measure("count"), "wider than nothing"),
        (ByNumber("ok", 1), Measure("count"), "holds no numbers"),
        (ByValue("_errors"), Measure("count"), "holds lists"),
        (ByValue("path"), Measure("avg"), "needs a field"),
        (ByValue("path"), Measure("percentile", "took", 101), "between 0 and 100"),
        (ByValue("path"), Measure("count", where="a:("), "position"),
    ],
)
def test_a_wrong_question_is_told_what_is_wrong(group: Group, measure: Measure, said: str) -> None:
    asked = StatsRequest(SearchRequest(table_id("t", "logs"), START, END), (group,), (measure,))
    with pytest.raises(BadRequestError) as refused:
        statement(asked, schema(), None, is_exact=True)
    assert said in str(refused.value.problem)


def test_a_field_that_is_not_there_has_no_values_and_that_is_said() -> None:
    asked = StatsRequest(
        SearchRequest(table_id("t", "logs"), START, END), (ByValue("pth"),), (Measure("avg", "tok"),)
    )
    _, warnings = statement(asked, schema(), None, is_exact=True)
    assert [each.suggestion for each in warnings] == ["did you mean path?", "did you mean took?"]
