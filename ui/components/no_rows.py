"""A search that found nothing: why that may be, and what to do about it, as sentences and as buttons."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import streamlit as st

from ui.components.message import empty
from ui.components.plain_text import code, plain
from ui.url_state import SearchState

WIDER = "now-30d"
AROUND = timedelta(hours=1)


def show(state: SearchState, answer: dict[str, Any], open_search: Callable[[SearchState], None]) -> None:
    """Says it. `open_search` is called with what a button stands for, before the page is drawn again."""
    newest = answer["freshness"]["newest_row"]
    if newest is None:
        empty("This stream has no rows yet.", "They appear after the next flush of ingestion.")
        return
    told = f"The newest row of this stream is of {code(newest)}."
    if state.query:
        empty("No row in this time range matches.", f"Choose a longer range, or fewer words. {told}")
    else:
        empty("No rows in this time range.", f"{told} Choose a longer time range.")
    anew = replace(state, pin="", row="")
    ways = {
        "Search the last 30 days": None
        if (state.from_, state.to) == (WIDER, "now")
        else replace(anew, from_=WIDER, to="now"),
        "Go to the newest row": around(anew, newest),
        "Leave the words out": replace(anew, query="") if state.query else None,
    }
    with st.container(horizontal=True):
        for label, wanted in ways.items():
            if wanted is not None:
                st.button(plain(label), key=f"instead-{label}", on_click=open_search, args=(wanted,))


def around(state: SearchState, newest: str) -> SearchState:
    """The search of every row in the hour that ends with this one."""
    last = datetime.fromisoformat(newest)
    begin, end = (f"{moment:%Y-%m-%dT%H:%M:%SZ}" for moment in (last - AROUND, last + timedelta(seconds=1)))
    return replace(state, query="", from_=begin, to=end)
