"""SQL over the tenants one may see, run by Trino."""

import streamlit as st

from ui.api_client import ApiError, api
from ui.components import add_to_board, figures
from ui.components.message import empty, show_error
from ui.components.plain_text import code, plain
from ui.components.sql_range import with_range
from ui.components.stream_choice import choose_tenant, no_streams, streams_of
from ui.components.wording import count, size

STREAMS_SHOWN = 12
TENANT = "tenant-of-sql"
SHOWN_AS = "sql-as"
RANGE = ("now-1h", "now")
EXAMPLE = (
    "SELECT severity, count(*) AS rows_\nFROM {stream}\nWHERE timestamp > current_timestamp - INTERVAL "
    "'1' HOUR\nGROUP BY severity\nORDER BY rows_ DESC"
)


def show() -> None:
    """The page."""
    st.title("SQL")
    _open_address()
    left, right = st.columns([1, 3])
    try:
        tenant = choose_tenant(
            left,
            "sql",
            help_text='Whose streams names without a schema mean. Other tenants: "their name".stream',
        )
        if tenant is None:
            return
        streams = list(streams_of(tenant))
    except ApiError as error:
        show_error(error)
        return
    if not streams:
        no_streams(tenant)
        return
    left.caption(
        "Streams: "
        + ", ".join(code(_quoted(stream)) for stream in streams[:STREAMS_SHOWN])
        + (" …" if len(streams) > STREAMS_SHOWN else "")
    )
    # In a form, Ctrl+Enter in the statement runs it.
    with right.form("statement", border=False):
        example = EXAMPLE.format(stream=_quoted("logs" if "logs" in streams else streams[0]))
        st.session_state.setdefault(f"statement-{tenant}", example)
        statement = st.text_area(
            "Statement",
            key=f"statement-{tenant}",
            height=170,
            help=(
                "One SELECT in Trino's SQL. Streams are tables; `timestamp` is the time. `{from}` "
                "and `{to}` stand for the last hour here, and on a board for its range."
            ),
        )
        with st.container(horizontal=True, vertical_alignment="bottom"):
            limit = st.number_input("Rows at most", min_value=1, max_value=10_000, value=500, width=180)
            is_asked = st.form_submit_button(
                "Run", type="primary", icon=":material/play_arrow:", width=180, on_click=_keep_in_address
            )
    if is_asked:
        _run(statement, tenant, int(limit))
    _answer()


def _open_address() -> None:
    """Writes down the statement that an address holds; whoever opened it runs it, or does not."""
    tenant, statement = st.query_params.get("tenant", ""), st.query_params.get("q", "")
    if statement and st.session_state.get("sql_address") != (tenant, statement):
        st.session_state["sql_address"] = tenant, statement
        st.session_state[TENANT] = tenant
        st.session_state[f"statement-{tenant}"] = statement


def _keep_in_address() -> None:
    """What is run stands in the address before anybody is asked: who has to log in again gets it back."""
    tenant = st.session_state[TENANT]
    statement = st.session_state[f"statement-{tenant}"]
    st.session_state["sql_address"] = tenant, statement
    st.query_params.from_dict({"tenant": tenant, "q": statement})


def _quoted(name: str) -> str:
    return name if name.isidentifier() and name.islower() else '"' + name.replace('"', '""') + '"'


def _run(statement: str, tenant: str, limit: int) -> None:
    st.session_state.pop("sql_answer", None)
    try:
        with st.spinner("Running …", show_time=True):
            asked = with_range(statement, *RANGE) or statement
            answer = api().post("/sql", {"sql": asked, "tenant": tenant, "limit": limit})
            st.session_state["sql_answer"] = {**answer, "statement": statement, "tenant": tenant}
    except ApiError as error:
        show_error(error)


def _answer() -> None:
    answer = st.session_state.get("sql_answer")
    if answer is None:
        st.caption(
            "Statements only read: anything but one SELECT is refused, and only tenants that your key "
            "reaches can be named."
        )
        return
    if not answer["complete"]:
        st.warning(plain(" ".join(answer["reasons"])), icon=":material/hourglass_top:")
    scanned = f" · {size(answer['scanned_bytes'])} read" if answer["scanned_bytes"] is not None else ""
    st.caption(f"**{count(len(answer['rows']), 'row')}** · {answer['took_ms']:,.0f} ms{scanned}")
    if not answer["rows"]:
        empty("The statement gave no rows.", "Check its time range and its WHERE clause.")
        return
    shown = str(st.session_state.get(SHOWN_AS) or figures.TABLE).lower()
    add_to_board.show(answer["tenant"], {"sql": answer["statement"]}, shown)
    figures.show(answer["columns"], answer["rows"], key=SHOWN_AS)
    with st.expander("What ran"):
        st.code(answer["executed"], language="sql", wrap_lines=True)
