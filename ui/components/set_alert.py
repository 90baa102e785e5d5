"""The search on the page becomes a rule of alerts."""

from typing import Any

import streamlit as st

from ui.api_client import ApiError, api
from ui.components import board_store
from ui.components.message import show_error

TITLE_CHARACTERS = 200
OVER, ABSENCE = "More rows match than", "No row matches"
WINDOWS = {"5 minutes": "5m", "15 minutes": "15m", "an hour": "1h", "a day": "1d"}
WHAT_IT_DOES = (
    "It is looked at every minute, when everything is in, and told to the Alertmanagers of this Firn. Rules "
    "in files can do more."
)
ROWS_MAX = 1_000_000_000


def show(tenant: str, stream: str, query: str) -> None:
    """The button."""
    with st.popover("Set alert", icon=":material/add_alert:"):
        st.text_input("What it tells", key="alert_title", max_chars=TITLE_CHARACTERS)
        st.selectbox("When", [OVER, ABSENCE], key="alert_when")
        if st.session_state["alert_when"] == OVER:
            st.number_input("Rows", min_value=0, max_value=ROWS_MAX, value=0, key="alert_over")
        st.selectbox("Within", list(WINDOWS), key="alert_window")
        st.caption(WHAT_IT_DOES)
        st.button(
            "Keep the rule",
            type="primary",
            width="stretch",
            disabled=not st.session_state["alert_title"].strip(),
            on_click=_keep,
            args=(tenant, stream, query),
        )
        if told := st.session_state.pop("alert_set", None):
            if isinstance(told, ApiError):
                show_error(told)
            else:
                st.success("The rule is kept; the page Alerts shows how it fares.", icon=":material/check:")


def _keep(tenant: str, stream: str, query: str) -> None:
    state = st.session_state
    title = state["alert_title"].strip()
    over: dict[str, Any] = {"mode": "count", "over": state.get("alert_over", 0)}
    rule = {
        "stream": stream,
        "query": query,
        "condition": over if state["alert_when"] == OVER else {"mode": "absence"},
        "window": WINDOWS[state["alert_window"]],
        "annotations": {"summary": title},
    }
    try:
        taken = [each["rule"]["name"] for each in api().get("/alerts/rules", tenant=tenant)["rules"]]
        rule["name"] = board_store.name_for(title, taken, "rule")
        api().post("/alerts/rules", {"tenant": tenant, "rules": [rule]})
    except ApiError as error:
        state["alert_set"] = error
        return
    state.update(alert_set=True, alert_title="")
