"""The same search again every few seconds, while somebody watches."""

from time import monotonic

import streamlit as st

EVERY_S = 10.0


def offer(kept: str = "answer", every_s: float = EVERY_S) -> None:
    """A switch; while it is on, the answer is asked for anew. A pinned search never changes, so it has none.
    `kept`: where in the session the answer is."""
    if st.session_state["pin"]:
        return
    if st.toggle("Refresh", key="refresh", help=f"Searches again every {every_s:.0f} seconds"):
        st.session_state.setdefault("refreshed_s", monotonic())
        st.fragment(_wait, run_every=every_s)(kept, every_s)
    else:
        st.session_state.pop("refreshed_s", None)


def begin_anew() -> None:
    """The time runs from an answer on, however long it took."""
    if "refreshed_s" in st.session_state:
        st.session_state["refreshed_s"] = monotonic()


def _wait(kept: str, every_s: float) -> None:
    if monotonic() - st.session_state["refreshed_s"] >= every_s * 0.9:
        st.session_state["refreshed_s"] = monotonic()
        st.session_state.pop(kept, None)
        st.rerun()
