"""One row with everything it holds and where it came from."""

from collections.abc import Callable, Mapping
from typing import Any

import orjson
import pandas as pd
import streamlit as st

from ui.components.plain_text import code, plain
from ui.url_state import row_key

TIME = "timestamp"
CHARACTERS = 40
HEIGHT_PX = 740
FIELD_PX_MAX = 220


def show(row: dict[str, Any], on_filter: Callable[[str, object, str], None] | None = None) -> None:
    """As a table, as JSON, and its place in Kafka. `on_filter` is called with a field, a value that was
    chosen, and `` or `NOT `."""
    as_table, as_json, origin = st.tabs(["Fields", "JSON", "Origin"])
    with as_table:
        if row["message"]:
            st.code(row["message"], language=None, wrap_lines=True)
        _fields(row, on_filter)
        if row["errors"]:
            st.markdown("**Values that did not fit their columns**")
            st.dataframe(pd.DataFrame(row["errors"]), hide_index=True, width="stretch")
        if row["overflow"]:
            st.markdown("**Fields beyond the limit of columns**")
            st.code(row["overflow"], language="json", wrap_lines=True)
    with as_json:
        st.code(orjson.dumps(row, option=orjson.OPT_INDENT_2).decode(), language="json", wrap_lines=True)
    with origin:
        coordinates = row["coordinates"]
        st.markdown("These coordinates identify the row for ever: no other row of this stream has them.")
        st.dataframe(
            pd.DataFrame(
                {
                    "what": [
                        "Kafka topic",
                        "topic id",
                        "partition",
                        "offset",
                        "index in the message",
                        "Kafka's time",
                    ],
                    "value": [
                        str(coordinates[name])
                        for name in ("topic", "topic_id", "partition", "offset", "index")
                    ]
                    + [row["observed_timestamp"] or ""],
                }
            ),
            hide_index=True,
            width="stretch",
        )


def _fields(row: dict[str, Any], on_filter: Callable[[str, object, str], None] | None) -> None:
    values = {
        TIME: row["timestamp"],
        **({"severity": row["severity"]} if row["severity"] else {}),
        **row["fields"],
    }
    if on_filter is None:
        st.dataframe(**_table(values))
        return
    place = st.container(horizontal=True, vertical_alignment="center", gap="small")
    key = "fields-" + row_key(row["coordinates"], row["timestamp"])
    cells = st.dataframe(
        **_table(values), key=key, on_select="rerun", selection_mode="single-cell"
    ).selection.cells
    with place:
        _filters(list(values.items())[cells[0][0]] if cells else None, on_filter)


def _table(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "data": pd.DataFrame({"field": list(values), "value": [str(value) for value in values.values()]}),
        "hide_index": True,
        "width": "stretch",
        "height": min(38 + 35 * len(values), HEIGHT_PX),
        "column_config": {
            "field": st.column_config.TextColumn(width=min(8 * max(map(len, values)) + 16, FIELD_PX_MAX))
        },
    }


def _filters(chosen: tuple[str, Any] | None, on_filter: Callable[[str, object, str], None]) -> None:
    """What can be done with a value that was chosen."""
    if chosen is None:
        st.caption("Choose a value to search for it, or for rows without it.")
        return
    field, value = chosen
    if field == TIME or value == "" or not isinstance(value, str | int | float):
        st.caption(f"{code(field)} cannot be searched by a click.")
        return
    st.markdown(f"{plain(field)} {code(str(value)[:CHARACTERS])}", width="content")
    for label, icon, sign in (("Only these", "add", ""), ("Without these", "remove", "NOT ")):
        st.button(
            plain(label),
            icon=f":material/{icon}:",
            type="tertiary",
            on_click=on_filter,
            args=(field, value, sign),
        )
