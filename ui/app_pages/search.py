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
    kept_columns,
    keyboard_map,
    no_rows,
    pipes,
    reader_zone,
    result_table,
    row_detail,
    row_history,
    saved_searches,
    search_answer,
    search_history,
    set_alert,
    several_streams,
    surroundings,
    time_range,
)
from ui.components.message import empty, show_error, show_warnings
from ui.components.plain_text import code, plain
from ui.components.running_search import RunningSearch, said
from ui.components.search_answer import PAGE_ROWS, rows_of
from ui.components.stream_choice import NOTHING_YET, first_with_streams, no_streams, streams_of, tenant_names
from ui.url_state import SearchState, from_params, link, parse_row_key, row_key, to_params

NO_WIDTH = 0.001
FIELDS = ("tenant", "stream", "query", "from_", "to", "pin", "row", "columns", "zone", "also")
LINK_LASTS = "Re-opens exactly these rows, also after more were written and files were merged."
LINK_EXPIRES = (
    "Re-opens exactly these rows for a while: changes replace rows of this stream, and its table keeps only "
    "its last snapshots."
)
LINK_OF_SEVERAL = (
    "Re-opens this search over the same time, with rows that came later, too. The link of a search of one "
    "stream re-opens exactly its rows."
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
    search_history.remember(state)
    if pipes.has_pipes(state.query):
        if len(_streams(state)) > 1:
            st.info(
                f"Pipes take one stream: this is of {code(state.stream)} alone.", icon=":material/stacks:"
            )
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
    kept_columns.keep(st.session_state["tenant"], st.session_state["stream"])
    _inputs(names, list(streams))
    if not streams:
        no_streams(st.session_state["tenant"])
        return False
    return True


def _inputs(names: Sequence[str], streams: Sequence[str]) -> None:
    places = st.columns([2, 1.6, 5, 2, 1.1], vertical_alignment="bottom")
    places[0].selectbox("Tenant", names, key="tenant", on_change=_other_stream)
    places[1].selectbox("Stream", streams, key="stream", on_change=_other_stream)
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


def _other_stream() -> None:
    st.session_state["also"] = ""
    _changed()


def _changed() -> None:
    st.session_state.update(pin="", row="", pages=1)


def _search(state: SearchState) -> dict[str, Any]:
    """Pages and histogram of a search, kept while nothing but the choice of a row or of columns changes."""
    key = replace(state, row="", columns="", zone="")
    kept = st.session_state.get("answer")
    if kept is None or kept["key"] != key:
        kept = search_answer.begun(key, _body(state), _streams(state))
        st.session_state["answer"] = kept
    if not kept["cancelled"]:
        running = RunningSearch(_columns(), kept["far"], _cancel)
        try:
            search_answer.fetch(kept, running, st.session_state.get("pages", 1))
        finally:
            running.end()
    return dict(kept)


def _streams(state: SearchState) -> list[str]:
    """Those that are searched, the one that was chosen first."""
    others = streams_of(state.tenant, state.stream)
    return [state.stream, *several_streams.chosen_of(state.also, [*others])]


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


def _cancel() -> None:
    """What was found stays on the page."""
    kept = st.session_state["answer"]
    kept["cancelled"] = True
    st.session_state["pages"] = max(1, len(kept["pages"]))


def _columns() -> list[str]:
    return [name for name in st.session_state["columns"].split(",") if name]


def _show_answer(state: SearchState, found: dict[str, Any]) -> None:
    answer, rows = search_answer.basis_of(found), [*rows_of(found["pages"]), *found["found"]]
    if found["cancelled"]:
        after, kept = plain(said(found["far"])), plain(_kept(found, rows))
        st.info(f"**Cancelled** after {after}. {kept}", icon=":material/stop_circle:")
    if answer is not None:
        _show_basis(state, found, answer)
    if rows:
        _show_rows(state, found, rows)
        return
    if answer is not None:
        no_rows.show(state, answer, _open)
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
    left, right = st.columns([1, 2], vertical_alignment="center")
    with left:
        basis.show(answer, None if counts is None else counts["rows"])
    with right.container(horizontal=True, horizontal_alignment="right", vertical_alignment="center"):
        auto_refresh.offer()
        several_streams.offer(state.stream, streams_of(state.tenant, state.stream), _changed)
        search_history.show(_open)
        saved_searches.show(state, _open)
        add_to_board.show(state.tenant, {"query": state.query, "stream": state.stream})
        set_alert.show(state.tenant, state.stream, state.query)
        export.show([{**found["body"], "stream": each} for each in _streams(state)])
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
        shortcut=keyboard_map.NARROW,
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
        with st.container(horizontal=True):
            if pages and pages[-1]["next"]:
                st.button(
                    f"Show {PAGE_ROWS} more",
                    icon=":material/expand_more:",
                    on_click=_more,
                    shortcut=keyboard_map.MORE,
                )
            keyboard_map.show()
            reader_zone.offer()
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
    if shown:
        return shown
    streams, failure = _streams(state), ApiError(404, "there is no such row")
    for stream in streams:
        try:
            row = api().get("/row", tenant=state.tenant, stream=stream, **where)
        except ApiError as error:  # of several streams it is in one
            failure = error
        else:
            return {**row, "stream": stream} if len(streams) > 1 else row
    show_error(failure)
    return None


def _show_row(state: SearchState, chosen: dict[str, Any]) -> None:
    st.subheader("Row", anchor=False)
    state = replace(state, stream=chosen.get("stream", state.stream))
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
        st.write(
            LINK_OF_SEVERAL if not answer["pin"] else LINK_EXPIRES if answer["pin_expires"] else LINK_LASTS
        )
        exact = replace(state, from_=answer["from"], to=answer["to"], pin=answer["pin"])
        st.code(link(st.context.url or "", exact), language=None, wrap_lines=True)


def _open(state: SearchState) -> None:
    kept_columns.take()
    state = replace(
        state, zone=state.zone or st.session_state.get("zone", "")
    )  # of the reader, not the search
    for name in FIELDS:
        st.session_state[name.rstrip("_")] = getattr(state, name)
    st.session_state.update(typing=False, pages=1)


def _narrow(start: str, end: str) -> None:
    st.session_state.update({"from": start, "to": end, "typing": True, "row": "", "pages": 1})


def _more() -> None:
    st.session_state["answer"].update(cancelled=False)
    st.session_state["answer"]["found"].clear()
    st.session_state["pages"] = st.session_state.get("pages", 1) + 1
