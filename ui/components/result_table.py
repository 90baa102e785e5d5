"""The rows of a page as a table; one of them can be chosen."""

from typing import Any

import pandas as pd
import streamlit as st

from ui.components.wording import short_time

SUMMARY_CHARACTERS = 500


def show(rows: list[dict[str, Any]], columns: list[str], key: str) -> int | None:
    """Draws the rows; the position of the chosen one."""
    shown = {"time (UTC)": [short_time(row["timestamp"]) for row in rows]}
    if any(row["severity"] for row in rows):
        shown["severity"] = [row["severity"] for row in rows]
    if columns:
        shown |= {name: [value_of(row, name) for row in rows] for name in columns}
    else:
        shown["message"] = [summary(row) for row in rows]
    widths = {"time (UTC)": 185, "severity": 80, "message": 1000}
    settings = {name: st.column_config.TextColumn(width=width) for name, width in widths.items()}
    event = st.dataframe(
        pd.DataFrame(shown),
        key=key,
        width="stretch",
        height=min(38 + 35 * len(rows), 560),
        hide_index=True,
        on_select="rerun",
        selection_mode="single-row",
        column_config=settings,
    )
    picked = event["selection"]["rows"]
    return picked[0] if picked and picked[0] < len(rows) else None


def summary(row: dict[str, Any]) -> str:
    """One line for a row: its message, or its fields where it has none."""
    text = row["message"] or "  ".join(f"{name}={value}" for name, value in row["fields"].items() if value != "")
    return " ".join(text[:SUMMARY_CHARACTERS].split())


def value_of(row: dict[str, Any], name: str) -> Any:
    """A column's value in a row."""
    return row.get(name) if name in ("message", "severity", "observed_timestamp") else row["fields"].get(name)
