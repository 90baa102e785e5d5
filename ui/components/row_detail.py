"""One row with everything it holds and where it came from."""

from typing import Any

import orjson
import pandas as pd
import streamlit as st

HEIGHT_PX = 740
FIELD_PX_MAX = 220


def show(row: dict[str, Any]) -> None:
    """As a table, as JSON, and its place in Kafka."""
    as_table, as_json, origin = st.tabs(["Fields", "JSON", "Origin"])
    with as_table:
        if row["message"]:
            st.code(row["message"], language=None, wrap_lines=True)
        values = {
            "timestamp": row["timestamp"],
            **({"severity": row["severity"]} if row["severity"] else {}),
            **row["fields"],
        }
        st.dataframe(
            pd.DataFrame({"field": list(values), "value": [str(value) for value in values.values()]}),
            hide_index=True,
            width="stretch",
            height=min(38 + 35 * len(values), HEIGHT_PX),
            column_config={
                "field": st.column_config.TextColumn(width=min(8 * max(map(len, values)) + 16, FIELD_PX_MAX))
            },
        )
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
