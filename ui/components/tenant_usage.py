"""What a tenant may use, who says so, and what it used: today, and by day."""

from collections import defaultdict
from typing import Any

import altair as alt
import pandas as pd
import streamlit as st

from ui.api_client import ApiError, api
from ui.components.message import empty, show_error
from ui.components.plain_text import plain
from ui.components.wording import size

# What a chart may show, and where the answer of the API has it.
FIGURES = {
    "Bytes in": ("ingested", "bytes"),
    "Records": ("ingested", "records"),
    "Bytes stored": ("ingested", "bytes_stored"),
    "Searches": ("searches", "searches"),
    "Seconds of searches": ("searches", "seconds"),
    "Bytes searched": ("searches", "bytes"),
}
BYTES = ("Bytes in", "Bytes stored", "Bytes searched")
# Of a limit by day, what counts against it.
USED_TODAY = {"search_s_per_day": "seconds", "search_bytes_per_day": "bytes"}
NAMES_SHOWN = 8
ALL, OTHERS = "all tenants", "all others"


def show(tenants: list[str], *, is_only: bool) -> None:
    """The limits of a tenant that is chosen, and its usage of the last 30 days; or the usage of all.
    `is_only`: there are no others than this one."""
    chosen = st.selectbox(
        "Limits and usage of tenant",
        tenants if is_only else [ALL, *tenants],
        index=0 if is_only else None,
        placeholder="Choose a tenant, or all",
    )
    if chosen is None:  # nobody has asked: its tables would be loaded
        return
    try:
        usage = api().get("/usage") if chosen is ALL else api().get("/usage", tenant=chosen)
        limits = None if chosen is ALL else api().get("/tenants/limits", tenant=chosen)["limits"]
    except ApiError as error:
        show_error(error)
        return
    today = usage["to"]
    if limits is not None:
        _limits(limits, usage, today)
    _today(usage, today)
    _by_day(usage, "tenant" if limits is None else "stream")


def _limits(limits: list[dict[str, Any]], usage: dict[str, Any], today: str) -> None:
    frame = {
        "limit": [limit["limit"] for limit in limits],
        "most": [_most(limit) for limit in limits],
        "set by": [limit["said_by"] or "" for limit in limits],
        "used": [_used(limit["limit"], usage, today) for limit in limits],
        "meaning": [limit["meaning"] for limit in limits],
    }
    st.dataframe(pd.DataFrame(frame), hide_index=True, width="stretch")


def _most(limit: dict[str, Any]) -> str:
    if limit["most"] is None:
        return "any number" if limit["said_by"] else "not set"
    return f"{limit['most']:,}"


def _used(limit: str, usage: dict[str, Any], today: str) -> str:
    if limit == "streams":
        return f"{len(usage['stored']):,}"
    member = USED_TODAY.get(limit)
    return "" if member is None else f"{_sum(usage['searches'], member, today):,.0f} today"


def _today(usage: dict[str, Any], today: str) -> None:
    row = st.container(horizontal=True)
    for label, (part, member) in FIGURES.items():
        total = _sum(usage[part], member, today)
        row.metric(plain(f"{label} today"), size(int(total)) if label in BYTES else f"{total:,.0f}")


def _sum(entries: list[dict[str, Any]], member: str, day: str) -> float:
    return sum(each[member] or 0 for each in entries if each["day"] == day)


def _by_day(usage: dict[str, Any], whose: str) -> None:
    """`whose`: what bars are stacked by, `stream` or `tenant`."""
    label = st.segmented_control("By day", list(FIGURES), default="Bytes in")
    if label is None:
        return
    part, member = FIGURES[label]
    totals = _totals(usage[part], member, whose)
    if not totals:
        empty(
            "Nothing of that in the last 30 days.",
            "What came in is known of the last eight days; of earlier ones where the API has "
            "`usage.enabled`.",
        )
        return
    frame = pd.DataFrame(
        [{"day": day, whose: name, label: total} for (day, name), total in sorted(totals.items())]
    )
    st.altair_chart(
        alt.Chart(frame)
        .mark_bar()
        .encode(
            x=alt.X("day:O", title="day (UTC)", axis=alt.Axis(labelAngle=0)),
            y=alt.Y(f"{label}:Q", axis=alt.Axis(format="~s")),
            color=alt.Color(f"{whose}:N", legend=alt.Legend(orient="top", title=None)),
            tooltip=["day", whose, alt.Tooltip(f"{label}:Q", format=",")],
        )
        .properties(height=260),
        width="stretch",
    )


def _totals(entries: list[dict[str, Any]], member: str, whose: str) -> dict[tuple[str, str], float]:
    """By day and name; of many names the largest, the rest together."""
    of_names = defaultdict[str, float](float)
    for each in entries:
        of_names[each[whose]] += each[member] or 0
    largest = sorted(of_names, key=lambda name: -of_names[name])[:NAMES_SHOWN]
    totals = defaultdict[tuple[str, str], float](float)
    for each in entries:
        name = (each[whose] or "SQL") if each[whose] in largest else OTHERS
        totals[each["day"], name] += each[member] or 0
    return totals if any(totals.values()) else {}
