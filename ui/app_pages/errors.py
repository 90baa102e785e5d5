"""Values that did not fit their columns: by reason and field, with the rows they came from."""

import pandas as pd
import streamlit as st

from ui.api_client import ApiError, api
from ui.components import result_table, row_detail
from ui.components.message import empty, show_error
from ui.components.wording import count

RANGES = {"Last hour": "now-1h", "Last 24 hours": "now-24h", "Last 7 days": "now-7d", "Last 30 days": "now-30d"}
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
}


def show() -> None:
    """The page."""
    st.title("Errors")
    try:
        tenants = {t["tenant"]: [s["stream"] for s in t["streams"]] for t in api().get("/tenants", limit=1000)["tenants"] if t["streams"]}
        if not tenants:
            empty("There are no logs yet.", "Send a record with a `tenant` header to one of the input topics.")
            return
        one, two, three = st.columns(3)
        tenant = one.selectbox("Tenant", list(tenants))
        stream = two.selectbox("Stream", tenants[tenant])
        label = three.selectbox("Time range", list(RANGES), index=2)
        found = api().post("/errors", {"tenant": tenant, "stream": stream, "from": RANGES[label], "to": "now"})
    except ApiError as error:
        show_error(error)
        return
    if not found["groups"]:
        empty("Every value fitted its column.", "Rows are always kept; a value that does not fit would be listed here, with its field and reason.")
        return
    st.caption(f"{count(found['looked_at'], 'row')} with values that did not fit" + ("; older ones were not looked at." if found["more"] else "."))
    groups = pd.DataFrame(found["groups"])[["reason", "field", "rows"]]
    groups.insert(1, "what it means", [WHAT.get(reason, "") for reason in groups["reason"]])
    st.dataframe(groups, hide_index=True, width="stretch")
    st.subheader("Newest rows", anchor=False)
    chosen = result_table.show(found["sample"], [], key="error-rows")
    if chosen is not None:
        row_detail.show(found["sample"][chosen])
    else:
        st.caption("Choose a row to see the value that did not fit.")
