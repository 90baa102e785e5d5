"""Values that did not fit their columns: by reason and field, with the rows they came from."""

from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

import pandas as pd
import streamlit as st

from ui.api_client import ApiError, api
from ui.components import result_table, row_detail
from ui.components.message import empty, show_error
from ui.components.stream_choice import choose_tenant, no_streams, streams_of
from ui.components.wording import count
from ui.url_state import SearchState, to_params

EXAMPLE_CHARACTERS = 200
RANGES = {
    "Last hour": "now-1h",
    "Last 24 hours": "now-24h",
    "Last 7 days": "now-7d",
    "Last 30 days": "now-30d",
}
WHAT = {
    "wrong_type": "the value is of another type than the column was declared",
    "out_of_range": "the value does not fit the column's type",
    "name_collision": "two fields of one record fold to one column",
    "duplicate_key": "a record holds the same key twice",
    "reserved_name": "the field is called like a system column",
    "unusable_name": "the field's name cannot be a column",
    "bad_timestamp": "the time cannot be read; Kafka's was taken",
    "missing_timestamp": "the record has no time; Kafka's was taken",
    "invalid_text": "the text is not valid Unicode",
    "unavailable": "the source of the change did not send the value",
}


def show() -> None:
    """The page."""
    st.title("Errors")
    one, two, three = st.columns(3)
    try:
        tenant = choose_tenant(one, "errors")
        if tenant is None:
            return
        streams = list(streams_of(tenant))
        if not streams:
            no_streams(tenant)
            return
        stream = two.selectbox("Stream", streams)
        label = three.selectbox("Time range", list(RANGES), index=2)
        found = api().post(
            "/errors", {"tenant": tenant, "stream": stream, "from": RANGES[label], "to": "now"}
        )
    except ApiError as error:
        show_error(error)
        return
    if not found["groups"]:
        empty(
            "Every value fitted its column.",
            "Rows are always kept; a value that does not fit would be listed here, with its field and "
            "reason.",
        )
        return
    st.caption(
        f"{count(found['looked_at'], 'row')} with values that did not fit"
        + ("; older ones were not looked at." if found["more"] else ".")
    )
    _groups(found["groups"], SearchState(tenant=tenant, stream=stream, from_=RANGES[label]))
    st.subheader("Newest rows", anchor=False)
    chosen = result_table.show(found["sample"], [], key="error-rows")
    if chosen is not None:
        row_detail.show(found["sample"][chosen])
    else:
        st.caption("Choose a row to see the value that did not fit.")


def _groups(groups: list[dict[str, Any]], around: SearchState) -> None:
    """By reason and field, each with some of its values and the search for its rows."""
    st.dataframe(
        pd.DataFrame(
            {
                "reason": [group["reason"] for group in groups],
                "what it means": [WHAT.get(group["reason"], "") for group in groups],
                "field": [group["field"] for group in groups],
                "rows": [group["rows"] for group in groups],
                "for example": ["  ·  ".join(group["examples"])[:EXAMPLE_CHARACTERS] for group in groups],
                "search": [
                    "/search?" + urlencode(to_params(replace(around, query=f"_errors:{group['reason']}")))
                    for group in groups
                ],
            }
        ),
        hide_index=True,
        width="stretch",
        # Widths of their own, in pixels: measured ones push the link out of sight when a font comes late.
        column_config={
            "reason": st.column_config.Column(width=130),
            "what it means": st.column_config.Column(width=330),
            "field": st.column_config.Column(width=170),
            "rows": st.column_config.Column(width=70),
            "for example": st.column_config.Column(width=280),
            "search": st.column_config.LinkColumn(
                width=75, display_text="open", help="Searches the rows with this reason"
            ),
        },
    )
