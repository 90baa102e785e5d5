"""Legal holds of a tenant: which there are, one that is set, one that is lifted."""

from collections.abc import Callable
from typing import Any

import streamlit as st

from ui.api_client import ApiError, api
from ui.components.message import show_error
from ui.components.plain_text import code, plain
from ui.components.wording import short_time


def show(tenant: str, stream: str) -> None:
    """The holds on this stream and on others of its tenant."""
    try:
        holds = api().get("/holds", tenant=tenant)["holds"]
    except ApiError as error:
        show_error(error)
        return
    st.markdown(f"**Legal holds** on {plain(tenant)}: what one is on stays, whatever retention says")
    if not holds:
        st.caption("There are none.")
    for hold in holds:
        _show_one(tenant, hold)
    with st.form("hold", border=False):
        reason = st.text_input("Reason", help="For which case it is. Everybody reads it whom a hold stops.")
        whose, since, until, send = st.columns([2, 2, 2, 1], vertical_alignment="bottom")
        all_of_tenant = whose.selectbox("On", ["this stream", "all streams"]) == "all streams"
        start = since.text_input("From", placeholder="the beginning", help="Event time: 2026-11-21, now-30d")
        end = until.text_input("To", placeholder="the end", help="Event time; itself not held")
        if send.form_submit_button("Hold", width="stretch") and reason:
            body = {
                "tenant": tenant,
                "stream": None if all_of_tenant else stream,
                "from": start,
                "to": end,
                "reason": reason,
            }
            _change(lambda: api().post("/holds", body), "set")


def _show_one(tenant: str, hold: dict[str, Any]) -> None:
    """A hold in a line, and the button that lifts it."""
    line, more = st.columns([5, 1], vertical_alignment="center")
    on = "all streams" if hold["stream"] is None else code(hold["stream"])
    since = f" from {_minute(hold['from'])}" if hold["from"] else ""
    until = f" until {_minute(hold['to'])}" if hold["to"] else ""
    by = f", set by {plain(hold['set_by'])}, {_minute(hold['set_at'])}" if hold["set_by"] else ""
    line.markdown(f"{plain(hold['reason'])}: {on}{since}{until} :gray[{plain(hold['id'])}{by}]")
    with more.popover("Lift", width="stretch"):
        st.markdown("From then on what it was on goes like anything else.")
        if st.button("Lift the hold", key=f"lift-{hold['id']}", type="primary"):
            _change(lambda: api().delete(f"/holds/{hold['id']}", tenant=tenant), "lifted")


def _change(change: Callable[[], dict[str, Any]], done: str) -> None:
    try:
        hold = change()
    except ApiError as error:
        show_error(error)
        return
    st.session_state["said"] = f"The legal hold {plain(hold['id'])} is {plain(done)}."
    st.rerun()


def _minute(moment: str) -> str:
    return plain(f"{short_time(moment)[:16]} UTC")
