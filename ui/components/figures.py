"""What a statement or a pipe gave: as a table, bars, lines or one large figure, and as a file."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import pandas as pd
import streamlit as st

from ui.components.plain_text import plain
from ui.components.spreadsheet import to_csv

HEIGHT_PX = 320
GROUPS_MAX = 30  # of bars side by side; of lines a third, each with a colour that can be told apart
LINES_MAX = 10
TABLE, BARS, LINES, FIGURE = "Table", "Bars", "Lines", "Figure"
# Beside a chart names take half of a narrow screen, above it there is room for two columns of them; hours are
# those of the histogram.
ABOVE = alt.Legend(orient="top", columns=2, labelLimit=130, symbolLimit=LINES_MAX)
TIME_AXIS = alt.Axis(
    tickCount=8,
    grid=False,
    labelOverlap=True,
    format={"hours": "%H:%M", "minutes": "%H:%M", "seconds": "%H:%M:%S", "date": "%d %b", "month": "%b %Y"},
)
_TIMES = ("timestamp", "date")


def show(columns: Sequence[dict[str, str]], rows: Sequence[Sequence[Any]], key: str) -> None:
    """Draws rows of these columns (`name`, `type`) as the person chooses. `key`: of the choice."""
    figures = _Figures.of(columns, rows)
    ways = figures.ways
    with st.container(horizontal=True, vertical_alignment="center"):
        way = (
            st.segmented_control(
                "Shown as", ways, default=TABLE, key=key, label_visibility="collapsed", required=True
            )
            if len(ways) > 1
            else TABLE
        )
        csv = to_csv(figures.frame)
        st.download_button("As CSV", csv, "answer.csv", "text/csv", icon=":material/download:")
    figures.draw(way)


def draw(columns: Sequence[dict[str, str]], rows: Sequence[Sequence[Any]], way: str) -> None:
    """Draws them in one way; as a table where it makes no sense of them."""
    figures = _Figures.of(columns, rows)
    figures.draw(way if way in figures.ways else TABLE)


@dataclass(frozen=True)
class _Figures:
    """Rows under names of their own, and which columns are times and numbers."""

    frame: pd.DataFrame
    times: Sequence[str]
    numbers: Sequence[str]

    @classmethod
    def of(cls, columns: Sequence[dict[str, str]], rows: Sequence[Sequence[Any]]) -> "_Figures":
        names = [column["name"] for column in columns]
        unique = [name if names.index(name) == at else f"{name} ({at + 1})" for at, name in enumerate(names)]
        frame = pd.DataFrame([list(row) for row in rows], columns=unique)
        times = [name for name, each in zip(unique, columns, strict=True) if each["type"].startswith(_TIMES)]
        numbers = [
            name for name in unique if name not in times and pd.api.types.is_numeric_dtype(frame[name])
        ]
        return cls(frame, times, numbers)

    @property
    def ways(self) -> list[str]:
        """The choices that make sense of what there is."""
        if not self.numbers or self.frame.empty:
            return [TABLE]
        if len(self.frame) == 1:
            return [TABLE, FIGURE] if len(self.numbers) <= 6 else [TABLE]
        others = len(self.frame.columns) - len(self.numbers)
        return [TABLE, *([BARS] if others else []), *([LINES] if self.times else [])]

    def draw(self, way: str) -> None:
        if way == FIGURE:
            for place, name in zip(st.columns(len(self.numbers)), self.numbers, strict=True):
                place.metric(plain(name), f"{self.frame[name].iloc[0]:,}")
        elif way in (BARS, LINES):
            _chart(self.frame, self.times, self.numbers, is_lines=way == LINES)
        else:
            st.dataframe(self.frame, hide_index=True, width="stretch")


def _chart(frame: pd.DataFrame, times: Sequence[str], numbers: Sequence[str], *, is_lines: bool) -> None:
    """The first number over the first time, or over the first text; by colour where there is another text.

    Columns are renamed: what people call theirs means something in Vega's expressions and tooltips.
    """
    keys = [name for name in frame.columns if name not in numbers]
    across = times[0] if times else keys[0]
    split = next((name for name in keys if name != across), None)
    number = numbers[0]
    drawn = pd.DataFrame({"across": frame[across], "number": frame[number]})
    if times:
        drawn["across"] = pd.to_datetime(drawn["across"], utc=True)
    if split is not None:
        drawn["split"] = frame[split].map(_text)
    left_out = _largest_alone(drawn, "split" if split is not None else None if times else "across")
    mark = alt.Chart(drawn).mark_line(point=True) if is_lines else alt.Chart(drawn).mark_bar()
    axis = alt.Axis(labelLimit=160)
    chart = mark.encode(
        x=alt.X("across:T", title=None, scale=alt.Scale(type="utc"), axis=TIME_AXIS)
        if times
        else alt.X("across:N", title=_text(across), sort=None, axis=axis),
        y=alt.Y("number:Q", title=_text(number)),
        **({} if split is None else {"color": alt.Color("split:N", title=_text(split), legend=ABOVE)}),
    ).properties(height=HEIGHT_PX)
    st.altair_chart(chart, width="stretch")
    if left_out:
        st.caption(f"The largest are drawn; {left_out:,} others stand in the table.")


def _largest_alone(drawn: pd.DataFrame, by: str | None) -> int:
    """Leaves out, in place, all but the largest groups; how many these are."""
    if by is None:
        return 0
    drawn[by] = drawn[by].map(_text)
    sums = drawn.groupby(by)["number"].sum().sort_values(ascending=False)
    gone = set(sums.index[LINES_MAX if by == "split" else GROUPS_MAX :])
    drawn.drop(drawn.index[drawn[by].isin(gone)], inplace=True)
    return len(gone)


def _text(value: Any) -> str:
    return "(none)" if value is None or value != value else str(value)[:200]
