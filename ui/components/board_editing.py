"""A board is made, changed and deleted. What could not be written is told when the page is drawn again."""

from typing import Any

import orjson
import streamlit as st

from ui.api_client import ApiError
from ui.components import board_store
from ui.components.message import show_error

REFRESH = {
    "by hand": None,
    "every 10 seconds": 10,
    "every minute": 60,
    "every 5 minutes": 300,
    "every hour": 3_600,
}
AS_IT_IS = "as it is"
TITLE_CHARACTERS = 200


def new(tenant: str, taken: list[str], chosen: str) -> None:
    """The button for a new board. `chosen`: where in the session the chosen one's name is."""

    def make() -> None:
        title = st.session_state["new_board"].strip()
        name = board_store.name_for(title, taken)
        if _keep(tenant, name, {"title": title}, 0):
            st.session_state.update({chosen: name, "new_board": ""})

    with st.popover("New", icon=":material/add:", width="stretch"):
        title = st.text_input("Title of the new board", key="new_board", max_chars=TITLE_CHARACTERS)
        st.button("Make it", type="primary", width="stretch", disabled=not title.strip(), on_click=make)


def edit(tenant: str, kept: dict[str, Any]) -> None:
    """The button for title, range and refresh of a board, for its file, and for its end."""
    with st.popover("Edit", icon=":material/edit:", width="stretch"):
        _form(tenant, kept)
        _file(tenant, kept)
        is_sure = st.checkbox("The board may go", key=f"may-go-{kept['name']}")
        st.button(
            "Delete it",
            icon=":material/delete:",
            width="stretch",
            disabled=not is_sure,
            on_click=_delete,
            args=(tenant, kept["name"]),
        )


def change(tenant: str, kept: dict[str, Any], changed: dict[str, Any]) -> None:
    """Writes some parts of a board anew, over the version that is shown."""
    _keep(tenant, kept["name"], {**kept["board"], **changed}, kept["version"])


def told() -> None:
    """Why the last change was not made."""
    error = st.session_state.pop("board_told", None)
    if error is not None:
        show_error(error)


def _form(tenant: str, kept: dict[str, Any]) -> None:
    board = kept["board"]
    seconds = list(REFRESH.values())
    is_listed = board["refresh_s"] in seconds
    with st.form(f"board-{kept['name']}-{kept['version']}", border=False):
        title = st.text_input("Title", value=board["title"], max_chars=TITLE_CHARACTERS)
        refresh = st.selectbox(
            "Refreshed",
            [*REFRESH, *([] if is_listed else [AS_IT_IS])],
            index=seconds.index(board["refresh_s"]) if is_listed else len(seconds),
        )
        is_range = st.checkbox("Opens with the range that is chosen now")
        if st.form_submit_button("Save", type="primary", width="stretch"):
            changed = {"title": title.strip(), "refresh_s": REFRESH.get(refresh, board["refresh_s"])}
            if is_range:
                changed |= {"from": st.session_state["from"], "to": st.session_state["to"]}
            change(tenant, kept, changed)
            st.rerun()


def _file(tenant: str, kept: dict[str, Any]) -> None:
    """The board as `python -m query boards` reads and writes it."""

    def take() -> None:
        try:
            board = orjson.loads(st.session_state["board_file"])
        except orjson.JSONDecodeError as error:
            st.session_state["board_told"] = ApiError(0, f"What is pasted is no JSON: {error}.")
            return
        if not isinstance(board, dict):
            st.session_state["board_told"] = ApiError(0, "What is pasted is no board: an object with tiles.")
        elif _keep(tenant, kept["name"], board, kept["version"]):
            st.session_state.update(board_file="", board_open=None)

    text = orjson.dumps(kept["board"], option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    st.download_button(
        "As a file",
        text,
        f"{kept['name']}.json",
        "application/json",
        icon=":material/download:",
        width="stretch",
    )
    pasted = st.text_area("From a file", key="board_file", height=80, placeholder="paste its JSON")
    st.button("Take what is pasted", width="stretch", disabled=not pasted.strip(), on_click=take)


def _keep(tenant: str, name: str, board: dict[str, Any], version: int) -> bool:
    try:
        board_store.keep(tenant, name, board, version)
    except ApiError as error:
        st.session_state["board_told"] = error
        return False
    return True


def _delete(tenant: str, name: str) -> None:
    try:
        board_store.drop(tenant, name)
        st.query_params.clear()
    except ApiError as error:
        st.session_state["board_told"] = error
