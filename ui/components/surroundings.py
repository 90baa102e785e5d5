"""From a row to the rows around it: of its stream, its host, its service or its trace, and to all rows of its
trace in every stream of the tenant."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import streamlit as st

from ui.api_client import ApiError, api
from ui.components import result_table
from ui.components.field_list import filter_text, quoted
from ui.components.message import show_error
from ui.components.plain_text import plain
from ui.components.stream_choice import streams_of
from ui.components.wording import count
from ui.url_state import SearchState, parse_row_key, row_key

# Which columns say it, as shippers call them; the first one that a row has is taken.
SCOPES = {
    "host": "host hostname host_name host_hostname _hostname kubernetes_host node instance machine",
    "service": (
        "service service_name app application app_name appname program container_name "
        "kubernetes_container_name syslog_identifier"
    ),
    "trace": "trace_id traceid trace otel_trace_id dd_trace_id correlation_id request_id",
}
ICONS = {"host": ":material/dns:", "service": ":material/deployed_code:", "trace": ":material/route:"}
EACH_WAY = (8, 50, 200)
TRACE_LASTS = timedelta(hours=1)
FRESH = timedelta(minutes=1)  # what is known of streams may be so old
TRACE_STREAMS_MAX = 30
TRACE_ROWS_MAX = 200  # of one stream
MARK, MARKED = "●", " "
IS_DONE = "around-is-done"
CHOOSE = "It is marked; choose another one to open it."


@dataclass(frozen=True, slots=True)
class Scope:
    """Rows that have this value in this field."""

    name: str
    field: str
    value: str

    @property
    def query(self) -> str:
        """Finds them."""
        return filter_text(self.field, self.value, "")

    @property
    def query_anywhere(self) -> str:
        """Finds the value in whatever field of text, too."""
        return f"{quoted(self.value)} OR {self.query}"


def scopes_of(row: Mapping[str, Any]) -> list[Scope]:
    """What a row says about where it comes from."""
    found = []
    for name, fields in SCOPES.items():
        field = next((each for each in fields.split() if row["fields"].get(each) not in (None, "")), None)
        if field is not None:
            found.append(Scope(name, field, str(row["fields"][field])))
    return found


def offer(state: SearchState, row: dict[str, Any], on_open: Callable[[SearchState], None]) -> None:
    """A button for each way to look around a row. `on_open` is called with a search that shows a row that was
    chosen there."""
    scopes = scopes_of(row)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption("Before and after", width="content")
        if st.button("in its stream", icon=":material/unfold_more:"):
            _around(state, row, None, on_open)
        for scope in scopes:
            what = f"Rows before and after it with {plain(scope.field)} {plain(scope.value)}"
            if st.button(f"in its {plain(scope.name)}", icon=ICONS[scope.name], help=what):
                _around(state, row, scope, on_open)
        for scope in scopes:
            if scope.name == "trace" and st.button("Whole trace", icon=":material/account_tree:"):
                _trace(state, row, scope, on_open)


@st.dialog("Before and after", width="large")
def _around(
    state: SearchState, row: dict[str, Any], scope: Scope | None, on_open: Callable[[SearchState], None]
) -> None:
    _close_if_done()
    each_way = st.segmented_control("Rows each way", EACH_WAY, default=EACH_WAY[0], required=True)
    where = parse_row_key(row_key(row["coordinates"], row["timestamp"])) or {}
    wanted = {"before": each_way, "after": each_way, "query": "" if scope is None else scope.query}
    try:
        found = api().get("/context", tenant=state.tenant, stream=state.stream, **wanted, **where)
    except ApiError as error:
        show_error(error)
        return
    rows, at = found["rows"], found["at"]
    of = "of this stream" if scope is None else f"with {plain(scope.field)} {plain(scope.value)}"
    st.caption(f"{count(at, 'row')} before it and {len(rows) - at - 1:,d} after it, {of}. {CHOOSE}")
    lead = {MARKED: [MARK if each == at else "" for each in range(len(rows))]}
    _choose(rows, lead, lambda chosen: on_open(_opened(state, state.stream, rows[chosen])))


@st.dialog("Whole trace", width="large")
def _trace(
    state: SearchState, row: dict[str, Any], scope: Scope, on_open: Callable[[SearchState], None]
) -> None:
    _close_if_done()
    try:
        found = trace_rows(state.tenant, row, scope)
    except ApiError as error:
        show_error(error)
        return
    for stream, failure in found.errors.items():
        st.caption(f"Stream {plain(stream)} could not be searched:")
        show_error(failure)
    for stream in found.cut:
        st.caption(f"Of stream {plain(stream)} the first {TRACE_ROWS_MAX:,d} rows are shown.")
    if found.left_out:
        st.warning(
            f"{count(found.left_out, 'stream')} of this tenant were not searched; search them one by one."
        )
    streams = count(len(set(found.streams)), "stream")
    rows = count(len(found.rows), "row")
    st.caption(
        f"{rows} of {streams} with {plain(scope.value)}, from an hour before the row to an hour after it. "
        f"{CHOOSE}"
    )
    here = row_key(row["coordinates"], row["timestamp"])
    marks = [
        MARK if stream == state.stream and row_key(each["coordinates"], each["timestamp"]) == here else ""
        for stream, each in zip(found.streams, found.rows, strict=True)
    ]
    around = replace(state, query=scope.query_anywhere, from_=found.start, to=found.end, pin="")
    _choose(
        found.rows,
        {MARKED: marks, "stream": found.streams},
        lambda chosen: on_open(_opened(around, found.streams[chosen], found.rows[chosen])),
    )


def _close_if_done() -> None:
    """Draws the page without the dialog where a row was chosen in it."""
    if st.session_state.pop(IS_DONE, False):
        st.rerun()


def _opened(state: SearchState, stream: str, row: Mapping[str, Any]) -> SearchState:
    """A search with one row opened beside its answer."""
    return replace(state, stream=stream, row=row_key(row["coordinates"], row["timestamp"]))


def _choose(rows: list[dict[str, Any]], lead: dict[str, list[str]], on_pick: Callable[[int], None]) -> None:
    """The rows as a table; one that is chosen is opened, and the dialog closes."""
    key = f"around-{len(rows)}"

    def picked() -> None:
        at = result_table.position(key, len(rows))
        if at is not None:
            on_pick(at)
            st.session_state[IS_DONE] = True

    result_table.show(rows, [], key, on_select=picked, lead=lead)


@dataclass(frozen=True, slots=True)
class TraceRows:
    """The rows of a trace from `start` to `end`, oldest first, each with its stream. `cut`: streams that have
    more of them; `left_out`: how many streams were not searched; `errors`: of those whose search failed."""

    start: str
    end: str
    rows: list[dict[str, Any]]
    streams: list[str]
    cut: list[str]
    left_out: int
    errors: dict[str, ApiError]


def trace_rows(tenant: str, row: Mapping[str, Any], scope: Scope) -> TraceRows:
    """Searches the streams of a tenant that have rows around a row for its trace, in whatever field it stands
    there. Raises ApiError."""
    at = datetime.fromisoformat(row["timestamp"])
    start, end = (moment.isoformat() for moment in (at - TRACE_LASTS, at + TRACE_LASTS))
    names = [name for name, about in streams_of(tenant).items() if _reaches(about, at)]
    found, errors = list[tuple[str, dict[str, Any]]](), dict[str, ApiError]()
    cut = list[str]()
    body = {
        "tenant": tenant,
        "query": scope.query_anywhere,
        "from": start,
        "to": end,
        "limit": TRACE_ROWS_MAX,
    }
    for name in names[:TRACE_STREAMS_MAX]:
        try:
            page = api().post("/search", {**body, "stream": name, "order": "oldest"})
        except ApiError as error:
            errors[name] = error
        else:
            found += [(name, each) for each in page["rows"]]
            cut += [name] if page["next"] else []
    found.sort(key=lambda each: datetime.fromisoformat(each[1]["timestamp"]))
    return TraceRows(
        start,
        end,
        [each for _, each in found],
        [name for name, _ in found],
        cut,
        max(0, len(names) - TRACE_STREAMS_MAX),
        errors,
    )


def _reaches(stream: Mapping[str, Any], at: datetime) -> bool:
    """Whether a stream has rows near a time; one of which that is not known may have."""
    newest, oldest = (stream.get(name) for name in ("newest_row", "oldest_row"))
    if newest is None or oldest is None:
        return bool(stream.get("problem"))
    return (
        datetime.fromisoformat(oldest) - TRACE_LASTS
        <= at
        <= datetime.fromisoformat(newest) + TRACE_LASTS + FRESH
    )
