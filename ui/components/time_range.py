"""The time range: quick ones to choose, or two times typed."""

import streamlit as st

from ui.components import reader_zone
from ui.components.plain_text import plain

QUICK = {
    "Last 15 minutes": "now-15m",
    "Last hour": "now-1h",
    "Last 6 hours": "now-6h",
    "Last 24 hours": "now-24h",
    "Last 7 days": "now-7d",
    "Last 30 days": "now-30d",
}
TYPED = "From … to …"


def label_of(start: str, end: str) -> str:
    """The quick range that these two texts are, or the one for typed times."""
    return next((label for label, quick in QUICK.items() if end == "now" and start == quick), TYPED)


def choose() -> None:
    """Keeps session_state `from` and `to`."""
    st.session_state["range"] = (
        label_of(st.session_state["from"], st.session_state["to"])
        if not st.session_state.get("typing")
        else TYPED
    )

    def picked() -> None:
        label = st.session_state["range"]
        st.session_state["typing"] = label == TYPED
        if label != TYPED:
            st.session_state["from"], st.session_state["to"], st.session_state["pin"] = (
                QUICK[label],
                "now",
                "",
            )

    st.selectbox("Time range", [*QUICK, TYPED], key="range", on_change=picked)


def type_in() -> None:
    """The two texts, shown where no quick range is chosen."""

    def typed() -> None:
        st.session_state["from"], st.session_state["to"], st.session_state["pin"] = (
            reader_zone.with_zone(st.session_state["from_text"]),
            reader_zone.with_zone(st.session_state["to_text"]),
            "",
        )

    st.session_state["from_text"], st.session_state["to_text"] = (
        st.session_state["from"],
        st.session_state["to"],
    )
    help_text = (
        f"A time such as `2026-11-21T10:30:00Z` or `2026-11-21 10:30` ({plain(reader_zone.name())}), `now`, "
        "or `now-2h` (s, m, h, d, w). From is included, to is not."
    )
    left, right = st.columns(2)
    left.text_input("From", key="from_text", on_change=typed, help=help_text)
    right.text_input("To", key="to_text", on_change=typed, help=help_text)
