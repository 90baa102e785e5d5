"""A search while it runs: how far it is, the rows that it has found, and a button that ends it.

The script waits here, line by line. A click on any widget ends it at the next line, as does a browser that
leaves; that closes the connection, and so the API ends the engine.
"""

from collections.abc import Callable
from contextlib import closing
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from ui.api_client import ApiError, api
from ui.components import result_table
from ui.components.plain_text import plain
from ui.components.wording import count, size

BROKE_OFF = "The search broke off before its end. Search again."


class RunningSearch:
    """Draws in one place of the page, from the first line on: what is answered at once draws nothing.
    `columns`: of the table of rows. `far`: gets what was told last of how far it is."""

    def __init__(self, columns: list[str], far: dict[str, int], on_cancel: Callable[[], None]) -> None:
        self._place = st.empty()
        self._columns = columns
        self._far = far
        self._on_cancel = on_cancel
        self._line: tuple[DeltaGenerator, DeltaGenerator] | None = None
        self._rows = 0

    def ask(
        self,
        path: str,
        body: dict[str, Any],
        *,
        shown: list[dict[str, Any]],
        found: list[dict[str, Any]] | None = None,
    ) -> dict[str, Any]:
        """The answer of a path below /v1. Meanwhile `found` gets the rows that come, and the table has them
        after those that are `shown`; without it rows are only counted. Raises ApiError."""
        with closing(api().watch(path, body)) as told:
            for line in told:
                if "answer" in line:
                    return dict(line["answer"])
                if "rows" in line and found is not None:
                    found[line["at"] :] = line["rows"]
                rows = [*shown, *(found or ())]
                self._far.update(line.get("progress", {}))
                self._draw(rows, counting=found is None)
        raise ApiError(0, BROKE_OFF)

    def end(self) -> None:
        """Leaves nothing on the page."""
        self._place.empty()

    def _draw(self, rows: list[dict[str, Any]], *, counting: bool) -> None:
        if self._line is None:
            self._line = self._begin()
        bar, table = self._line
        doing = "Counting" if counting else f"{count(len(rows), 'row')} so far"
        if self._far:
            share = self._far["bytes"] / max(1, self._far["bytes_planned"])
            bar.progress(share, text=f"{plain(doing)}: {plain(said(self._far))}")
        if len(rows) > self._rows:
            self._rows = len(rows)
            result_table.preview(table, rows, self._columns)

    def _begin(self) -> tuple[DeltaGenerator, DeltaGenerator]:
        with self._place.container():
            with st.container(horizontal=True, vertical_alignment="center", key="running"):
                bar = st.progress(0.0)
                st.button("Cancel", icon=":material/stop_circle:", on_click=self._on_cancel)
            return bar, st.empty()


def said(far: dict[str, int]) -> str:
    """`12 of 80 files, 31 MB of 210 MB`."""
    return (
        f"{far['files']:,} of {count(far['files_planned'], 'file')}, "
        f"{size(far['bytes'])} of {size(far['bytes_planned'])}"
    )
