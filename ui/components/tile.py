"""One tile of a board: it asks for itself, over the board's range, and is drawn in the way that it says."""

from typing import Any

import streamlit as st

from ui.api_client import ApiError, api
from ui.components import figures, histogram, result_table
from ui.components.message import show_error
from ui.components.pipes import has_pipes
from ui.components.plain_text import plain
from ui.components.sql_range import with_range
from ui.components.wording import count
from ui.url_state import SearchState, address_of, to_params

ROWS_MAX = 1_000
SEARCH_ROWS = 10
# The answers of a board, by tile; taken away to ask anew.
KEPT = "tiles"
_WAYS = {"bars": figures.BARS, "lines": figures.LINES, "figure": figures.FIGURE}


def show(tenant: str, tile: dict[str, Any], range_: tuple[str, str], key: str) -> None:
    """Draws a tile with its answer, which is asked for where it is not kept. `key`: of the tile on its
    board."""
    asked = (tenant, tile, range_)
    kept = st.session_state.setdefault(KEPT, {})
    if key not in kept or kept[key]["asked"] != asked:
        try:
            with st.spinner("Asking …", show_time=True):
                kept[key] = {"asked": asked, "answer": _answer(tenant, tile, range_)}
        except ApiError as error:
            kept[key] = {"asked": asked, "error": error}
    if "error" in kept[key]:
        show_error(kept[key]["error"], "" if "sql" in tile else tile["query"])
        return
    answer = kept[key]["answer"]
    _missing(answer)
    _draw(tile, answer, key)


def address(tenant: str, tile: dict[str, Any], range_: tuple[str, str]) -> str:
    """The page that asks the same."""
    if "sql" in tile:
        statement = with_range(tile["sql"], *range_) or tile["sql"]
        return address_of("sql", [("tenant", tenant), ("q", statement)])
    stream = tile.get("stream", "logs")
    return address_of("", to_params(SearchState(tenant, stream, tile["query"], *range_)).items())


def _answer(tenant: str, tile: dict[str, Any], range_: tuple[str, str]) -> dict[str, Any]:
    """Raises ApiError."""
    if "sql" in tile:
        statement = with_range(tile["sql"], *range_)
        if statement is None:
            raise ApiError(0, "The range of the board is none that a statement can be given.")
        return api().post("/sql", {"sql": statement, "tenant": tenant, "limit": ROWS_MAX})
    body = {
        "tenant": tenant,
        "stream": tile.get("stream", "logs"),
        "query": tile["query"],
        "from": range_[0],
        "to": range_[1],
    }
    if has_pipes(tile["query"]):
        return api().post("/pipe", {**body, "limit": ROWS_MAX})
    if tile["shown"] == "table":
        return api().post("/search", {**body, "limit": SEARCH_ROWS})
    return api().post("/histogram", {**body, "by": "level"})


def _draw(tile: dict[str, Any], answer: dict[str, Any], key: str) -> None:
    if "buckets" in answer:
        if tile["shown"] == "figure" or not answer["rows"]:
            st.metric("Rows", f"{answer['rows']:,}", label_visibility="collapsed")
        else:
            histogram.show(answer, key=f"tile-{key}-{answer['from']}-{answer['to']}")
    elif not answer["rows"]:
        st.caption("Nothing in this range.")
    elif "columns" in answer:
        figures.draw(answer["columns"], answer["rows"], _WAYS.get(tile["shown"], figures.TABLE))
    else:
        result_table.preview(st.container(), answer["rows"], [])


def _missing(answer: dict[str, Any]) -> None:
    """A line where rows are missing, or may be."""
    if not answer.get("as_usual", answer["complete"]):
        st.caption(f":material/hourglass_top: Not complete: {plain(' '.join(answer['reasons']))}")
    elif answer.get("more"):
        st.caption(f"The first {count(len(answer['rows']), 'row')}.")
