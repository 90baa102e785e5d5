"""The time range: quick ones to choose, a day, or two times typed."""

from datetime import date, datetime, time, timedelta, tzinfo

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
TODAY, YESTERDAY = "Today", "Yesterday"
TYPED = "From … to …"


def label_of(start: str, end: str) -> str:
    """The quick range that these two texts are, or the one for typed times."""
    return next((label for label, quick in QUICK.items() if end == "now" and start == quick), TYPED)


def day_of(label: str, today: date, zone: tzinfo) -> tuple[str, str]:
    """Where a day begins and ends on the clocks of a zone, with the zone; today ends now."""
    starts = [datetime.combine(today - timedelta(days=back), time.min, zone).isoformat() for back in (0, 1)]
    return (starts[0], "now") if label == TODAY else (starts[1], starts[0])


def choose() -> None:
    """Keeps session_state `from` and `to`."""
    st.session_state["range"] = (
        label_of(st.session_state["from"], st.session_state["to"])
        if not st.session_state.get("typing")
        else TYPED
    )

    def picked() -> None:
        label = st.session_state["range"]
        st.session_state["typing"] = label not in QUICK
        if label in (TODAY, YESTERDAY):
            zone = reader_zone.zone()
            start, end = day_of(label, datetime.now(zone).date(), zone)
            st.session_state.update({"from": start, "to": end, "pin": ""})
        elif label != TYPED:
            st.session_state["from"], st.session_state["to"], st.session_state["pin"] = (
                QUICK[label],
                "now",
                "",
            )

    st.selectbox("Time range", [*QUICK, TODAY, YESTERDAY, TYPED], key="range", on_change=picked)


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
