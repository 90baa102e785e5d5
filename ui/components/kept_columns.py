"""The columns that were chosen for a stream, kept for as long as the browser session."""

import streamlit as st


def keep(tenant: str, stream: str) -> None:
    """Keeps what is chosen now for this stream; where another one was shown before, takes what was chosen for
    this one in its place."""
    kept: dict[tuple[str, str], str] = st.session_state.setdefault("columns_kept", {})
    here, before = (tenant, stream), st.session_state.get("columns_of")
    if before is not None and before != here:
        st.session_state["columns"] = kept.get(here, "")
    st.session_state["columns_of"] = here
    kept[here] = st.session_state["columns"]


def take() -> None:
    """What an address, or a search that was kept, says of columns holds."""
    st.session_state["columns_of"] = None
