"""The line at a glance: services, lag, what waits for maintenance, what is parked."""

from typing import Any

import altair as alt
import pandas as pd
import streamlit as st

from ui.api_client import ApiError, api
from ui.components.message import empty, show_error
from ui.components.wording import age, count

REFRESH_S = 5.0
POINTS_MAX = 240


def show() -> None:
    """The page; it refreshes itself."""
    st.title("Pipeline health")
    _now()


@st.fragment(run_every=REFRESH_S)
def _now() -> None:
    try:
        health = api().get("/health")
    except ApiError as error:
        show_error(error)
        return
    for place, service in zip(st.columns(len(health["services"])), health["services"], strict=True):
        with place.container(border=True):
            st.markdown(f"**{service['name']}** {':green[:material/check_circle:]' if service['up'] else ':red[:material/error:]'}")
            st.caption(service["says"])
    _numbers(health)
    _history(health)
    st.subheader("Parked tables", anchor=False)
    parked = health["parked"]
    if parked is None:
        st.caption("Your key does not show parked tables, or the catalog keeps none.")
    elif not parked:
        st.caption("No table is parked.")
    else:
        st.dataframe(pd.DataFrame(parked), hide_index=True, width="stretch")


def _numbers(health: dict[str, Any]) -> None:
    ingest = health["ingest"] or {}
    lag = health["lag_records"]
    numbers = {
        "Lag": "not known" if lag is None else count(lag, "record"),
        "Complete until": age(health["complete_until"]) if health["complete_until"] else "not known",
        "Buffered": f"{ingest['buffered_bytes'] / 1e6:,.1f} MB" if "buffered_bytes" in ingest else "not known",
        "Partitions with many files": "not known" if health["partitions_with_many_files"] is None else f"{health['partitions_with_many_files']:,}",
    }
    for place, (label, value) in zip(st.columns(len(numbers)), numbers.items(), strict=True):
        place.metric(label, value)


def _history(health: dict[str, Any]) -> None:
    """What this page has seen since it was opened."""
    seen = st.session_state.setdefault("health_seen", [])
    ingest = health["ingest"] or {}
    seen.append({"time": pd.Timestamp.now("UTC"), "lag": health["lag_records"], "buffered MB": ingest.get("buffered_bytes", 0) / 1e6})
    del seen[:-POINTS_MAX]
    if len(seen) < 2:
        empty("The plots begin now.", f"Every {REFRESH_S:.0f} seconds a point is added while this page is open.")
        return
    frame = pd.DataFrame(seen)
    left, right = st.columns(2)
    for place, name in ((left, "lag"), (right, "buffered MB")):
        chart = (
            alt.Chart(frame)
            .mark_line(point=len(seen) < 20)
            .encode(x=alt.X("time:T", title=None, axis=alt.Axis(format="%H:%M:%S", tickCount=6)), y=alt.Y(f"{name}:Q", title=name))
            .properties(height=160)
        )
        place.altair_chart(chart, width="stretch")
