"""Searches with pipes behind them: what comes out of the last stage."""

from collections.abc import Callable
from typing import Any

import streamlit as st

from ui.api_client import ApiError, api
from ui.components import add_to_board, basis, figures, patterns
from ui.components.message import empty, show_error, show_warnings

ROWS_MAX = 1_000
SHOWN_AS = "piped-as"


def has_pipes(query: str) -> bool:
    """Whether a query has a pipe."""
    return len(before_pipes(query)) < len(query)


def before_pipes(query: str) -> str:
    """What stands before the first pipe, which is one outside of quotes, and not two, which are an OR."""
    at, quoted = 0, False
    while at < len(query):
        if query[at] == "\\":
            at += 1
        elif query[at] == '"':
            quoted = not quoted
        elif query[at] == "|" and not quoted:
            if query[at + 1 : at + 2] != "|":
                return query[:at]
            at += 1
        at += 1
    return query


def show(body: dict[str, Any], open_query: Callable[[str], None]) -> None:
    """Asks for what a search with pipes gives (`body` as the API takes it), once for each question, and draws
    it. `open_query` is called with a search that was chosen in it, before the page is drawn again."""
    kept = st.session_state.get("piped")
    if kept is None or kept["body"] != body:
        st.session_state.pop("piped", None)
        try:
            with st.spinner("Computing …", show_time=True):
                answer = api().post("/pipe", {**body, "limit": ROWS_MAX})
        except ApiError as error:
            show_error(error, body["query"])
            return
        kept = st.session_state["piped"] = {"body": body, "answer": answer}
    answer = kept["answer"]
    show_warnings(answer["warnings"])
    basis.warn(answer)
    left, right = st.columns(2, vertical_alignment="center")
    with left:
        basis.show(answer, len(answer["rows"]))
    with right.container(horizontal=True, horizontal_alignment="right"):
        shown = str(st.session_state.get(SHOWN_AS) or figures.TABLE).lower()
        asked = {"query": body["query"], "stream": body["stream"]}
        add_to_board.show(body["tenant"], asked, "table" if answer.get("sample") else shown)
    if answer["more"]:
        st.warning(
            f"These are the first {len(answer['rows']):,} rows. Group by less, or end with `top` or `limit`.",
            icon=":material/hourglass_top:",
        )
    if not answer["rows"]:
        empty("Nothing came out of the last stage.", "Choose a longer range, or take a stage away.")
        return
    if answer.get("sample") is not None:
        patterns.show(answer, before_pipes(body["query"]).strip(), open_query)
        return
    figures.show(answer["columns"], answer["rows"], key=SHOWN_AS)
