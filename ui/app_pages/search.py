"""Search: a tenant, a stream, a time range, words; a histogram, rows, and one row in full."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import streamlit as st

from ui.api_client import ApiError, api
from ui.components import (
    add_to_board,
    auto_refresh,
    basis,
    export,
    field_list,
    histogram,
    pipes,
    result_table,
    row_detail,
    row_history,
    saved_searches,
    surroundings,
    time_range,
)
from ui.components.message import empty, show_error, show_warnings
from ui.components.plain_text import code, plain
from ui.components.running_search import RunningSearch, said
from ui.components.stream_choice import NOTHING_YET, first_with_streams, no_streams, streams_of, tenant_names
from ui.url_state import SearchState, from_params, link, parse_row_key, row_key, to_params

PAGE_ROWS = 100
NO_WIDTH = 0.001
FIELDS = ("tenant", "stream", "query", "from_", "to", "pin", "row", "columns")
LINK_LASTS = "Re-opens exactly these rows, also after more were written and files were merged."
LINK_EXPIRES = (
    "Re-opens exactly these rows for a while: changes replace rows of this stream, and its table keeps only "
    "its last snapshots."
)
SYNTAX = """
| write | to find |
|---|---|
| `refused` | the word, in any field |
| `"connection refused"` | words side by side |
| `status:500` | a value in one field |
| `conn*` `10.0.?.1` | any characters, one character |
| `status:[400 TO 499]` `bytes:>=1024` | ranges; `{ }` leave the ends out |
| `user:*` `_errors:*` | the field has a value |
| `a b` `a OR b` `NOT a` `-a` `( )` | both, either, not |
| `error \\| stats count() by host, bucket(5m)` | figures; also `top`, `extract`, `where`, `sort`, `limit` |
| `error \\| patterns` | messages that differ in values alone, as one |
"""


def show() -> None:
    """The page."""
    _load_state()
    if not _choose_stream():
        return
    state = _state()
    st.query_params.from_dict(to_params(state))
    if pipes.has_pipes(state.query):
        pipes.show(_body(state), lambda query: _open(replace(state, query=query)))
        return
    try:
        with st.spinner("Searching …", show_time=True):
            found = _search(state)
    except ApiError as error:
        show_error(error, state.query)
        return
    _show_answer(state, found)


def _load_state() -> None:
    """An address that was opened wins over what this session did before."""
    params = dict(st.query_params)
    if st.session_state.get("address") != params or "from" not in st.session_state:
        _open(from_params(params))


def _state() -> SearchState:
    state = SearchState(**{name: st.session_state.get(name.rstrip("_"), "") for name in FIELDS})
    st.session_state["address"] = to_params(state)
    return state


def _choose_stream() -> bool:
    """The row of inputs. False: there is nothing to search yet."""
    try:
        wanted = st.session_state["tenant"]
        names = tenant_names(wanted)
        if not names:
            empty("There are no logs yet.", NOTHING_YET)
            return False
        if wanted not in names:
            if wanted:
                st.warning(
                    f"There is no tenant “{plain(wanted)}” that you can see; the link may be old, or meant "
                    "for another key.",
                    icon=":material/warning:",
                )
            st.session_state["tenant"] = first_with_streams(names)
        streams = streams_of(st.session_state["tenant"], st.session_state["stream"])
    except ApiError as error:
        show_error(error)
        return False
    if st.session_state["stream"] not in streams:
        st.session_state["stream"] = "logs" if "logs" in streams else next(iter(streams), "")
    _inputs(names, list(streams))
    if not streams:
        no_streams(st.session_state["tenant"])
        return False
    return True


def _inputs(names: Sequence[str], streams: Sequence[str]) -> None:
    places = st.columns([2, 1.6, 5, 2, 1.1], vertical_alignment="bottom")
    places[0].selectbox("Tenant", names, key="tenant", on_change=_changed)
    places[1].selectbox("Stream", streams, key="stream", on_change=_changed)
    places[2].text_input(
        "Search",
        key="query",
        on_change=_changed,
        placeholder="words or field:value — empty: every row",
        help=SYNTAX,
    )
    with places[3]:
        time_range.choose()
    if places[4].button("Search", type="primary", width="stretch"):
        st.session_state.pop("answer", None)
        st.session_state.pop("piped", None)
        st.session_state["pages"] = 1
    if time_range.label_of(
        st.session_state["from"], st.session_state["to"]
    ) == time_range.TYPED or st.session_state.get("typing"):
        time_range.type_in()


def _changed() -> None:
    st.session_state.update(pin="", row="", pages=1)


def _search(state: SearchState) -> dict[str, Any]:
    """Pages and histogram of a search, kept while nothing but the choice of a row or of columns changes.
    `found`: rows of a page that was cancelled, `far`: how far it was; `uncounted`: why there is no
    histogram."""
    key = replace(state, row="", columns="")
    kept = st.session_state.get("answer")
    if kept is None or kept["key"] != key:
        kept = {"key": key, "body": _body(state), "pages": [], "found": [], "cancelled": False}
        kept |= {"counts": None, "uncounted": None, "far": {}}
        st.session_state["answer"] = kept
    if not kept["cancelled"]:
        running = RunningSearch(_columns(), kept["far"], _cancel)
        try:
            _fetch(kept, running)
        finally:
            running.end()
    return dict(kept)


def _body(state: SearchState) -> dict[str, Any]:
    """A search as the API takes it."""
    return {
        "tenant": state.tenant,
        "stream": state.stream,
        "query": state.query,
        "from": state.from_,
        "to": state.to,
        "pin": state.pin,
    }


def _fetch(kept: dict[str, Any], running: RunningSearch) -> None:
    """What is missing: the first page, the histogram, further pages. They all see the range and the rows that
    the first page saw, whatever is written meanwhile."""
    pages, found, wanted = kept["pages"], kept["found"], st.session_state.get("pages", 1)

    def next_page(**more: Any) -> None:
        body = {**kept["body"], "limit": PAGE_ROWS, **more}
        pages.append(running.ask("/search", body, shown=_rows_of(pages), found=found))
        found.clear()

    if not pages:
        next_page()
        kept["body"] |= {name: pages[0][name] for name in ("from", "to", "pin")}
    if kept["counts"] is None and kept["uncounted"] is None:
        body = {**kept["body"], "by": "level"}
        try:
            kept["counts"] = running.ask("/histogram", body, shown=_rows_of(pages))
        except ApiError as error:  # the rows are there all the same
            kept["uncounted"] = error
        auto_refresh.begin_anew()
    while len(pages) < wanted and pages[-1]["next"]:
        next_page(cursor=pages[-1]["next"])


def _cancel() -> None:
    """What was found stays on the page."""
    kept = st.session_state["answer"]
    kept["cancelled"] = True
    st.session_state["pages"] = max(1, len(kept["pages"]))


def _rows_of(pages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for page in pages for row in page["rows"]]


def _columns() -> list[str]:
    return [name for name in st.session_state["columns"].split(",") if name]


def _basis(found: dict[str, Any]) -> dict[str, Any] | None:
    """What page and histogram rest on together; None where not even a page is whole."""
    if not found["pages"]:
        return None
    first, counts = found["pages"][0], found["counts"]
    if counts is None:
        return dict(first)
    return {
        **counts,
        **{name: first[name] for name in ("pinned", "notes", "freshness")},
        "complete": first["complete"] and counts["complete"],
        "as_usual": first["as_usual"] and counts["as_usual"],
        "reasons": list(dict.fromkeys([*first["reasons"], *counts["reasons"]])),
        "took_ms": first["took_ms"] + counts["took_ms"],
    }


def _show_answer(state: SearchState, found: dict[str, Any]) -> None:
    answer, rows = _basis(found), [*_rows_of(found["pages"]), *found["found"]]
    if found["cancelled"]:
        after, kept = plain(said(found["far"])), plain(_kept(found, rows))
        st.info(f"**Cancelled** after {after}. {kept}", icon=":material/stop_circle:")
    if answer is not None:
        _show_basis(state, found, answer)
    if rows:
        _show_rows(state, found, rows)
        return
    if answer is not None:
        _nothing(state, answer)
    if chosen := _chosen(state, []):  # of a link, or of the search before
        _show_row(state, chosen)


def _kept(found: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    """What is left of a search that was cancelled."""
    if found["pages"] and found["counts"] is None:
        return "The rows were not counted."
    return "These are the rows that were found until then." if rows else "No row was found."


def _show_basis(state: SearchState, found: dict[str, Any], answer: dict[str, Any]) -> None:
    """What the answer rests on, what can be done with it, and the histogram."""
    counts = found["counts"]
    show_warnings(answer["warnings"])
    basis.warn(answer)
    left, right = st.columns(2, vertical_alignment="center")
    with left:
        basis.show(answer, None if counts is None else counts["rows"])
    with right.container(horizontal=True, horizontal_alignment="right", vertical_alignment="center"):
        auto_refresh.offer()
        saved_searches.show(state, _open)
        add_to_board.show(state.tenant, {"query": state.query, "stream": state.stream})
        export.show(found["body"])
        _link(state, answer)
    if counts is None:
        if found["uncounted"] is not None:
            show_error(found["uncounted"])
        return
    picked = histogram.show(counts, key=f"histogram-{counts['from']}-{counts['to']}")
    if picked and st.button(
        f"Narrow to {plain(picked[0])} – {plain(picked[1])}",
        icon=":material/zoom_in:",
        on_click=_narrow,
        args=picked,
    ):
        st.rerun()


def _show_rows(state: SearchState, found: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    """The fields, the table of rows, and the one that is chosen beside it, where it is seen without
    scrolling."""
    body, pages = found["body"], found["pages"]
    with st.expander("Fields", icon=":material/list:", expanded=bool(st.session_state.get("values_of"))):
        field_list.show(body)
    key = "rows-" + "-".join((state.tenant, state.stream, state.query, body["from"], body["to"]))

    def picked() -> None:
        at = result_table.position(key, len(rows))
        st.session_state["row"] = (
            "" if at is None else row_key(rows[at]["coordinates"], rows[at]["timestamp"])
        )

    chosen = _chosen(state, rows)
    # Always two columns: in another place the table would forget where it was scrolled to.
    left, right = st.columns([3, 2] if chosen else [1, NO_WIDTH], gap="small" if chosen else None)
    with left:
        result_table.show(rows, _columns(), key, on_select=picked)
        if (
            pages
            and pages[-1]["next"]
            and st.button(f"Show {PAGE_ROWS} more", icon=":material/expand_more:", on_click=_more)
        ):
            st.rerun()
        if chosen is None:
            st.caption("Choose a row to see all of it; by keyboard with the arrows and Shift+Space.")
    if chosen is not None:
        with right:
            _show_row(state, chosen)


def _chosen(state: SearchState, rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The row that the address names."""
    where = parse_row_key(state.row) if state.row else None
    if where is None:
        return None
    shown = next((row for row in rows if row_key(row["coordinates"], row["timestamp"]) == state.row), None)
    try:
        return shown or api().get("/row", tenant=state.tenant, stream=state.stream, **where)
    except ApiError as error:
        show_error(error)
        return None


def _show_row(state: SearchState, chosen: dict[str, Any]) -> None:
    st.subheader("Row", anchor=False)
    row_detail.show(chosen, on_filter=field_list.add_filter)
    _history(state, chosen)
    surroundings.offer(state, chosen, _open)


def _history(state: SearchState, row: dict[str, Any]) -> None:
    """The way to all changes of the row's key, where a stream has them."""
    found = row_history.history_of(state.tenant, state.stream, row, streams_of(state.tenant, state.stream))
    if found is not None:
        st.button("History of this row", icon=":material/history:", on_click=_open, args=(found,))


def _link(state: SearchState, answer: dict[str, Any]) -> None:
    """An address with absolute times and the pin: it re-opens exactly these rows."""
    with st.popover("Link", icon=":material/link:"):
        st.write(LINK_EXPIRES if answer["pin_expires"] else LINK_LASTS)
        exact = replace(state, from_=answer["from"], to=answer["to"], pin=answer["pin"])
        st.code(link(st.context.url or "", exact), language=None, wrap_lines=True)


def _open(state: SearchState) -> None:
    for name in FIELDS:
        st.session_state[name.rstrip("_")] = getattr(state, name)
    st.session_state.update(typing=False, pages=1)


def _narrow(start: str, end: str) -> None:
    st.session_state.update({"from": start, "to": end, "typing": True, "row": "", "pages": 1})


def _more() -> None:
    st.session_state["answer"].update(cancelled=False)
    st.session_state["answer"]["found"].clear()
    st.session_state["pages"] = st.session_state.get("pages", 1) + 1


def _nothing(state: SearchState, answer: dict[str, Any]) -> None:
    newest = answer["freshness"]["newest_row"]
    if newest is None:
        empty("This stream has no rows yet.", "They appear after the next flush of ingestion.")
    elif state.query:
        empty(
            "No row in this time range matches.",
            f"Choose a longer range, or fewer words. The newest row of this stream is of {code(newest)}.",
        )
    else:
        empty(
            "No rows in this time range.",
            f"The newest row of this stream is of {code(newest)}. Choose a longer time range.",
        )
