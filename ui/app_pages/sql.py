"""SQL over the tenants one may see, run by Trino."""

import pandas as pd
import streamlit as st

from ui.api_client import ApiError, api
from ui.components.message import empty, plain, show_error
from ui.components.wording import count, size

EXAMPLE = "SELECT severity, count(*) AS rows_\nFROM {stream}\nWHERE timestamp > current_timestamp - INTERVAL '1' HOUR\nGROUP BY severity\nORDER BY rows_ DESC"


def show() -> None:
    """The page."""
    st.title("SQL")
    try:
        tenants = {tenant["tenant"]: [s["stream"] for s in tenant["streams"]] for tenant in api().get("/tenants", limit=1000)["tenants"] if tenant["streams"]}
    except ApiError as error:
        show_error(error)
        return
    if not tenants:
        empty("There is nothing to query yet.", "Send a record with a `tenant` header to one of the input topics; its table appears with the next flush.")
        return
    left, right = st.columns([1, 3])
    tenant = left.selectbox("Tenant", list(tenants), help='Whose streams names without a schema mean. Other tenants: "their name".stream')
    limit = left.number_input("Rows at most", min_value=1, max_value=10_000, value=500)
    with right:
        example = EXAMPLE.format(stream=_quoted("logs" if "logs" in tenants[tenant] else tenants[tenant][0]))
        statement = st.text_area(
            "Statement", value=example, key=f"statement-{tenant}", height=170, help="One SELECT in Trino's SQL. Streams are tables; `timestamp` is the time."
        )
    if left.button("Run", type="primary", width="stretch", icon=":material/play_arrow:"):
        _run(statement, tenant, int(limit))
    _answer()


def _quoted(name: str) -> str:
    return name if name.isidentifier() and name.islower() else '"' + name.replace('"', '""') + '"'


def _run(statement: str, tenant: str, limit: int) -> None:
    st.session_state.pop("sql_answer", None)
    try:
        with st.spinner("Running …", show_time=True):
            st.session_state["sql_answer"] = api().post("/sql", {"sql": statement, "tenant": tenant, "limit": limit})
    except ApiError as error:
        show_error(error)


def _answer() -> None:
    answer = st.session_state.get("sql_answer")
    if answer is None:
        st.caption("Statements only read: anything but one SELECT is refused, and only tenants that your key reaches can be named.")
        return
    if not answer["complete"]:
        st.warning(plain(" ".join(answer["reasons"])), icon=":material/hourglass_top:")
    scanned = f" · {size(answer['scanned_bytes'])} read" if answer["scanned_bytes"] is not None else ""
    st.caption(f"**{count(len(answer['rows']), 'row')}** · {answer['took_ms']:,.0f} ms{scanned}")
    if not answer["rows"]:
        empty("The statement gave no rows.", "Check its time range and its WHERE clause.")
        return
    names = [column["name"] for column in answer["columns"]]
    unique = [name if names.index(name) == at else f"{name} ({at + 1})" for at, name in enumerate(names)]
    frame = pd.DataFrame(answer["rows"], columns=unique)
    st.dataframe(frame, hide_index=True, width="stretch")
    st.download_button("As CSV", frame.to_csv(index=False).encode(), "answer.csv", "text/csv", icon=":material/download:")
    with st.expander("What ran"):
        st.code(answer["executed"], language="sql", wrap_lines=True)
