"""The line at a glance: services, lag, what waits for maintenance, what is parked."""

from typing import Any

import altair as alt
import pandas as pd
import streamlit as st

from ui.api_client import ApiError, api
from ui.components import maintenance
from ui.components.message import show_error
from ui.components.plain_text import plain, sentence
from ui.components.wording import age, count

REFRESH_S = 5.0
POINTS_MAX = 240
COLOUR = "#5a8fb5"


def show() -> None:
    """The page; it refreshes itself."""
    st.title("Pipeline health")
    _now()
    maintenance.show()


@st.fragment(run_every=REFRESH_S)
def _now() -> None:
    try:
        health = api().get("/health")
    except ApiError as error:
        show_error(error)
        return
    for place, service in zip(st.columns(len(health["services"])), health["services"], strict=True):
        with place.container(border=True):
            st.markdown(
                f"**{plain(service['name'])}** "
                f"{':green[:material/check_circle:]' if service['up'] else ':red[:material/error:]'}"
            )
            st.caption(sentence(service["says"]))
    if (health.get("maintenance") or {}).get("behind"):
        st.warning(f"Maintenance is {sentence(health['maintenance']['says'])}.", icon=":material/build:")
    if health["retention_of_lake"] == "":
        st.info(
            "The lake has no retention: rows of streams and tenants that say nothing themselves are kept for "
            "ever. Set `catalog.retention`, to `forever` where that is meant.",
            icon=":material/all_inclusive:",
        )
    _numbers(health)
    _history(health)
    st.subheader("Parked tables", anchor=False)
    parked = health["parked"]
    if parked is None:
        st.caption("Your key does not show parked tables, or the catalog keeps none.")
    elif not parked:
        st.caption("No table is parked: every record that was read is on its way to its table.")
    else:
        st.dataframe(pd.DataFrame(parked), hide_index=True, width="stretch")


def _numbers(health: dict[str, Any]) -> None:
    ingest = health["ingest"] or {}
    lag = health["lag_records"]
    numbers = {
        "Lag": "not known" if lag is None else count(lag, "record"),
        "Complete until": age(health["complete_until"]) if health["complete_until"] else "not known",
        "Buffered": f"{ingest['buffered_bytes'] / 1e6:,.1f} MB"
        if "buffered_bytes" in ingest
        else "not known",
        "Partitions with many files": "not known"
        if health["partitions_with_many_files"] is None
        else f"{health['partitions_with_many_files']:,}",
    }
    row = st.container(horizontal=True)
    for label, value in numbers.items():
        row.metric(plain(label), value)


def _history(health: dict[str, Any]) -> None:
    """What this page has seen since it was opened."""
    seen = st.session_state.setdefault("health_seen", [])
    ingest = health["ingest"] or {}
    seen.append(
        {
            "time": pd.Timestamp.now("UTC"),
            "lag, records": health["lag_records"],
            "buffered, bytes": ingest.get("buffered_bytes"),
        }
    )
    del seen[:-POINTS_MAX]
    frame = pd.DataFrame(seen)
    left, right = st.columns(2)
    for place, name in ((left, "lag, records"), (right, "buffered, bytes")):
        known = frame[["time", name]].dropna()
        if known.empty:
            place.caption(f"“{plain(name)}” is not known: ingest does not tell.")
            continue
        if len(known) < 2:
            place.caption(
                f"The plot of “{plain(name)}” begins with the second answer of ingest; a point is added "
                f"every {REFRESH_S:.0f} seconds."
            )
            continue
        chart = (
            alt.Chart(known)
            .mark_line(point={"color": COLOUR} if len(known) < 20 else False, color=COLOUR)
            .encode(
                x=alt.X("time:T", title=None, axis=alt.Axis(format="%H:%M:%S", tickCount=6)),
                y=alt.Y(
                    f"{name}:Q",
                    title=name,
                    scale=alt.Scale(domain=[0, max(1, known[name].max())]),
                    axis=alt.Axis(tickCount=4, format="~s"),
                ),
            )
            .properties(height=160)
        )
        place.altair_chart(chart, width="stretch")
