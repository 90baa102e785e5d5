"""What maintenance does now, what it left for later and why, and what it did last."""

from typing import Any

import pandas as pd
import streamlit as st

from ui.api_client import ApiError, api
from ui.components.message import show_error
from ui.components.plain_text import plain
from ui.components.stream_choice import tenant_names
from ui.components.wording import age, size

REFRESH_S = 20.0
ENTRIES = 20
FORBIDDEN, NOT_FOUND = 403, 404


@st.fragment(run_every=REFRESH_S)
def show() -> None:
    """Of all tenants, or of one for a key that does not reach all."""
    st.subheader("Maintenance", anchor=False)
    try:
        found = _found()
    except ApiError as error:
        if error.status == NOT_FOUND:
            st.caption("This catalog keeps no state of maintenance.")
        else:
            show_error(error)
        return
    leader = found["leader"]
    now = (
        f"Runs now: {plain(leader)}."
        if leader
        else "Nobody runs it now: small files stay until `python -m optimize run` does."
    )
    last = ", ".join(
        f"{plain(name.replace('_', ' '))} {age(moment)}" for name, moment in found["duties"].items()
    )
    st.caption(
        now
        + (f" Done last: {last}." if last else "")
        + (f" {found['deletions_due']:,} files wait to be deleted." if found["deletions_due"] else "")
    )
    if found["waiting"]:
        _waiting(found["waiting"])
    if found["history"]:
        _history(found["history"])
    else:
        st.caption("In the last two days nothing was merged, expired or deleted.")


def _found() -> dict[str, Any]:
    try:
        return api().get("/maintenance", limit=ENTRIES)
    except ApiError as error:
        if error.status != FORBIDDEN:
            raise
    whose = st.selectbox("Tenant", tenant_names(), key="maintenance-of")
    return api().get("/maintenance", tenant=whose, limit=ENTRIES)


def _waiting(tables: list[dict[str, Any]]) -> None:
    st.markdown("**Left for later**")
    frame = pd.DataFrame(tables)[["table", "state", "reason", "failures", "until"]]
    st.dataframe(frame, hide_index=True, width="stretch")


def _history(entries: list[dict[str, Any]]) -> None:
    st.markdown("**Done last**")
    frame = {
        "when": [age(entry["timestamp"]) for entry in entries],
        "table": [entry["table"] for entry in entries],
        "action": [entry["action"] for entry in entries],
        "outcome": [entry["outcome"] for entry in entries],
        "files": [_change(entry) for entry in entries],
        "size": ["" if entry["bytes"] is None else size(entry["bytes"]) for entry in entries],
    }
    st.dataframe(pd.DataFrame(frame), hide_index=True, width="stretch")


def _change(entry: dict[str, Any]) -> str:
    if entry["files_before"] is not None and entry["files_after"] is not None:
        return f"{entry['files_before']:,} → {entry['files_after']:,}"
    return "" if entry["snapshots_expired"] is None else f"{entry['snapshots_expired']:,} snapshots expired"
