"""The same search again every few seconds, while somebody watches."""

from time import monotonic

import streamlit as st

EVERY_S = 10.0


def offer() -> None:
    """A switch; while it is on, the answer is asked for anew. A pinned search never changes, so it has
    none."""
    if st.session_state["pin"]:
        return
    if st.toggle("Refresh", key="refresh", help=f"Searches again every {EVERY_S:.0f} seconds"):
        st.session_state.setdefault("refreshed_s", monotonic())
        _wait()
    else:
        st.session_state.pop("refreshed_s", None)


def begin_anew() -> None:
    """The time runs from an answer on, however long it took."""
    if "refreshed_s" in st.session_state:
        st.session_state["refreshed_s"] = monotonic()


@st.fragment(run_every=EVERY_S)
def _wait() -> None:
    if monotonic() - st.session_state["refreshed_s"] >= EVERY_S * 0.9:
        st.session_state["refreshed_s"] = monotonic()
        st.session_state.pop("answer", None)
        st.rerun()
