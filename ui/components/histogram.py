"""Rows over time, stacked by level of severity where rows have one; dragging over it, or a click on a bar,
chooses a shorter range."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import altair as alt
import pandas as pd
import streamlit as st

from ui.components.reader_zone import moment_of, name, wall
from ui.components.severity import COLOURS, OTHER

HEIGHT_PX = 170
SECONDS = "%Y-%m-%d %H:%M:%S"


def show(answer: dict[str, Any], key: str) -> tuple[str, str] | None:
    """Draws it; the range that was chosen in it, as RFC 3339, None where there is none."""
    if not answer["buckets"]:
        return None
    event = st.altair_chart(chart_of(answer), key=key, on_select="rerun", width="stretch")
    return _chosen(event.get("selection", {})) if event else None


def _chosen(selection: dict[str, Any]) -> tuple[str, str] | None:
    """What was dragged over, else the bar that was clicked: a drag ends with a click, too."""
    if dragged := selection.get("drag", {}).get("start"):
        first, last = (
            moment_of(datetime.fromtimestamp(at / 1000, UTC)) for at in (min(dragged), max(dragged))
        )
        return _rfc3339(first), _rfc3339(last + timedelta(seconds=1))
    for bar in selection.get("bar", ()):
        return _rfc3339(datetime.fromisoformat(bar["from"])), _rfc3339(datetime.fromisoformat(bar["until"]))
    return None


def _rfc3339(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _stacked(bucket: dict[str, Any], width: timedelta) -> Iterator[dict[str, Any]]:
    """A bucket as rectangles upon each other, the gravest level below."""
    begins = datetime.fromisoformat(bucket["start"])
    start = wall(begins)
    levels, below = bucket["levels"] or {OTHER: bucket["rows"]}, 0
    for level in COLOURS:
        if rows := levels.get(level, 0):
            edges = {"start": start, "end": start + width * 0.94, "low": below, "high": below + rows}
            yield {
                **edges,
                "level": level,
                "rows": rows,
                "from": f"{begins:{SECONDS}}",
                "until": f"{begins + width:{SECONDS}}",
                "shown": f"{start:{SECONDS}}",
            }
            below += rows


def chart_of(answer: dict[str, Any]) -> Any:
    """The chart of an answer that has buckets. Its legend names the levels; where no row has one there is
    none."""
    width = timedelta(seconds=answer["width_s"])
    frame = pd.DataFrame([part for bucket in answer["buckets"] for part in _stacked(bucket, width)])
    levels = [level for level in COLOURS if level in set(frame["level"])]
    has_severity = levels != [OTHER]
    span = [wall(datetime.fromisoformat(answer[edge])) for edge in ("from", "to")]
    domain = [edge.timestamp() * 1000 for edge in span]
    time_axis = alt.Axis(grid=False, tickCount=8, labelOverlap=True, format=_axis_format(span))
    drag = alt.selection_interval(name="drag", encodings=["x"])
    legend = alt.Legend(orient="top", title=None, symbolType="square", offset=4) if has_severity else None
    told = [alt.Tooltip("shown:N", title=f"from ({name()})"), alt.Tooltip("rows:Q", format=",")]
    if has_severity:
        told.insert(1, alt.Tooltip("level:N"))
    return (
        alt.Chart(frame)
        .mark_rect(clip=True)
        .encode(
            x=alt.X("start:T", title=None, scale=alt.Scale(type="utc", domain=domain), axis=time_axis),
            x2="end:T",
            y=alt.Y("low:Q", title=None, axis=alt.Axis(tickCount=3, domain=False, ticks=False, format="~s")),
            y2="high:Q",
            color=alt.Color(
                "level:N",
                scale=alt.Scale(domain=levels, range=[COLOURS[level] for level in levels]),
                legend=legend,
            ),
            tooltip=told,
        )
        .properties(height=HEIGHT_PX)
        .add_params(drag, alt.selection_point(name="bar", fields=["from", "until"]))
    )


def _axis_format(span: list[datetime]) -> str:
    length = span[1] - span[0]
    if length < timedelta(minutes=10):
        return "%H:%M:%S"
    if length <= timedelta(days=1):
        return "%H:%M"
    return "%d %b %H:%M" if length < timedelta(days=6) else "%d %b"
