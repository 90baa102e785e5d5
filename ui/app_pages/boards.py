"""Boards: searches and statements side by side, over one range of time."""

from collections.abc import Iterator
from time import monotonic
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from ui.api_client import ApiError, api
from ui.components import auto_refresh, board_editing, board_store, tile, tiles_asked, time_range
from ui.components.message import empty, show_error
from ui.components.plain_text import plain
from ui.components.stream_choice import choose_tenant, tenant_names

TENANT = "tenant-of-boards"
WIDTHS = {"small": 2, "medium": 3, "large": 6}
WHOLE = 6
# The answers of a board, by the places of its tiles; taken away to ask anew.
KEPT = "tiles"
NOTHING_YET = (
    "Make one here, or choose “Add to board” beside the answer of a search or a statement. `python -m query "
    "boards apply TENANT FILE` keeps one from a file."
)


def show() -> None:
    """The page."""
    st.title("Boards")
    _open_address()
    places = st.columns([2, 3, 2, 1.2, 1.2], vertical_alignment="bottom")
    try:
        _check_tenant()
        tenant = choose_tenant(places[0], "boards")
        if tenant is None:
            return
        titles = board_store.titles_of(tenant, str(st.session_state.get(_key(tenant), "")))
        with places[4]:
            board_editing.new(tenant, list(titles), _key(tenant))
        if not titles:
            empty(f"{plain(tenant)} has no boards.", NOTHING_YET)
            return
        _check_known(tenant, titles)
        name = str(
            places[1].selectbox(
                "Board", list(titles), key=_key(tenant), format_func=lambda each: titles[each]
            )
        )
        kept = board_store.board_of(tenant, name)
    except ApiError as error:
        show_error(error)
        return
    board = kept["board"]
    _begin(tenant, name, board)
    with places[2]:
        time_range.choose()
    with places[3]:
        board_editing.edit(tenant, kept)
    if _is_typed():
        time_range.type_in()
    _keep_in_address(tenant, name, board)
    with st.container(horizontal=True, horizontal_alignment="right", vertical_alignment="center"):
        st.button("Ask anew", icon=":material/refresh:", on_click=_forget)
        auto_refresh.offer(KEPT, board["refresh_s"] or auto_refresh.EVERY_S)
    board_editing.told()
    if not board["tiles"]:
        empty("This board has no tiles.", NOTHING_YET)
    _tiles(tenant, kept)
    auto_refresh.begin_anew()


def _key(tenant: str) -> str:
    return f"board-of-{tenant}"


def _open_address() -> None:
    """Takes the board and the range of an address that was opened."""
    params = dict(st.query_params)
    if not params.get("board"):  # another page was open before, and has chosen a range of its own
        st.session_state["board_open"] = None
        return
    if st.session_state.get("board_address") == params:
        return
    st.session_state["board_address"] = params
    tenant = params.get("tenant", "")
    st.session_state[TENANT] = tenant
    st.session_state[_key(tenant)] = params["board"]
    if params.get("from") and params.get("to"):
        st.session_state["board_range"] = (params["from"], params["to"])
    st.session_state["board_open"] = None


def _check_tenant() -> None:
    """Asks anew for a tenant that an address names and nobody has seen yet. Raises ApiError."""
    wanted = str(st.session_state.get(TENANT, ""))
    if wanted and wanted not in tenant_names(wanted):
        st.warning(
            f"There is no tenant “{plain(wanted)}” that you can see; the link may be old, or meant for "
            "another key.",
            icon=":material/warning:",
        )


def _check_known(tenant: str, titles: dict[str, str]) -> None:
    """The first board where the one that is asked for is not there."""
    wanted = st.session_state.get(_key(tenant))
    if wanted in titles:
        return
    if wanted and st.query_params.get("board") == wanted:
        st.warning(
            f"There is no board “{plain(wanted)}” that you can see; it may be deleted.",
            icon=":material/warning:",
        )
    st.session_state[_key(tenant)] = next(iter(titles))


def _begin(tenant: str, name: str, board: dict[str, Any]) -> None:
    """A board that is opened begins with the range of the address, or with its own."""
    if st.session_state.get("board_open") == (tenant, name):
        return
    start, end = st.session_state.pop("board_range", (board["from"], board["to"]))
    st.session_state.update({"from": start, "to": end, "typing": False, "pin": ""})
    st.session_state.update(board_open=(tenant, name), refresh=board["refresh_s"] is not None)
    _forget()


def _is_typed() -> bool:
    label = time_range.label_of(st.session_state["from"], st.session_state["to"])
    return label == time_range.TYPED or bool(st.session_state.get("typing"))


def _keep_in_address(tenant: str, name: str, board: dict[str, Any]) -> None:
    params = {"tenant": tenant, "board": name}
    range_ = {"from": st.session_state["from"], "to": st.session_state["to"]}
    if range_ != {"from": board["from"], "to": board["to"]}:
        params |= range_
    st.session_state["board_address"] = params
    st.query_params.from_dict(params)


def _forget() -> None:
    st.session_state.pop(KEPT, None)


# ---- tiles


def _tiles(tenant: str, kept: dict[str, Any]) -> None:
    """Side by side, as many as have room; on a narrow screen one below the other. Each is drawn when its
    answer has come."""
    tiles = kept["board"]["tiles"]
    range_ = (st.session_state["from"], st.session_state["to"])
    asked = st.session_state.setdefault(KEPT, {})
    tiles_asked.begin(asked, api(), tenant, tiles, range_)
    slots = list[DeltaGenerator]()
    for line in _lines(tiles):
        widths = [WIDTHS[tiles[at]["size"]] for at in line]
        places = st.columns([*widths, *([WHOLE - sum(widths)] if sum(widths) < WHOLE else [])])
        for place, at in zip(places, line, strict=False):
            with place.container(border=True):
                with st.container(
                    horizontal=True, horizontal_alignment="distribute", vertical_alignment="center"
                ):
                    st.markdown(f"**{plain(tiles[at]['title'])}**")
                    _change(tenant, kept, at, tile.address(tenant, tiles[at], range_))
                slots.append(st.empty())
    waiting, began_s = set(range(len(tiles))), monotonic()
    for come in tiles_asked.as_they_come(asked, len(tiles)):
        waiting -= set(come)
        for at in come:
            with slots[at].container():
                tile.show(tiles[at], asked[at].answer.result, str(at))
        for at in waiting:
            slots[at].caption(f"Asking … {monotonic() - began_s:.0f} s")


def _lines(tiles: list[dict[str, Any]]) -> Iterator[list[int]]:
    line, width = list[int](), 0
    for at, each in enumerate(tiles):
        if line and width + WIDTHS[each["size"]] > WHOLE:
            yield line
            line, width = [], 0
        line.append(at)
        width += WIDTHS[each["size"]]
    if line:
        yield line


def _change(tenant: str, kept: dict[str, Any], at: int, address: str) -> None:
    """What can be done with a tile."""
    tiles = kept["board"]["tiles"]
    one, rest = tiles[at], [*tiles[:at], *tiles[at + 1 :]]

    def write(changed: list[dict[str, Any]]) -> None:
        board_editing.change(tenant, kept, {"tiles": changed})

    def resize() -> None:
        write([*tiles[:at], {**one, "size": st.session_state[f"size-{at}"]}, *tiles[at + 1 :]])

    with st.popover("Tile", type="tertiary", icon=":material/more_horiz:"):
        st.link_button("Open", address, icon=":material/open_in_new:", width="stretch")
        st.button(
            "Earlier",
            icon=":material/arrow_upward:",
            key=f"earlier-{at}",
            width="stretch",
            disabled=not at,
            on_click=write,
            args=(_moved(rest, one, at - 1),),
        )
        st.button(
            "Later",
            icon=":material/arrow_downward:",
            key=f"later-{at}",
            width="stretch",
            disabled=at == len(rest),
            on_click=write,
            args=(_moved(rest, one, at + 1),),
        )
        st.session_state[f"size-{at}"] = one["size"]
        st.segmented_control("Size", board_store.SIZES, key=f"size-{at}", on_change=resize, required=True)
        st.button(
            "Remove",
            icon=":material/delete:",
            key=f"remove-{at}",
            width="stretch",
            on_click=write,
            args=(rest,),
        )


def _moved(rest: list[dict[str, Any]], one: dict[str, Any], to: int) -> list[dict[str, Any]]:
    return [*rest[: max(0, to)], one, *rest[max(0, to) :]]
