"""What is on the page becomes a tile of a board."""

from typing import Any

import streamlit as st

from ui.api_client import ApiError
from ui.components import board_store
from ui.components.message import show_error

NEW = ""
TITLE_CHARACTERS = 200


def show(tenant: str, asked: dict[str, Any], shown: str = "table") -> None:
    """The button. `asked`: what the tile asks (`query` and `stream`, or `sql`); `shown`: how it is drawn
    now."""
    with st.popover("Add to board", icon=":material/dashboard_customize:"):
        try:
            titles = board_store.titles_of(tenant)
        except ApiError as error:
            show_error(error)
            return
        if st.session_state.get("board_added_to", NEW) not in titles:
            st.session_state["board_added_to"] = next(iter(titles), NEW)
        st.selectbox(
            "Board",
            [*titles, NEW],
            key="board_added_to",
            format_func=lambda name: titles.get(name, "A new one"),
        )
        if st.session_state["board_added_to"] == NEW:
            st.text_input("Title of the board", key="board_title", max_chars=TITLE_CHARACTERS)
        st.text_input("Title of the tile", key="tile_title", max_chars=TITLE_CHARACTERS)
        # Not of the state of a chart's switch alone: a search without pipes has none.
        st.segmented_control(
            "Shown as", board_store.SHOWN, default=shown, key=f"tile_shown_{shown}", required=True
        )
        st.segmented_control("Size", board_store.SIZES, default="medium", key="tile_size", required=True)
        st.button(
            "Add",
            type="primary",
            width="stretch",
            disabled=not st.session_state["tile_title"].strip()
            or (st.session_state["board_added_to"] == NEW and not st.session_state["board_title"].strip()),
            on_click=_add,
            args=(tenant, asked, f"tile_shown_{shown}", list(titles)),
        )
        if told := st.session_state.pop("tile_added", None):
            if isinstance(told, ApiError):
                show_error(told)
            else:
                st.success("It is on the board.", icon=":material/check:")


def _add(tenant: str, asked: dict[str, Any], shown_key: str, taken: list[str]) -> None:
    state = st.session_state
    name, version = state["board_added_to"], 0
    tile = {
        "title": state["tile_title"].strip(),
        **asked,
        "shown": state[shown_key],
        "size": state["tile_size"],
    }
    try:
        if name == NEW:
            name = board_store.name_for(state["board_title"], taken)
            board: dict[str, Any] = {"title": state["board_title"].strip(), "tiles": [tile]}
        else:
            kept = board_store.board_of(tenant, name)
            board, version = kept["board"], kept["version"]
            board["tiles"].append(tile)
        board_store.keep(tenant, name, board, version)
    except ApiError as error:
        state["tile_added"] = error
        return
    state.update(tile_added=True, board_added_to=name, tile_title="")
