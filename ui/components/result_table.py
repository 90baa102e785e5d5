"""The rows of a page as a table; one of them can be chosen."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from ui.components import reader_zone
from ui.components.severity import COLOURS
from ui.components.wording import short_time

SUMMARY_CHARACTERS = 500
SEVERITY = "severity"


def show(
    rows: list[dict[str, Any]],
    columns: list[str],
    key: str,
    on_select: Callable[[], None] | Literal["rerun"] = "rerun",
    lead: Mapping[str, list[str]] | None = None,
) -> int | None:
    """Draws the rows; the position of the chosen one. `on_select` is called when another one is chosen,
    before the page is drawn again. `lead`: columns before all others."""
    st.dataframe(
        **table_of(rows, columns, lead),
        key=key,
        on_select=on_select,
        selection_mode="single-row",
    )
    return position(key, len(rows))


def preview(place: DeltaGenerator, rows: list[dict[str, Any]], columns: list[str]) -> None:
    """Draws rows that nobody can choose yet."""
    place.dataframe(**table_of(rows, columns))


def table_of(
    rows: list[dict[str, Any]], columns: list[str], lead: Mapping[str, list[str]] | None = None
) -> dict[str, Any]:
    """What is drawn, and how: the arguments of Streamlit's table."""
    title, times = _times(rows)
    levels = {row[SEVERITY]: row["level"] for row in rows if row[SEVERITY]}
    shown: dict[str, list[Any]] = {**(lead or {}), title: times}
    if levels:
        shown[SEVERITY] = [[row[SEVERITY]] if row[SEVERITY] else [] for row in rows]
    if any("stream" in row for row in rows):  # of several
        shown["stream"] = [row.get("stream", "") for row in rows]
    if columns:
        shown |= {name: [value_of(row, name) for row in rows] for name in columns if name not in shown}
    else:
        shown["message"] = [summary(row) for row in rows]
    widths = {name: 20 + 8 * max(map(len, (name, *values))) for name, values in (lead or {}).items()}
    widths |= {title: 8 * len(title if len(title) > len(times[0]) else times[0]), "message": 1000}
    return {
        "data": pd.DataFrame(shown),
        "width": "stretch",
        "height": min(38 + 35 * len(rows), 560),
        "hide_index": True,
        "column_config": {
            **{name: st.column_config.TextColumn(width=width) for name, width in widths.items()},
            SEVERITY: st.column_config.MultiselectColumn(
                width=95,
                options=list(levels),
                color=[COLOURS[level] for level in levels.values()] or None,
            ),
        },
    }


def position(key: str, rows: int) -> int | None:
    """Which of so many rows is chosen in the table with this key; None: no one."""
    picked = st.session_state[key]["selection"]["rows"]
    return picked[0] if picked and picked[0] < rows else None


def _times(rows: list[dict[str, Any]]) -> tuple[str, list[str]]:
    """The column of times and its title, which names the day where it is the same for all: so there is room
    for the message on a narrow screen."""
    zone, name = reader_zone.zone(), reader_zone.name()
    times = [short_time(row["timestamp"], zone) for row in rows]
    days = {time[:10] for time in times}
    return (
        (f"{days.pop()} ({name})", [time[11:] for time in times])
        if len(days) == 1
        else (f"time ({name})", times)
    )


def summary(row: dict[str, Any]) -> str:
    """One line for a row: its message, or its fields where it has none."""
    text = row["message"] or "  ".join(
        f"{name}={value}" for name, value in row["fields"].items() if value != ""
    )
    return " ".join(text[:SUMMARY_CHARACTERS].split())


def value_of(row: dict[str, Any], name: str) -> Any:
    """A column's value in a row."""
    return row.get(name) if name in ("message", "severity", "observed_timestamp") else row["fields"].get(name)
