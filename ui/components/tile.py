"""One tile of a board: what it asks, over the board's range, and how it is drawn."""

from collections.abc import Callable
from typing import Any

import streamlit as st

from ui.api_client import ApiClient, ApiError
from ui.components import figures, histogram, result_table
from ui.components.message import show_error
from ui.components.pipes import has_pipes
from ui.components.plain_text import plain
from ui.components.sql_range import with_range
from ui.components.wording import count
from ui.url_state import SearchState, address_of, to_params

ROWS_MAX = 1_000
SEARCH_ROWS = 10
_WAYS = {"bars": figures.BARS, "lines": figures.LINES, "figure": figures.FIGURE}


def show(tile: dict[str, Any], answered: Callable[[], dict[str, Any]], key: str) -> None:
    """Draws a tile with what was `answered`, or why nothing was. `key`: of the tile on its board."""
    try:
        answer = answered()
    except ApiError as error:
        show_error(error, "" if "sql" in tile else tile["query"])
        return
    _missing(answer)
    _draw(tile, answer, key)


def address(tenant: str, tile: dict[str, Any], range_: tuple[str, str]) -> str:
    """The page that asks the same."""
    if "sql" in tile:
        statement = with_range(tile["sql"], *range_) or tile["sql"]
        return address_of("sql", [("tenant", tenant), ("q", statement)])
    stream = tile.get("stream", "logs")
    return address_of("", to_params(SearchState(tenant, stream, tile["query"], *range_)).items())


def ask(client: ApiClient, tenant: str, tile: dict[str, Any], range_: tuple[str, str]) -> dict[str, Any]:
    """A tile's answer. Raises ApiError. Knows nothing of the page, so that any thread may ask."""
    if "sql" in tile:
        statement = with_range(tile["sql"], *range_)
        if statement is None:
            raise ApiError(0, "The range of the board is none that a statement can be given.")
        return client.post("/sql", {"sql": statement, "tenant": tenant, "limit": ROWS_MAX})
    body = {
        "tenant": tenant,
        "stream": tile.get("stream", "logs"),
        "query": tile["query"],
        "from": range_[0],
        "to": range_[1],
    }
    if has_pipes(tile["query"]):
        return client.post("/pipe", {**body, "limit": ROWS_MAX})
    if tile["shown"] == "table":
        return client.post("/search", {**body, "limit": SEARCH_ROWS})
    return client.post("/histogram", {**body, "by": "level"})


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
