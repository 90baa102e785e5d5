"""Severities on the pages: each level has its colour, in the histogram and in the table of rows."""

from typing import Any

import pytest

from lake.severity import Level, level_of
from ui.components import result_table
from ui.components.histogram import chart_of
from ui.components.severity import COLOURS, OTHER


def test_every_level_has_a_colour_of_its_own() -> None:
    """In the order of the API's levels, the gravest first."""
    assert list(COLOURS) == [level.value for level in Level]
    assert len(set(COLOURS.values())) == len(COLOURS)
    assert Level.OTHER.value == OTHER


def drawn(*buckets: dict[str, int]) -> dict[str, Any]:
    """The encoding of a chart of buckets of a minute."""
    counted = [
        {"start": f"2026-11-27T04:0{at}:00Z", "rows": sum(levels.values()), "levels": levels}
        for at, levels in enumerate(buckets)
    ]
    answer = {"from": "2026-11-27T04:00:00Z", "to": "2026-11-27T05:00:00Z", "width_s": 60, "buckets": counted}
    return dict(chart_of(answer).to_dict()["encoding"])


@pytest.mark.parametrize(
    ("buckets", "levels"),
    [
        (({"info": 3, "error": 1}, {"warn": 2}), ["error", "warn", "info"]),
        (({"error": 1},), ["error"]),
        (({"info": 2}, {"other": 1}), ["info", "other"]),
    ],
)
def test_bars_have_the_colours_of_their_severities_and_a_legend_that_names_them(
    buckets: tuple[dict[str, int], ...], levels: list[str]
) -> None:
    """The gravest first; one level alone is named too."""
    encoding = drawn(*buckets)
    scale = encoding["color"]["scale"]
    assert scale == {"domain": levels, "range": [COLOURS[level] for level in levels]}
    assert encoding["color"]["legend"] is not None
    assert "level" in [each["field"] for each in encoding["tooltip"]]


def test_a_chart_of_rows_without_a_severity_has_one_colour_and_no_legend() -> None:
    """Nothing is said of what is not there."""
    encoding = drawn({"other": 5}, {"other": 1})
    assert encoding["color"]["legend"] is None
    assert encoding["color"]["scale"]["range"] == [COLOURS[OTHER]]
    assert [each["field"] for each in encoding["tooltip"]] == ["shown", "rows"]


def row(severity: str | None) -> dict[str, Any]:
    return {
        "timestamp": "2026-11-27T04:00:00Z",
        "severity": severity,
        "level": level_of(severity),
        "message": "m",
        "fields": {},
    }


def test_severities_in_the_table_of_rows_have_their_colours() -> None:
    """By level, however they are spelled; where no row has one there is no column."""
    table = result_table.table_of(
        [row("WARN"), row("warning"), row(None), row("odd")], ["severity", "status"]
    )
    column = table["column_config"]["severity"]
    of = {each["value"]: each["color"] for each in column["type_config"]["options"]}
    assert of == {
        "WARN": COLOURS["warn"],
        "warning": COLOURS["warn"],
        "odd": COLOURS[OTHER],
    }
    assert list(table["data"]["severity"]) == [["WARN"], ["warning"], [], ["odd"]]
    assert list(table["data"].columns) == ["2026-11-27 (UTC)", "severity", "status"]
    assert "severity" not in result_table.table_of([row(None)], [])["data"]
