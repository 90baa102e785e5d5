"""The searches of this browser session, the newest first: one is opened again as it was asked."""

from collections.abc import Callable
from dataclasses import replace

import streamlit as st

from ui.components.plain_text import plain
from ui.components.several_streams import SEPARATOR
from ui.components.time_range import TYPED, label_of
from ui.url_state import SearchState

KEPT = 20
QUERY_CHARACTERS = 60


def remember(state: SearchState) -> None:
    """Keeps a search that was asked. The same one again moves to the front; a choice of a row or of columns
    makes no other."""
    kept: list[SearchState] = st.session_state.setdefault("history", [])
    asked = replace(state, row="")
    kept[:] = [asked, *(each for each in kept if _question(each) != _question(asked))][:KEPT]


def show(open_search: Callable[[SearchState], None]) -> None:
    """The list behind a button. `open_search` is called with the one that is chosen, before the page is drawn
    again."""
    with st.popover("History", icon=":material/history:"):
        before = st.session_state.get("history", [])[1:]
        if not before:
            st.caption("Searches that you ask are listed here until you close this page.")
        for at, state in enumerate(before):
            st.button(
                plain(said(state)), key=f"history-{at}", on_click=open_search, args=(state,), width="stretch"
            )


def said(state: SearchState) -> str:
    """A search as one line of text."""
    query = " ".join(state.query.split())
    words = query[:QUERY_CHARACTERS] + ("…" if len(query) > QUERY_CHARACTERS else "")
    when = label_of(state.from_, state.to)
    if when == TYPED:
        when = f"{state.from_[:19]} – {state.to[:19]}"
    streams = ", ".join(each for each in (state.stream, *state.also.split(SEPARATOR)) if each)
    return f"{words or 'every row'} · {state.tenant} / {streams} · {when}"


def _question(state: SearchState) -> SearchState:
    return replace(state, columns="", zone="")
