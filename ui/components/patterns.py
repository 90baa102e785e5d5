"""Patterns of messages: how many rows each has, and the way to these rows."""

from collections.abc import Callable
from typing import Any

import pandas as pd
import streamlit as st

from ui.components.plain_text import isolated
from ui.components.spreadsheet import to_csv
from ui.components.wording import count

EXAMPLE_CHARACTERS = 500
KEY = "patterns"


def show(answer: dict[str, Any], query: str, open_query: Callable[[str], None]) -> None:
    """Draws patterns, as the API gives them. `query`: the search before the pipes; `open_query` is called
    with that of a pattern which was chosen."""
    names = [column["name"] for column in answer["columns"]]
    rows = [dict(zip(names, row, strict=True)) for row in answer["rows"]]
    frame = pd.DataFrame(rows, columns=names)
    with st.container(horizontal=True, vertical_alignment="center"):
        _basis(answer["sample"])
        st.download_button("As CSV", to_csv(frame), "patterns.csv", "text/csv", icon=":material/download:")

    def picked() -> None:
        chosen = st.session_state[KEY]["selection"]["rows"]
        search = rows[chosen[0]]["search"] if chosen and chosen[0] < len(rows) else ""
        if search:
            open_query(f"({query}) AND {search}" if query else search)

    st.dataframe(
        pd.DataFrame(
            {
                "count": [row["count"] for row in rows],
                "share": [row["share"] for row in rows],
                "pattern": [isolated(row["pattern"]) for row in rows],
                "example": [isolated(row["example"][:EXAMPLE_CHARACTERS]) for row in rows],
            }
        ),
        key=KEY,
        hide_index=True,
        width="stretch",
        on_select=picked,
        selection_mode="single-row",
        column_config={
            "count": st.column_config.NumberColumn(width=90, format="localized"),
            "share": st.column_config.ProgressColumn(width=110, format="percent", min_value=0, max_value=1),
            "pattern": st.column_config.TextColumn(width=700),
        },
    )
    st.caption("Choose a pattern to search its words; by keyboard with the arrows and Shift+Space.")


def _basis(sample: dict[str, Any]) -> None:
    """What the patterns rest on, and what they leave out, in a line."""
    rows = count(sample["rows"], "row")
    parts = [f"**Patterns of {'all' if sample['is_all'] else 'the first'} {rows}**"]
    if sample["of_other_patterns"]:
        parts += [f"{count(sample['of_other_patterns'], 'row')} with rarer patterns"]
    if sample["missing"]:
        parts += [f"{count(sample['missing'], 'row')} without a value"]
    if sample["uncompared"]:
        parts += [f"{count(sample['uncompared'], 'row')} not compared, as too few are alike"]
    if sample["cut"]:
        parts += [f"only the beginning was looked at of {count(sample['cut'], 'row')}"]
    st.caption(" · ".join(parts))
