"""Searches kept under a name: chosen from a list, kept, forgotten."""

from collections.abc import Callable
from urllib.parse import quote

import streamlit as st

from ui.api_client import ApiError, api
from ui.components.message import show_error
from ui.components.plain_text import plain
from ui.url_state import SearchState, from_params, to_params


def show(state: SearchState, open_search: Callable[[SearchState], None]) -> None:
    """The list behind a button. `open_search` is called with the one that is chosen, before the page is drawn
    again."""
    with st.popover("Saved", icon=":material/bookmark:"):
        try:
            kept = api().get("/saved-searches")["searches"]
        except ApiError as error:
            show_error(error)
            return
        if not kept:
            st.caption("No search is saved yet. Give this one a name to keep it.")
        for name, search in kept.items():
            button, forget = st.columns([5, 1], vertical_alignment="center")
            button.button(
                plain(name),
                key=f"open-{name}",
                on_click=open_search,
                args=(from_params(search["address"]),),
                width="stretch",
            )
            forget.button(
                "",
                icon=":material/delete:",
                key=f"forget-{name}",
                help="forget it",
                on_click=_forget,
                args=(name,),
            )
        name = st.text_input("Name", key="save_as", max_chars=100)
        st.button(
            "Save this search",
            type="primary",
            width="stretch",
            disabled=not name.strip(),
            on_click=_keep,
            args=(name.strip(), state),
        )


def _keep(name: str, state: SearchState) -> None:
    try:
        api().put(f"/saved-searches/{quote(name, safe='')}", {"address": to_params(state)})
    except ApiError as error:
        show_error(error)


def _forget(name: str) -> None:
    try:
        api().delete(f"/saved-searches/{quote(name, safe='')}")
    except ApiError as error:
        show_error(error)
